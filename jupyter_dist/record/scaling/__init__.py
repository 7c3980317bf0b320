"""How a cell scales: what each number of ranks has measured, and what follows from it."""
