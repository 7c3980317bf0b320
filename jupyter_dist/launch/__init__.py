"""Launch of runs: writes a run's folder and starts its supervisor, warm (a fork of the template) or cold."""
