"""Search for the place inside a value that cannot be pickled, with advice on what to do."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import pickle
import re
import sys
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from ..errors import CaptureError
from ..worker.pickling import Pickler, Trace, annotation_values, dump
from ..worker.pickling.reducers import Refused
from ..worker.pickling.reducers.tensorflow import own_words
from ..worker.pickling.used_names import code_names

__all__ = ["sort_out"]

_SHOWN = 5
_UNSEEN = {"fget", "fset", "fdel", "__func__", "__wrapped__"}  # the user wrote one function, not two
_MORE_FRAMES = 4000  # the tracer recurses in Python, but the real pickler recurses in C


@dataclass(frozen=True)
class _Fault:
    name: str
    path: str
    message: str
    cure: str
    culprit: int | None


def sort_out(
    values: Mapping[str, Any],
    optional: Collection[str],
    mains: Sequence[dict[str, Any]],
    hidden: Collection[str],
    where: str,
    bound_before: Mapping[str, frozenset[str]],
) -> tuple[list[str], set[str], list[str]]:
    """Return what stays behind because it cannot be pickled, after pickling all values together has failed.

    Args:
        where: text for the user, a place where the value can be created instead.
        bound_before: for names of `values`, the names that the cell has bound before it uses the value.

    Returns the `optional` values that are left out, names that functions use and that the cell has bound by
    then, and a note on each. Raises CaptureError if another value cannot be pickled. Its message lists up to
    five values with their paths.
    """
    faults, used = [], {}
    for name, value in values.items():
        trace = Trace()
        fault = _fault(name, value, mains, hidden, where, trace)
        used[name] = trace.globals
        if fault is not None:
            faults.append(fault)
    hidden_too: dict[str, _Fault] = {}
    needed = []
    for fault in faults:
        if fault.name in optional:
            continue
        own = _bound_by_cell(used[fault.name], used, bound_before)
        found = [_fault(name, value, mains, hidden, where) for name, value in own.items()]
        hidden_too |= {each.name: each for each in found if each is not None}
        if not any(found):
            needed.append(fault)
    if needed:
        raise CaptureError(_describe(needed))
    left = [fault for fault in faults if fault.name in optional]
    notes = [
        f"{fault.name!r} stays behind, the cell assigns its own ({fault.path}: {fault.message})"
        for fault in [*left, *hidden_too.values()]
    ]
    return [fault.name for fault in left], set(hidden_too), notes


def _bound_by_cell(
    names: Mapping[str, Any],
    used: Mapping[str, Mapping[str, Any]],
    bound_before: Mapping[str, frozenset[str]],
) -> dict[str, Any]:
    """Return those of the names that the cell has bound before it uses any value that uses them in turn."""
    return {
        name: value
        for name, value in names.items()
        if all(name in bound_before.get(user, ()) for user, its in used.items() if name in its)
    }


def _fault(
    name: str,
    value: Any,
    mains: Sequence[dict[str, Any]],
    hidden: Collection[str],
    where: str,
    trace: Trace | None = None,
) -> _Fault | None:
    """Return why a value cannot be pickled; None if it can. `trace` gets what was found until then."""
    try:
        dump(value, mains=mains, hidden=hidden, trace=trace)
    except Exception as error:
        return _find(name, value, error, mains, hidden, where)
    return None


def _describe(faults: Sequence[_Fault]) -> str:
    # A function that only uses an unpicklable name is not listed again if that name is listed.
    distinct: dict[Any, _Fault] = {}
    for fault in sorted(faults, key=lambda fault: " uses " in fault.path):
        distinct.setdefault(fault.name if fault.culprit is None else fault.culprit, fault)
    order = {fault.name: place for place, fault in enumerate(faults)}
    listed = sorted(distinct.values(), key=lambda fault: order[fault.name])
    lines = [f"{fault.path}: {fault.message}\n    {fault.cure}" for fault in listed[:_SHOWN]]
    if len(listed) > _SHOWN:
        lines.append(f"and {len(listed) - _SHOWN} more")
    return "\n".join([*lines, "Nothing was started."])


def _find(
    name: str,
    value: Any,
    error: Exception,
    mains: Sequence[dict[str, Any]],
    hidden: Collection[str],
    where: str,
) -> _Fault:
    if isinstance(error.__cause__, RecursionError) or isinstance(error, RecursionError):
        cure = f"Keep {name} in a flat list or dict, or build it {where}."
        return _Fault(name, name, "nested too deeply to be pickled", cure, None)
    tracer = _Tracer(Pickler(io.BytesIO(), mains=mains, hidden=hidden))
    try:
        with _deeper():
            tracer.dump(value)
    except Exception as traced:
        error = error if isinstance(traced, RecursionError) else traced
    stack = tracer.stack or [value]
    path = _path(name, stack)
    cure = error.cure if isinstance(error, Refused) else _cure(path, stack[-1], where)
    return _Fault(name, path, _message(error, stack[-1]), cure, id(stack[-1]))


@contextlib.contextmanager
def _deeper() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MORE_FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


_WALKER: Any = getattr(pickle, "_Pickler", pickle.Pickler)
"""Python's pickler written in Python, which can be traced. With the C pickler, an error has no path."""


class _Tracer(_WALKER):  # type: ignore[misc]
    """Pickler with our rules, slow and without output. After a failure, `stack` leads to the cause."""

    def __init__(self, rules: Pickler) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda _: False)
        self.dispatch_table = cloudpickle.Pickler.dispatch_table
        self._rules = rules
        self.stack: list[Any] = []

    def reducer_override(self, obj: Any) -> Any:
        return self._rules.reducer_override(obj)

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        self.stack.append(obj)
        super().save(obj, save_persistent_id)
        self.stack.pop()  # not after an exception: then the stack leads to the cause


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


def _path(name: str, stack: Sequence[Any]) -> str:
    """Return how to get from the first of a chain of objects to the last, in the user's terms."""
    text, at = name, 0
    while at < len(stack) - 1:
        for further in range(at + 1, len(stack)):
            step = _step(stack[at], stack[further])
            if step is not None:
                text += step
                at = further
                break
        else:
            # The next object is not part of this one: its own __getstate__ or __reduce__ created it.
            if not isinstance(stack[at], tuple | list | dict | types.CellType):
                text += _made_by(stack[at], stack[at + 1])
            at += 1
    return text


def _made_by(parent: Any, child: Any) -> str:
    if isinstance(parent, types.FunctionType):
        return "()"
    if isinstance(parent, type):
        return ""
    own_state = getattr(type(parent), "__getstate__", None)
    if own_state is not getattr(object, "__getstate__", None) and not isinstance(child, type):
        return ".__getstate__()"
    return ".__reduce__()"


def _step(parent: Any, child: Any) -> str | None:
    """Return the text that leads from an object to one directly inside it. None if it is not inside."""
    if isinstance(parent, types.FunctionType):
        return _step_from_function(parent, child)
    if isinstance(parent, dict):
        for key, value in parent.items():
            if value is child:
                return f"[{_short(key)}]"
            if key is child:
                return f" (its key {_short(key)})"
    elif isinstance(parent, list | tuple | collections.deque):
        for index, value in enumerate(parent):
            if value is child:
                return f"[{index}]"
    elif isinstance(parent, set | frozenset) and any(value is child for value in parent):
        return " (an element of it)"
    if isinstance(child, type):
        if child is type(parent):
            return f"'s class {child.__name__}"
        if isinstance(parent, type) and child in parent.__bases__:
            return f"'s base {child.__name__}"
    for name, value in _attributes(parent):
        if value is child:
            return "" if name in _UNSEEN else f".{name}"
    return None


def _step_from_function(function: types.FunctionType, child: Any) -> str | None:
    space = function.__globals__
    for name in sorted(code_names(function.__code__).reads):
        if name in space and space[name] is child:
            return f"() uses {name}"
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty closure cell
            if cell.cell_contents is child:
                return f"() uses {name}"
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    named = list(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
    named += (function.__kwdefaults__ or {}).items()
    for name, value in named:
        if value is child:
            return f"()'s default for {name}"
    for name, value in annotation_values.values(function).items():
        if value is child:
            return f"()'s annotation of {name}"
    for name, value in vars(function).items():
        if value is child:
            return f".{name}"
    return None


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    with contextlib.suppress(Exception):  # user-defined classes may raise anything here
        yield from list(vars(obj).items())
    names: list[str] = []
    for cls in type(obj).__mro__:
        slots = vars(cls).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    if isinstance(obj, types.MethodType | classmethod | staticmethod):
        names += ["__self__", "__func__"]
    elif isinstance(obj, property):
        names += ["fget", "fset", "fdel"]
    elif isinstance(obj, functools.partial):
        names += ["func", "args", "keywords"]
    for name in names:
        with contextlib.suppress(Exception):
            yield name, getattr(obj, name)


def _short(key: Any) -> str:
    try:
        text = repr(key)
    except Exception:
        text = f"<{type(key).__name__}>"
    return text if len(text) <= 40 else text[:37] + "…"


def _message(error: Exception, culprit: Any) -> str:
    text = str(error).split("\n")[0]
    if "[Op:" in text:
        text = own_words(text)
    kind = type(culprit).__qualname__
    if isinstance(error, Refused) or text.lower().startswith(("cannot pickle", "can't pickle")):
        return text
    if not text or kind in text:
        return f"cannot pickle {kind!r} object"
    return f"cannot pickle {kind!r} object ({type(error).__name__}: {text})"


def _cure(path: str, culprit: Any, where: str) -> str:
    kind = type(culprit)
    if isinstance(culprit, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        return f"Make the {kind.__name__.replace('_', ' ')} {where}."
    if kind.__name__.endswith("DataLoaderIter"):
        return f"Send the DataLoader itself and call iter() on it {where}."
    if isinstance(culprit, io.IOBase):
        return f"Open the file {where}."
    if kind.__name__ in ("socket", "SSLSocket") or "onnection" in kind.__name__:
        return f"Connect {where}."
    used = path.rpartition(" uses ")[2]
    name = re.match(r"\w*", used)
    assert name is not None
    if used == name[0]:
        return f"Create {used} {where}."
    if "()" in used:  # a part of a function
        return f"Create it {where}."
    return f"Create {name[0]} {where}, or leave this part out of it."
