"""The core of the tests, and the groups that are run beside it."""
