"""A run in a notebook or terminal: live while it goes on, its report at the end."""
