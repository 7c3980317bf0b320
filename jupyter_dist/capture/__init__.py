"""Capture of a cell, and of the notebook names that it uses, as a payload for the ranks."""
