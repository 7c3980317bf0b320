"""A run's logs as text."""
