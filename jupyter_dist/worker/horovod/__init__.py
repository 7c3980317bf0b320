"""Support for Horovod on a rank."""
