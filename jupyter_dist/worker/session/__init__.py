"""Ranks of a session: they stay between cells, and each cell is a run of its own."""
