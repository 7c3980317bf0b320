"""A rank's life around the cell."""
