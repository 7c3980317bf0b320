"""Conversion of flags, a saved cluster and defaults to one checked request."""
