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
    handler or a formatter that is not one of logging's own.
    """
    for level, name in said["levels"]:
        logging.addLevelName(level, name)
    if said["disabled_below"]:
        logging.disable(said["disabled_below"])
    if said["warnings"]:
        logging.captureWarnings(True)
    for name, home, settings in said["loggers"]:
        set_up = partial(_set_up, name, settings, load)
        if home is None:
            set_up()
        else:
            import_hooks.call(home, set_up)


def _set_up(name: str, settings: Mapping[str, Any], load: Callable[[Any], Any]) -> None:
    logger = logging.getLogger(name)
    if logger.level != settings["level"]:
        logger.setLevel(settings["level"])
    logger.propagate = settings["propagate"]
    logger.disabled = settings["disabled"]
    there = [_looks(handler) for handler in logger.handlers]
    for handler in settings["handlers"]:
        made: logging.StreamHandler[Any] = logging.StreamHandler(getattr(sys, handler["stream"]))
        made.setLevel(handler["level"])
        formatter = handler["formatter"]
        if isinstance(formatter, tuple):
            # The notebook has checked the format, or has asked not to.
            text, dates, style = formatter
            made.setFormatter(logging.Formatter(text, dates, style, validate=False))
        elif formatter is not None:
            made.setFormatter(load(formatter))
        # A module beside the notebook makes its own handler when it is imported.
        if _looks(made) not in there:
            logger.addHandler(made)
    for index in settings.get("objects", ()):
        made = load(index)
        same = next((known for known in logger.handlers if _is_again(made, known)), None)
        if type(same) is not type(made):
            if same is not None:  # its class was defined anew
                logger.removeHandler(same)
            logger.addHandler(made)


def _is_again(made: logging.Handler, known: logging.Handler) -> bool:
    """Return whether a handler comes once more, with a later cell of a session."""
    return (_name(made), made.level) == (_name(known), known.level)


def _name(obj: object) -> tuple[str, str]:
    return type(obj).__module__, type(obj).__qualname__


def _looks(handler: logging.Handler) -> tuple[Any, ...]:
    formatter = handler.formatter
    fmt = (type(formatter), getattr(formatter, "_fmt", None), getattr(formatter, "datefmt", None))
    return getattr(handler, "stream", handler), handler.level, fmt


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
