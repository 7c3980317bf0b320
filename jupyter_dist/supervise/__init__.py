"""The supervisor of a run, the one process that owns it: attempts, endings, the guard, the time index."""
