"""Object stores as the driver sees them."""
