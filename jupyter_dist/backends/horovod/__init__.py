"""Horovod's own: its options, elastic runs, and the hosts that these find."""
