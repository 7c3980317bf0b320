"""Rays that run: what each has, what it lacks for a run, and the file that a cluster is launched from."""
