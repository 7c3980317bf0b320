"""SageMaker's automatic model tuning: the request of a tuning job, its parents, and jobs in the account."""
