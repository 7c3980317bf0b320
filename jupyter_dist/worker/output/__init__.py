"""What a rank writes."""
