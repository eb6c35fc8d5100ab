"""``trainscope compare``: what changed from one run to another."""
