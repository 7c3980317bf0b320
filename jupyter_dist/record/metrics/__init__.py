"""A run's metrics and resource usage."""
