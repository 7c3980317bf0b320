"""Ranks that a launcher has started."""
