"""A Kubernetes of a test's own: the real control plane, and nodes whose pods are processes here."""
