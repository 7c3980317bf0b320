"""Logs for the views: pages, search, downloads."""
