"""Recorder of constructor calls of trainers in the kernel, so that a rank can make the trainers again.

Nothing is imported for this. The constructors of the classes in `worker/pickling/reducers/trainer_kinds.py`
are wrapped when user code imports their module. What they do and return does not change. If Lightning refuses
to start processes from a notebook, its error gets a note that names the cure.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..worker.import_hooks import AfterImport
from ..worker.output import events
from ..worker.pickling.reducers import NOTES
from ..worker.pickling.reducers.recorded_calls import Made, note
from ..worker.pickling.reducers.trainer_kinds import TRAINERS, Kind

__all__ = ["install", "remove"]

_REFUSED = "is not compatible with an interactive environment"
"""Part of the error of Lightning's Trainer and Fabric, if their strategy would start processes."""
_CURE = (
    "jupyter-dist: make this {name} inside the cell that trains. There the run's ranks are its devices and "
    "nodes. Or leave out strategy=, devices= and num_nodes= here: a rank then makes the {name} again for all "
    "ranks."
)
_order = itertools.count(1)
_wrapped: weakref.WeakSet[type] = weakref.WeakSet()


class _Making(threading.local):
    """Objects whose constructors are running in this thread, the outermost first."""

    def __init__(self) -> None:
        self.objects: list[Any] = []


_making = _Making()


def install() -> None:
    """Start recording how trainers are made. Repeatable."""
    _finder.install()


def remove() -> None:
    """Restore the classes. Existing trainers keep their records."""
    _finder.remove()
    for cls in list(_wrapped):
        own: Any = vars(cls).get("__init__")
        if getattr(own, NOTES, None) is own is not None:
            cls.__init__ = own.__wrapped__  # type: ignore[misc]
        if hasattr(vars(cls).get("__init_subclass__"), NOTES):
            del cls.__init_subclass__
    _wrapped.clear()


def _hook(name: str, module: ModuleType) -> None:
    for kind in TRAINERS:
        if kind.module == name:
            # This hook must never make the user's import fail. A trainer without a record is refused later.
            with contextlib.suppress(Exception):
                _watch(getattr(module, kind.name), kind)


_finder = AfterImport({kind.module for kind in TRAINERS}, _hook)


def _watch(cls: Any, kind: Kind) -> None:
    if cls in _wrapped:
        return
    _wrap(cls, kind)
    if kind.shared or "__init_subclass__" in vars(cls):
        return

    def __init_subclass__(sub: Any, **options: Any) -> None:
        super(cls, sub).__init_subclass__(**options)
        with contextlib.suppress(Exception):
            _wrap(sub, kind)

    hook: Any = classmethod(__init_subclass__)  # type: ignore[arg-type]
    setattr(hook, NOTES, True)
    cls.__init_subclass__ = hook
    for sub in _below(cls):
        _wrap(sub, kind)


def _below(cls: Any) -> list[Any]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_below(sub))]


def _wrap(cls: Any, kind: Kind) -> None:
    """Wrap the class's own constructor, if it has one, to record its arguments."""
    original = vars(cls).get("__init__")
    if original is None or hasattr(original, NOTES):
        return
    cls.__init__ = _noting(original, kind)
    _wrapped.add(cls)


def _noting(original: Callable[..., None], kind: Kind) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made = _begin(self, kind, args, kwargs)
        if made is None:
            original(self, *args, **kwargs)
            return
        if type(self).__init__ is not __init__:
            made.trouble = "the constructor of its class was put there in a way that is not seen"
        _making.objects.append(self)
        try:
            original(self, *args, **kwargs)
        except Exception as error:
            with contextlib.suppress(Exception):
                _add_cure(error, kind)
            raise
        finally:
            _making.objects.pop()
        _end(self, kind, made)

    setattr(__init__, NOTES, __init__)
    return __init__


def _begin(obj: Any, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Made | None:
    """Return a record of the arguments.

    None if an outer constructor of the same object has one, or this is a rank.
    """
    if any(obj is other for other in _making.objects) or events.writer() is not None:
        return None
    if kind.shared and getattr(type(obj), "_shared_state", None):
        return None  # the shared state already exists, and this call does not change it
    return Made(kind, next(_order), bool(_making.objects), args, kwargs)


def _add_cure(error: Exception, kind: Kind) -> None:
    if _REFUSED not in str(error):
        return
    cure = _CURE.format(name=kind.name)
    if hasattr(error, "add_note"):
        error.add_note(cure)
    else:  # before Python 3.11
        error.args = (f"{error}\n{cure}",)


def _end(obj: Any, kind: Kind, made: Made) -> None:
    try:
        made.settle(obj, kind)
    except Exception as error:  # the object exists, and user code must receive it
        made.trouble = f"{type(error).__name__}: {error}"
    with contextlib.suppress(Exception):
        note(obj, made)
