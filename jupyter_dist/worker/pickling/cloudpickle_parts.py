"""Undocumented parts of cloudpickle. Only this module refers to their names.

Raises ForeignNameMissing at import if the installed cloudpickle lacks one of them.
"""

from __future__ import annotations

from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _inside

from .. import foreign_names

__all__ = [
    "BUILTIN_TYPES",
    "TRACKED_CLASSES",
    "TRACKED_IDS",
    "TRACKER_LOCK",
    "BasePickler",
    "class_reduce",
    "code_reduce",
    "dynamic_class_reduce",
    "function_arguments",
    "is_by_value",
    "lookup_class_or_track",
    "lookup_module",
    "make_empty_cell",
    "make_function",
    "make_skeleton_class",
    "set_class_state",
    "tracker_id",
]

foreign_names.require("worker/pickling/cloudpickle_parts")

BasePickler: Any = cloudpickle.Pickler
BUILTIN_TYPES = _inside._BUILTIN_TYPE_NAMES
TRACKED_CLASSES = _inside._DYNAMIC_CLASS_TRACKER_BY_CLASS
"""Class → the identity of a class that cloudpickle has sent or received."""
TRACKED_IDS = _inside._DYNAMIC_CLASS_TRACKER_BY_ID
TRACKER_LOCK = _inside._DYNAMIC_CLASS_TRACKER_LOCK
class_reduce = _inside._class_reduce
code_reduce = _inside._code_reduce
dynamic_class_reduce = _inside._dynamic_class_reduce
is_by_value = _inside._is_registered_pickle_by_value
lookup_class_or_track = _inside._lookup_class_or_track
lookup_module = _inside._lookup_module_and_qualname
make_empty_cell = _inside._make_empty_cell
make_function = _inside._make_function
make_skeleton_class = _inside._make_skeleton_class
set_class_state = _inside._class_setstate
tracker_id = _inside._get_or_create_tracker_id


def function_arguments(pickler: Any, function: Any) -> tuple[Any, ...]:
    """Return the arguments with which `make_function` rebuilds a function."""
    arguments: tuple[Any, ...] = pickler._function_getnewargs(function)
    return arguments
