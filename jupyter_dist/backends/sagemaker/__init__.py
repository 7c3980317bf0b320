"""The backend `sagemaker`, its requests and its client."""
