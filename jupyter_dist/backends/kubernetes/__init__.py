"""Parts of the backend `kubernetes`."""
