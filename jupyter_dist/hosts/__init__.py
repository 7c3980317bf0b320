"""Other machines reached by ssh: an agent on each starts ranks and sends on what they write."""
