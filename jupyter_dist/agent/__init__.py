"""The agent of a host: starts the ranks, and sends their files to the driver."""
