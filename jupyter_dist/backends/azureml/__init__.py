"""What the backend `azureml` is made of, beside its calls."""
