"""Loggers and filters of warnings on a rank, copied from the notebook."""

from __future__ import annotations

import builtins
import logging
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .. import import_hooks

__all__ = ["apply_filters", "apply_loggers"]


def apply_loggers(said: Mapping[str, Any], load: Callable[[Any], Any]) -> None:
    """Set up loggers as `capture/kernel_logging.py` has found them. Repeatable.

    Loggers of a module are set up right after its import, which sets them up in its own way. `load` returns a
    handler, or a formatter that is not one of logging's own. For a later cell of a session, what the notebook
    has changed or undone since the earlier cell is set. What the ranks have set themselves stays.
    """
    for level, name in said["levels"]:
        logging.addLevelName(level, name)
    for what, set_to in (("disabled_below", logging.disable), ("warnings", logging.captureWarnings)):
        if said[what] != _said.get(what, 0):
            set_to(said[what])
        _said[what] = said[what]
    for name in _given.keys() - {name for name, _, _ in said["loggers"]}:
        _set_up(name, {**_AS_MADE, "level": logging.NOTSET if name else logging.WARNING}, load)
        del _given[name]
    for name, home, settings in said["loggers"]:
        set_up = partial(_set_up, name, settings, load)
        if home is None:
            set_up()
        else:
            import_hooks.call(home, set_up)


_AS_MADE = {"propagate": True, "disabled": False, "handlers": ()}
_said: dict[str, Any] = {}
"""What the notebook has said last of all loggers."""
_given: dict[str, tuple[dict[str, Any], list[logging.Handler]]] = {}
"""By a logger's name: what the notebook has said last of it, and the handlers that it has given to it."""


def _set_up(name: str, settings: Mapping[str, Any], load: Callable[[Any], Any]) -> None:
    logger = logging.getLogger(name)
    about = {what: settings[what] for what in ("level", "propagate", "disabled")}
    sent = [load(index) for index in settings.get("objects", ())]
    sent += [_plain(handler, load) for handler in settings["handlers"]]
    earlier_about, earlier = _given.get(name, ({}, []))
    if about != earlier_about:
        logger.setLevel(about["level"])
        logger.propagate = about["propagate"]
        logger.disabled = about["disabled"]
    left, given = list(earlier), []
    for handler in sent:
        same = next((known for known in left if _looks(known) == _looks(handler)), handler)
        if same is not handler:
            left.remove(same)
        given.append(same)
    _given[name] = about, given
    # A module beside the notebook makes its own handler when it is imported.
    there = [_looks(handler) for handler in logger.handlers if handler not in earlier]
    for handler in left:
        logger.removeHandler(handler)
    for handler in given:
        if handler not in earlier and _looks(handler) not in there:
            logger.addHandler(handler)


def _plain(said: Mapping[str, Any], load: Callable[[Any], Any]) -> logging.Handler:
    made: logging.StreamHandler[Any] = logging.StreamHandler(getattr(sys, said["stream"]))
    made.setLevel(said["level"])
    formatter = said["formatter"]
    if isinstance(formatter, tuple):
        # The notebook has checked the format, or has asked not to.
        text, dates, style = formatter
        made.setFormatter(logging.Formatter(text, dates, style, validate=False))
    elif formatter is not None:
        made.setFormatter(load(formatter))
    return made


def _looks(handler: logging.Handler) -> tuple[Any, ...]:
    formatter = handler.formatter
    fmt = (type(formatter), getattr(formatter, "_fmt", None), getattr(formatter, "datefmt", None))
    return type(handler), id(getattr(handler, "stream", None)), handler.level, fmt


def apply_filters(filters: Sequence[tuple[Any, ...]]) -> None:
    """Put the notebook's filters of warnings before this process's own, in the notebook's order. Repeatable.

    A filter for a library's own warning class is added when that library is imported.
    """
    wanted = []
    for place, item in enumerate(filters):
        made = _filter(item)
        if made is not None:
            wanted.append(made)
        elif item[2][0] not in sys.modules:
            import_hooks.call(item[2][0], partial(_put_in, place, filters))
    # `filters` is documented as a list, but without a way to write it. Resetting notifies the rest of the
    # module.
    others = [item for item in warnings.filters if item not in wanted]
    warnings.resetwarnings()
    warnings.filters.extend([*wanted, *others])  # type: ignore[attr-defined]


def _filter(item: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a filter as `warnings` stores it; None if its warning class is not imported."""
    action, message, (module, kind), where, line = item
    category: Any = builtins if module == "builtins" else sys.modules.get(module)
    for name in kind.split("."):
        category = getattr(category, name, None)
    if not (isinstance(category, type) and issubclass(category, Warning)):
        return None
    return action, _pattern(message), category, _pattern(where), line


def _put_in(place: int, filters: Sequence[tuple[Any, ...]]) -> None:
    """Put a filter before those that follow it in the notebook. Filters of the cell stay before it."""
    item = _filter(filters[place])
    later = [made for made in map(_filter, filters[place + 1 :]) if made is not None]
    there = list(warnings.filters)
    if item is not None and item not in there:
        at = min((there.index(other) for other in later if other in there), default=len(there))
        warnings.resetwarnings()
        warnings.filters.extend([*there[:at], item, *there[at:]])  # type: ignore[attr-defined]


def _pattern(said: Any) -> Any:
    return re.compile(*said) if isinstance(said, tuple) else said
