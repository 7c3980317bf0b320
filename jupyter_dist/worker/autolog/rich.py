"""Progress bars of Rich on a rank.

Each task of a `Progress` is reported, and the log gets only the final state. Without a terminal Rich draws
nothing until a bar has ended. With `force_terminal=True` it draws by moving the cursor up.
(https://rich.readthedocs.io/en/stable/progress.html)
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..output.progress_meter import Meter
from ..patching import wrap
from . import guarded
from .tqdm import writes_to_the_log

__all__ = ["patch"]

_METERS = "_jupyter_dist_meters"
_INTERACTIVE = "_jupyter_dist_interactive"
_MOST = 16
_MAX_TEXT = 80


def patch(progress: ModuleType) -> None:
    """Make every `Progress` that writes to the rank's log report its tasks."""
    for name, make in (("start", _start), ("stop", _stop), ("get_renderable", _get_renderable)):
        wrap(progress.Progress, name, make)


def _start(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        _begin(self)
        return original(self, *args, **kwargs)

    return start


@guarded("Rich's progress")
def _begin(progress: Any) -> None:
    console = progress.console
    if not progress.disable and _METERS not in vars(progress) and writes_to_the_log(console.file):
        # Otherwise it would draw as on a terminal. The final state stays coloured.
        vars(progress)[_INTERACTIVE], console.is_interactive = console.is_interactive, False
        vars(progress)[_METERS] = {}


def _stop(original: Callable[..., Any]) -> Callable[..., Any]:
    def stop(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            _report(self, over=True)

    return stop


def _get_renderable(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_renderable(self: Any, *args: Any, **kwargs: Any) -> Any:
        _report(self)
        return original(self, *args, **kwargs)

    return get_renderable


@guarded("Rich's progress")
def _report(progress: Any, over: bool = False) -> None:
    meters: dict[Any, Meter] | None = vars(progress).get(_METERS)
    if meters is None:
        return
    tasks = {task.id: task for task in progress.tasks if task.visible}
    for key, task in list(tasks.items())[:_MOST]:
        if key not in meters:
            meters[key] = Meter(task.total, _text(task.description))
        meter = meters[key]
        meter.total, meter.desc = task.total, _text(task.description)
        meter.update(task.completed)
    for key in [key for key in meters if over or key not in tasks]:
        meters.pop(key).close()
    if over:
        del vars(progress)[_METERS]
        progress.console.is_interactive = vars(progress).pop(_INTERACTIVE)


def _text(markup: str) -> str:
    from rich.errors import MarkupError
    from rich.text import Text

    try:
        return Text.from_markup(markup).plain[:_MAX_TEXT]
    except MarkupError:
        return markup[:_MAX_TEXT]
