"""What a tuning run looks for: the dimensions of its space and how they are written, the goal, the budget.

Pure data, read from flags or from Python and kept as JSON in the run's job. What tries values is elsewhere
(tuning/ for trials that are runs of ours).
"""
