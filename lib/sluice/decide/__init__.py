"""`decide`: typed questions about a state, in JSON."""
