"""A run's folder read: status, logs, metrics, results, failures and stacks. Nothing here writes to it."""
