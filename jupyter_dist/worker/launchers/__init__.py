"""Ranks that a launcher started."""
