"""The code of a rank.

It imports only the standard library and cloudpickle, and no other part of the package.
"""
