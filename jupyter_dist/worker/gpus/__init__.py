"""GPUs of a machine."""
