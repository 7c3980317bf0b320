"""The backend `ssh`."""
