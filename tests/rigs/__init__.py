"""Services that tests run on this machine in place of those of a cloud."""
