"""Ours against the peers, in one run: `python -m benchmarks --help`."""
