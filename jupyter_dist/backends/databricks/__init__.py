"""What the backend `databricks` is made of, beside its calls."""
