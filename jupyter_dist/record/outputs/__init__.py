"""What ranks returned, displayed and logged besides numbers."""
