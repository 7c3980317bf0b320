"""What runs on a rank: standard library and cloudpickle only, and nothing of the rest of the package."""
