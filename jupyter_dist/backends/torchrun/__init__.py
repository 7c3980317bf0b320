"""The backend `torchrun`."""
