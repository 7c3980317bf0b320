"""The objects of a class that exist in this process."""

from __future__ import annotations

import gc
from typing import Any

__all__ = ["instances"]


def instances(kind: type) -> list[Any]:
    """Return the objects of a class and of its subclasses. Runs no code of any object or of its class.

    `issubclass` would: that of an abstract class asks each class for its hash, which a user's metaclass may
    lack.
    """
    kinds: dict[int, type] = {}
    new = [kind]
    while new:
        each = new.pop()
        if id(each) not in kinds:
            kinds[id(each)] = each  # this also keeps the id from being used again
            new += type.__subclasses__(each)
    return [each for each in gc.get_objects() if id(type(each)) in kinds]
