"""The parts of the backend `kubernetes`."""
