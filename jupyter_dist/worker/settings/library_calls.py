"""Calls of earlier cells that have changed a library, repeated on a rank before its cell."""

from __future__ import annotations

import importlib
import linecache
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["repeat"]

_NONE = object()


def repeat(calls: Iterable[Mapping[str, Any]], main: dict[str, Any], note: Callable[[str], None]) -> None:
    """Repeat the calls that `capture/library_calls.py` has found, in the notebook's order.

    The code runs in `main`, where the cell and its functions run as well. `note` gets a line for each call
    that fails here. A failed call that has succeeded once is left out: the second run of a cell registers
    the same name again.
    """
    failed: dict[str, str] = {}
    done = set()
    for call in calls:
        try:
            _run(call, main)
            done.add(call["code"])
        except Exception as error:  # another version of the library, or another state of this process
            where, shown = call["where"], call["shown"]
            failed[call["code"]] = f"{where}: {shown} failed on this rank: {type(error).__name__}: {error}"
    for code, text in failed.items():
        if code not in done:
            note(text)


def _run(call: Mapping[str, Any], main: dict[str, Any]) -> None:
    code, file, handle = call["code"], call["file"], call["handle"]
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    compiled = compile(code, file, "exec", dont_inherit=True)
    # A process that the rank spawns has names that the cell may have changed since.
    names = dict(call["names"])
    for name, (module, inner) in call["imported"].items():
        names[name] = getattr(importlib.import_module(module), inner)
    before = {name: main[name] for name in names.keys() & main.keys()}
    main.update(names)
    before |= {name: main.get(name, _NONE) for name in {*compiled.co_names} - before.keys()}
    before.pop(call.get("binds"), None)
    made: Any = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the notebook has shown the warnings of its calls
            exec(compiled, main)
        made = main.get(handle)
    finally:
        for name, value in before.items():
            if value is _NONE:
                main.pop(name, None)
            else:
                main[name] = value
    if handle:
        names[handle].__dict__.update(made.__dict__)
