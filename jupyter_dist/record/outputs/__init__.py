"""Returned values, displays and logged media of ranks."""
