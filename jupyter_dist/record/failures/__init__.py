"""Causes of a run's failure."""
