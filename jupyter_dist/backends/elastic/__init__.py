"""Elastic runs: the number of ranks may change."""
