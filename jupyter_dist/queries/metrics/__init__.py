"""Metrics for the views."""
