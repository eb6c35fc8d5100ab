"""Pure functions of a trace."""
