"""The agent of a host: starts the ranks there, tails their files and sends them on."""
