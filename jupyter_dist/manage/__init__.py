"""Changes to runs and saved clusters, for commands and views."""
