"""Facts about the machine of a rank: its hardware, its free ports and its resource usage."""
