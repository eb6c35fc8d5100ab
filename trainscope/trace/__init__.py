"""What happened in a run, as data: columns, sites, states, and the run directory they lie in."""
