"""Notebooks made at random: what stands in them, and what a kernel and a rank see when they run one."""
