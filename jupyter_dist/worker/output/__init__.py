"""The output of a rank: its log, events, displays and media."""
