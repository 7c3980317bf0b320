"""The backend `azureml`, its requests and its client."""
