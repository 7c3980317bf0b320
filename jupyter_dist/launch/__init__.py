"""Write a run's folder and start its supervisor: as a fork of the warm template, or cold."""
