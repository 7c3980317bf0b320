"""Runs whose number of ranks changes."""
