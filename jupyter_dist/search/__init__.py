"""Search of a tuning run: the dimensions of its space and their notation, the goal, the budget.

The package has only data, parsed from flags or Python and stored as JSON in the run's job. The code that
tries values is elsewhere (in tuning/, for trials that are runs).
"""
