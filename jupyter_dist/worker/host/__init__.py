"""Facts about the machine of a rank."""
