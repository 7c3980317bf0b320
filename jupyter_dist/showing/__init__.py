"""Display of a run in a notebook or terminal: live while it runs, with a report at its end."""
