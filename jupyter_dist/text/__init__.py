"""Formats for people: values, tables, lines and pictures."""
