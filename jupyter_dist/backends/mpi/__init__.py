"""The backend `mpi`."""
