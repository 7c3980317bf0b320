"""The prompts of ranks, shown to the user: under a cell, in `%dist debug`, in a terminal."""
