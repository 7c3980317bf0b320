"""Training over all ranks with trainers of Lightning, accelerate and Ray Train."""
