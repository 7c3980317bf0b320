"""The GPUs of a machine: which ones a process may use, who uses them, and how busy they are."""
