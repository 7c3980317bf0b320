"""From a cell, with the notebook names that it uses, to a payload that travels."""
