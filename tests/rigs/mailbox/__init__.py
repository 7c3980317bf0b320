"""A store with every fault, and a backend that reaches its hosts through it."""
