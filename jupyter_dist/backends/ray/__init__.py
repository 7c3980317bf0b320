"""The backend `ray`: ranks on the nodes of a Ray cluster."""
