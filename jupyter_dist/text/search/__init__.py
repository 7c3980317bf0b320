"""Search of log lines and metrics for a text or for a pattern."""
