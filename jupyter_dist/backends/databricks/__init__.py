"""The backend `databricks`, its requests and its client."""
