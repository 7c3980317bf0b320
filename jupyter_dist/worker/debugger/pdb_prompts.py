"""pdb on a rank: its prompts go through the channel (channel.py)."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from types import FrameType, ModuleType, TracebackType
from typing import Any

from ..boot import Terminated
from ..output import events
from ..patching import wrap
from .channel import BREAKPOINT, ERROR, Channel, Interrupted, NobodyAnswers, current, is_empty

__all__ = ["hold", "patch", "trim"]

_IN_A_CHILD = (
    "The rank has started this process, and nobody can type into it. A debugger works only in the rank. "
    "Call the code in the rank, for example with DataLoader(…, num_workers=0)."
)
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_HERE = os.path.dirname(__file__) + os.sep
_STARTERS = ("<frozen runpy>", "<string>", "runpy.py")
_OUR_MODULES = "jupyter_dist.*"


def patch(pdb: ModuleType) -> None:
    """Send the prompts of `breakpoint()`, `pdb.set_trace()` and post-mortem sessions through the channel.

    A debugger with a stream of its own stays unchanged, for example one that is used over the network.
    """
    wrap(pdb.Pdb, "set_trace", _prompting)
    wrap(pdb.Pdb, "interaction", _announced)
    wrap(pdb.Pdb, "get_stack", _of_the_user)
    wrap(pdb.Pdb, "user_call", _not_at_cells)
    wrap(pdb.Pdb, "error", _unless_ended)
    wrap(pdb.Pdb, "message", _unless_ended)


def _prompting(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_trace(self: Any, frame: FrameType | None = None, *args: Any, **kwargs: Any) -> Any:
        frame = frame or sys._getframe(1)
        if not _is_served(self):
            return original(self, frame, *args, **kwargs)
        channel = current()
        if channel is None:
            if events.writer() is None:
                return original(self, frame, *args, **kwargs)
            raise RuntimeError(_IN_A_CHILD)
        plain = sys.modules["pdb"].Pdb
        if type(self) is not plain:
            self = plain()  # others, such as IPython's debugger, need a terminal
        _serve(self, channel)
        return original(self, frame, *args, **kwargs)

    return set_trace


def _announced(original: Callable[..., Any]) -> Callable[..., Any]:
    def interaction(self: Any, frame: FrameType | None, *args: Any, **kwargs: Any) -> Any:
        channel = current() if _is_served(self) else None
        if channel is None:
            return original(self, frame, *args, **kwargs)
        if frame is None and type(self) is not (plain := sys.modules["pdb"].Pdb):
            self = plain()
            self.reset()
        with channel.turn:
            _serve(self, channel)
            why, place, error = _where(channel, frame, args[0] if args else None)
            channel.stop(why, place, error)
            left = False
            try:
                found = original(self, frame, *args, **kwargs)
                left = True
                return found
            except Interrupted:
                raise KeyboardInterrupt from None
            except NobodyAnswers as nobody:
                raise RuntimeError(str(nobody)) from None
            finally:
                channel.debugger = self  # another one may have been open meanwhile
                steps = left and why == BREAKPOINT and not self.quitting and self.stoplineno != -1
                channel.go(steps=steps, ends=self.quitting or (why == ERROR and bool(channel.error)))

    return interaction


def _of_the_user(original: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out the calls that lead to the cell."""

    def get_stack(self: Any, *args: Any, **kwargs: Any) -> Any:
        stack, place = original(self, *args, **kwargs)
        channel = current() if _is_served(self) else None
        first = 0 if channel is None else _first_of_user(channel, [frame for frame, _ in stack])
        return stack[first:], max(0, place - first)

    return get_stack


def _not_at_cells(original: Callable[..., Any]) -> Callable[..., Any]:
    """Do not stop before the first line of a cell: its last expression is code of its own."""

    def user_call(self: Any, frame: FrameType, *args: Any) -> Any:
        channel = current() if _is_served(self) else None
        code = frame.f_code
        if channel is not None and code.co_name == "<module>" and code.co_filename in channel.labels:
            return None
        return original(self, frame, *args)

    return user_call


def _unless_ended(original: Callable[..., Any]) -> Callable[..., Any]:
    """Remember a request to end that pdb has caught during a command, and do not print it as an error."""

    def says(self: Any, *args: Any, **kwargs: Any) -> Any:
        caught = sys.exc_info()[1]
        channel = current() if isinstance(caught, (Terminated, KeyboardInterrupt, Interrupted)) else None
        trace = None if caught is None else caught.__traceback__
        # The first frame of a traceback is the one that has caught the error. It can be the user's.
        if channel is not None and channel.in_pdb and trace is not None and _is_of_pdb(trace.tb_frame):
            assert caught is not None
            channel.remember(caught)
            return None
        return original(self, *args, **kwargs)

    return says


def _is_served(debugger: Any) -> bool:
    channel = current()
    return is_empty(debugger.stdin) or (channel is not None and debugger.stdin is channel.input)


def _serve(debugger: Any, channel: Channel) -> None:
    debugger.stdin, debugger.stdout, debugger.use_rawinput = channel.input, channel.output, False
    if hasattr(debugger, "mode"):
        debugger.mode = None  # with "inline", `q` of Python 3.14 asks whether to end the process
    channel.debugger = debugger
    debugger.nosigint = True  # an interrupt ends the rank, and opens no debugger
    debugger.skip = {*(debugger.skip or ()), _OUR_MODULES}


def _first_of_user(channel: Channel, frames: list[FrameType]) -> int:
    """Return the position of the cell's first frame. Without a cell, it is the first that is not ours."""
    for position, frame in enumerate(frames):
        if frame.f_code.co_filename in channel.labels:
            return position
    return next((i for i, frame in enumerate(frames) if not _leads_to_cell(frame)), 0)


def _leads_to_cell(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_OURS) or file.endswith(_STARTERS)


def _where(channel: Channel, frame: FrameType | None, raised: Any) -> tuple[str, str, str]:
    """Return why the debugger has stopped, where, and at which error."""
    trace = raised.__traceback__ if isinstance(raised, BaseException) else raised
    if frame is None and isinstance(trace, TracebackType):
        file, line = "", 0
        for step, number in traceback.walk_tb(trace):
            if not file or not _leads_to_cell(step):
                file, line = step.f_code.co_filename, number
        return ERROR, channel.name(file, line), channel.error
    if frame is None:
        return BREAKPOINT, "", ""
    return BREAKPOINT, channel.name(frame.f_code.co_filename, frame.f_lineno), ""


def hold(channel: Channel, error: BaseException) -> None:
    """Open pdb at an error. Blocks until the user leaves pdb, or the rank is asked to end. Never raises."""
    import pdb

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _leads_to_cell(trace.tb_frame):
        trace = trace.tb_next
    if trace is None:
        return
    kind = type(error).__name__
    try:
        report = "".join(traceback.format_exception(type(error), error, trace))
        channel.error = traceback.format_exception_only(type(error), error)[-1].strip() or kind
        debugger: Any = pdb.Pdb(nosigint=True)
        debugger.reset()
        channel.preface = channel.labelled(report)
        debugger.interaction(None, trace)
    except (KeyboardInterrupt, Terminated):
        return  # the user stops the run
    except Exception as failure:  # the rank reports its own error in any case
        print(f"--pdb cannot open the debugger: {failure}", file=sys.stderr)
    except BaseException:
        return  # the user leaves with `exit()`, for example
    finally:
        channel.error = channel.preface = ""


def trim(error: BaseException) -> None:
    """Remove the calls of pdb at the end of a traceback: the error was raised at a prompt."""
    trace, last = error.__traceback__, None
    while trace is not None:
        if not _is_of_pdb(trace.tb_frame):
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None


def _is_of_pdb(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_HERE) or frame.f_globals.get("__name__") in ("bdb", "pdb", "cmd")
