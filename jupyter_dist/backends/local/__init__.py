"""The backend `local`."""
