"""The supervisor of a session: it owns the ranks, and runs one cell after the other on them."""
