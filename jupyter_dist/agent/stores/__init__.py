"""Object stores for hosts (stdlib only)."""
