"""Progress bars of tqdm on a rank: reported as progress, which views draw live, instead of drawn to the log.

A bar drawn to a log makes thousands of lines, which a terminal would overwrite. Here the log only gets the
last line of a bar, unless the bar has `leave=False`. Bars that are written to a file of the user's stay
unchanged. `tqdm.notebook` draws with widgets, which a rank does not have. There it becomes tqdm's own bar.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..output.progress_meter import Meter
from ..patching import wrap
from . import guarded

__all__ = ["patch", "patch_notebook", "writes_to_the_log"]

_OF_WIDGETS = ("status_printer", "display", "colour", "__iter__", "update", "close", "clear", "reset")
_OURS = "_jupyter_dist_bar"
_MAX_TEXT = 80


class _Bar:
    """The state of a tqdm bar that we add."""

    def __init__(self) -> None:
        self.meter: Meter | None = None
        self.closing = False

    @guarded("tqdm")
    def show(self, bar: Any) -> None:
        desc = str(bar.desc or "").removesuffix(": ")[:_MAX_TEXT]
        n, total = _plain(bar.n) or 0, _plain(bar.total)
        if self.meter is None:
            self.meter = Meter(total, desc, "" if bar.unit == "it" else str(bar.unit)[:20])
        self.meter.total, self.meter.desc = total, desc
        self.meter.note = bar.postfix[:_MAX_TEXT] if isinstance(bar.postfix, str) else ""
        self.meter.update(n)

    def close(self, bar: Any) -> None:
        if self.meter is not None:
            self.show(bar)
            self.meter.close()


def patch(std: ModuleType) -> None:
    """Make the bars of `tqdm.std`, and of all its subclasses, report their progress instead of drawing it."""
    for name, make in (("display", _display), ("clear", _clear), ("close", _close)):
        wrap(std.tqdm, name, make)


def patch_notebook(notebook: ModuleType) -> None:
    """Turn the bar of `tqdm.notebook` into one of `tqdm.std`.

    It is changed in place, because `tqdm.auto` may have imported it already.
    """
    bar = notebook.tqdm_notebook
    for name in _OF_WIDGETS:
        if name in vars(bar):
            delattr(bar, name)

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        options.pop("display", None)
        options["disable"] = bool(options.get("disable"))
        super(bar, self).__init__(*args, **options)

    bar.__init__ = __init__


def writes_to_the_log(file: Any) -> bool:
    """Return whether writes to this file appear in the rank's log."""
    try:
        return file.fileno() in (1, 2)
    except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
        return False


@guarded("tqdm")
def _of(bar: Any) -> _Bar | None:
    """Return our state of a bar; None for a bar that is drawn elsewhere."""
    known = vars(bar)
    if _OURS not in known:
        known[_OURS] = None if known.get("gui") or not writes_to_the_log(known.get("fp")) else _Bar()
    found: _Bar | None = known[_OURS]
    return found


def _display(original: Callable[..., Any]) -> Callable[..., Any]:
    def display(self: Any, *args: Any, **options: Any) -> Any:
        ours = _of(self)
        if ours is None:
            return original(self, *args, **options)
        msg = args[0] if args else options.get("msg")
        if not ours.closing:
            ours.show(self)
        elif msg != "":  # the final line; an empty message would erase the bar
            self.fp.write(str(self) if msg is None else str(msg))
            return True
        return False

    return display


def _clear(original: Callable[..., Any]) -> Callable[..., Any]:
    def clear(self: Any, *args: Any, **options: Any) -> Any:
        return original(self, *args, **options) if _of(self) is None or self.disable else None

    return clear


def _close(original: Callable[..., Any]) -> Callable[..., Any]:
    def close(self: Any, *args: Any, **options: Any) -> Any:
        ours = vars(self).get(_OURS)
        if ours is None or self.disable:
            return original(self, *args, **options)
        ours.closing = True
        try:
            return original(self, *args, **options)
        finally:
            ours.close(self)

    return close


def _plain(value: Any) -> float | None:
    """Return a count as JSON can store it. It may be a number of numpy."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else number
