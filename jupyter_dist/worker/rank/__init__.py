"""The steps of a rank before, during and after the cell."""
