"""What the backend `sagemaker` is made of, beside its calls."""
