"""Data sets on a rank."""
