"""Reading of where the time of training steps goes, and the search for a rank that the others wait for."""
