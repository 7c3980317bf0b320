"""Horovod on a rank."""
