"""How hosts come to be on Ray: what the backend `ray` is made of."""
