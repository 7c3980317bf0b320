"""What can be done to the runs and saved clusters that there are, by a command or by a view."""
