"""The notebook's loggers and warning filters, as plain builtins for the ranks."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

from ..worker.pickling import by_reference

__all__ = ["read_filters", "read_loggers"]

_SHELLS = frozenset(
    "IPKernelApp IPython LSP _pytest _pydevd_bundle asyncio comm debugpy ipykernel ipywidgets jedi "
    "jupyter_client jupyter_core jupyter_dist nbclient parso pydevd tornado traitlets trio zmq".split()
)
"""Programs that run the notebook and set up loggers and filters for it. Ranks do not have these programs."""
_LEVELS = {0: "NOTSET", 10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}

Keep = Callable[[Any], Any]


def read_loggers(
    is_installed: Callable[[str], bool], keep: Keep, note: Callable[[str], None]
) -> dict[str, Any]:
    """Return what was set on loggers. `worker/settings/loggers.py` applies it.

    A library's loggers count only if the user changed them. Their handlers belong to the library.
    `keep` takes a handler or a formatter that is not logging's own. It returns its number, or None.
    """
    manager = logging.root.manager
    found = []
    changed = [
        (name, logger)
        for name, logger in [("", logging.root), *manager.loggerDict.items()]
        if isinstance(logger, logging.Logger)
        # Nearly all loggers are as they were made, and a session's cell looks at all of them.
        and (logger.level or logger.handlers or not logger.propagate or logger.disabled)
        and name.partition(".")[0] not in _SHELLS
    ]
    for name, logger in sorted(changed):
        home = _module_named(name)
        if home is None and name and logger.handlers:
            home = _keeper(logger)
        of_library = home is not None and is_installed(home)
        handlers, objects = ([], []) if of_library else _handlers(logger, keep, note)
        is_set_up = logger.level or handlers or objects or not logger.propagate or logger.disabled
        if is_set_up and (name or handlers or objects or logger.level != logging.WARNING):
            about = {"level": logger.level, "propagate": logger.propagate, "disabled": logger.disabled}
            found.append((name, home, {**about, "handlers": handlers, "objects": objects}))
    names = {level: logging.getLevelName(level) for level in _LEVELS}
    names |= {level: name for level, name in _named().items() if level not in names}
    return {
        "levels": [(level, name) for level, name in names.items() if _LEVELS.get(level) != name],
        "disabled_below": manager.disable,
        "warnings": getattr(warnings.showwarning, "__module__", "") == "logging",
        "loggers": found,
    }


def _named() -> dict[int, str]:
    return dict(getattr(logging, "_levelToName", {}))


def _module_named(name: str) -> str | None:
    """Return the module that a logger is named after: the nearest one that is imported."""
    while name:
        if name in sys.modules:
            return name
        name = name.rpartition(".")[0]
    return None


def _keeper(logger: logging.Logger) -> str | None:
    """Return the module of an installed library that has this logger as a global; None if there is none.

    Libraries name loggers freely: torch has one named `strobelight_function_profiler`.
    """
    known = _keepers.get(logger.name)
    if known is None or known[0] < len(sys.modules):
        holds = (
            name
            for name, module in list(sys.modules.items())
            if any(value is logger for value in list(getattr(module, "__dict__", {}).values()))
            if name not in _NOTEBOOK and by_reference.is_installed(name)
        )
        known = _keepers[logger.name] = len(sys.modules), next(holds, None)
    return known[1]


_NOTEBOOK = ("__main__", "__mp_main__")
_keepers: dict[str, tuple[int, str | None]] = {}
"""The number of modules when a logger's keeper was looked for, and the keeper."""


def _handlers(
    logger: logging.Logger, keep: Keep, note: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return descriptions of those that plain handlers replace, and the numbers of those that are pickled."""
    found, objects = [], []
    for handler in logger.handlers:
        kind = type(handler)
        if isinstance(handler, logging.NullHandler) or kind.__module__.partition(".")[0] in _SHELLS:
            continue
        stream = _stream(getattr(handler, "stream", None))
        whose = f"the logger {logger.name!r}"
        index = keep(handler) if _can_travel(handler, stream) else None
        if index is not None:
            objects.append(index)
            continue
        if not isinstance(handler, logging.StreamHandler) or stream is None:
            note(
                f"jupyter-dist does not send a handler of {whose}: {handler!r}. Add the handler inside the "
                "cell, if the ranks need it"
            )
            continue
        if kind is not logging.StreamHandler:
            note(f"a handler of {whose} is a plain StreamHandler on the ranks: {handler!r}")
        if handler.filters:
            note(f"the filters of a handler of {whose} stay behind: {handler!r}")
        formatter = _formatter(handler.formatter, keep)
        if formatter is None and handler.formatter is not None:
            note(f"a formatter of {whose} stays behind: {handler.formatter!r}")
        found.append({"stream": stream, "level": handler.level, "formatter": formatter})
    if logger.filters:
        note(f"the filters of the logger {logger.name!r} stay behind: {logger.filters}")
    return found, objects


def _can_travel(handler: logging.Handler, stream: str | None) -> bool:
    """Return whether a handler may do on a rank what it does here."""
    if isinstance(handler, logging.StreamHandler):
        return stream is not None
    # These pass records to something that stays in the notebook: a thread, or another handler.
    return not any(f"{kind.__module__}.{kind.__qualname__}" in _PASSES_ON for kind in type(handler).__mro__)


_PASSES_ON = {"logging.handlers.QueueHandler", "logging.handlers.MemoryHandler"}


def _stream(stream: Any) -> str | None:
    for name in ("stdout", "stderr"):
        if stream is not None and stream in (getattr(sys, name), getattr(sys, f"__{name}__")):
            return name
    return None


def _formatter(formatter: logging.Formatter | None, keep: Keep) -> Any:
    """Return the arguments of logging's own formatter, or the result of `keep` for another one."""
    if formatter is None:
        return None
    if type(formatter) is not logging.Formatter or vars(formatter).keys() > {"_style", "_fmt", "datefmt"}:
        return keep(formatter)
    # The documentation names only the arguments. The attributes have had these names since Python 3.2.
    if getattr(formatter._style, "_defaults", None):  # values for fields that a record lacks
        return keep(formatter)
    style = next((k for k, kind in _STYLES.items() if type(formatter._style) is kind), "%")
    return formatter._fmt, formatter.datefmt, style


_STYLES = {"%": logging.PercentStyle, "{": logging.StrFormatStyle, "$": logging.StringTemplateStyle}


def read_filters() -> list[tuple[Any, ...]]:
    """Return the warning filters in their order, without those of the shell. The rank applies them."""
    found = []
    filters: list[tuple[Any, ...]] = list(warnings.filters)
    for action, message, category, module, line in filters:
        if category.__module__.partition(".")[0] in _SHELLS or "Trio" in str(getattr(message, "pattern", "")):
            continue
        kind = (category.__module__, category.__qualname__)
        found.append((action, _pattern(message), kind, _pattern(module), line))
    return found


def _pattern(pattern: str | re.Pattern[str] | None) -> Any:
    return (pattern.pattern, pattern.flags) if isinstance(pattern, re.Pattern) else pattern
