"""How values, tables, lines and pictures are written for people."""
