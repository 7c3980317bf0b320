"""A backend in a child process of its own (`apart`)."""
