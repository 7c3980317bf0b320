"""What a session's cell takes along from the notebook."""
