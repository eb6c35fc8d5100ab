"""``trainscope check``: a run held against the syncs and budgets that were agreed on."""
