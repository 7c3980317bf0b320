"""Readers of a run's folder: status, logs, metrics, results, failures and stacks.

No module here writes the run's state.
"""
