"""Hosts of a run. An agent on each host starts the ranks and sends their files to the driver."""
