"""Make trainers train over all ranks."""
