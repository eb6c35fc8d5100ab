"""The report of a run: its schema, how it is built, and its renderers."""
