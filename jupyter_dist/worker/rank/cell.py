"""Execution of the payload in a fresh `__main__`, and the record of how it ended."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import json
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import boot, layout, payload
from .. import settings as notebook_settings
from ..api import trial_parameters
from ..boot import Terminated
from ..output import events
from ..output.result_outline import outline
from ..tf_config import task
from . import collectives, ignored_exceptions, main_snapshot, result_digest, shipped_modules, spawned_process

__all__ = ["run"]

_REPR_LIMIT = 10_000
_ERROR_BYTES = 32_768
_PLACE = f'File "{os.path.dirname(os.path.dirname(__file__))}{os.sep}'
_OUR_FRAMES = re.compile(rf"^([ |]*){re.escape(_PLACE)}.*\n(?:\1 .*\n)*", re.MULTILINE)
"""A frame of jupyter-dist in a text, with its source lines, which are indented further."""
_TRIED_BYTES = 1_000_000
"""The size up to which a rank unpickles its result to see whether the notebook can."""


def run(run_folder: Path, rank_folder: Path) -> tuple[int, bool]:
    """Run the cell. Returns the exit code and whether the end is orderly.

    Writes `result.pkl` and a result event, or `error.json` and the traceback in the log. A process that the
    cell has forked may return from this function, too. Such a process only writes its traceback to the log.
    """
    labels: dict[str, str] = {}
    rank = os.getpid()
    ignored_exceptions.install()
    _keep_room(rank_folder)
    try:
        header = payload.read_header(run_folder / layout.PAYLOAD)
        labels = dict(header["labels"])
        value = _execute(run_folder, rank_folder, header)
        if os.getpid() != rank:
            return 0, True
        _show_last(header, value)
        collectives.write(final=True)
        from .. import api

        api._finish(True)
        _keep_result(rank_folder, value)
        _prepared(rank_folder).unlink(missing_ok=True)
        return 0, True
    except Terminated as error:
        boot.hold_requests()
        collectives.write(final=True)
        return int(error.code or 0), False
    except SystemExit as error:
        collectives.write(final=True)
        return _exit_code(error)
    except BaseException as error:
        # Another rank can fail at the same moment, and its failure ends this rank.
        try:
            boot.hold_requests()
        except (Terminated, KeyboardInterrupt):
            boot.hold_requests()
        if os.getpid() != rank:
            _print_error(error, labels)
            return 1, False
        collectives.write(final=True)
        _keep_error(rank_folder, error, labels)
        return 1, False


def _show_last(header: Mapping[str, Any], value: Any) -> None:
    """Show what a notebook shows at the end of a cell: open figures, and a last expression without a `;`."""
    from ..output import displays, library_displays

    displays.renew_widgets()
    library_displays.close_figures(value)
    if not header["source"].rstrip().endswith(";"):
        displays.show_result(value)


def _exit_code(error: SystemExit) -> tuple[int, bool]:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF, not error.code
    print(error.code, file=sys.stderr)
    return 1, False


def _execute(run_folder: Path, rank_folder: Path, header: Mapping[str, Any]) -> Any:
    paths = [str(run_folder / layout.MODULES), *header["sys_path"]]
    sys.path[:] = list(dict.fromkeys([*paths, *sys.path]))
    shipped_modules.install(paths[0], header["origins"])
    sys.argv = list(header["argv"])
    for filename, text in header["sources"].items():
        # A size of None as mtime prevents linecache from looking for the file.
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    why = header["legacy_keras"]
    if not why and header["legacy_keras_if_several"]:
        why = header["legacy_keras_if_several"] if task().is_of_several else ""
    if why:
        from .. import keras

        keras.arrange(why)
    if header["spanning_strategy"]:
        from ..pickling import deferred_variables

        deferred_variables.expect_strategy()
    from .. import autolog

    autolog.install()
    spawned_process.take_displays(header["filename"])
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    # `multiprocessing` sets the second name when it is imported, which can be long ago.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    main_snapshot.prepare(rank_folder / layout.MAIN, header["sources"])
    writer = events.writer()
    assert writer is not None
    # Loading the names may import the user's modules, which runs their code.
    writer.cell()
    settings = header.get("settings", {})
    notebook_settings.before_names(settings)
    names = payload.load(run_folder / layout.PAYLOAD, main=main.__dict__)
    for name in header["submodules"]:
        with contextlib.suppress(Exception):  # the code that needs the module reports the error
            importlib.import_module(name)
    objects = names.pop(notebook_settings.OBJECTS, {})
    notebook_settings.after_names(settings, objects, int(rank_folder.name), main.__dict__)
    main_snapshot.hand_on(settings, objects)
    parameters = header.get("parameters", {})  # the parameters of a tuning run's trial
    trial_parameters.tell(parameters)
    if header["kind"] == "call":
        code = getattr(names["fn"], "__code__", None)
        spawned_process.take_displays(getattr(code, "co_filename", None))
        if getattr(names["fn"], "__module__", None) == "__main__":
            # A process that the function starts can find it there.
            main.__dict__.setdefault(names["fn"].__name__, names["fn"])
        return names["fn"](*names["args"], **{**names["kwargs"], **parameters})
    main.__dict__.update(names)
    main.__dict__.update(parameters)  # parameters override the notebook's values of these names
    return _run_cell(header["source"], header["filename"], header["flags"], main.__dict__)


def _run_cell(source: str, filename: str, flags: int, namespace: dict[str, Any]) -> Any:
    """Run the statements. The value of a last expression is the rank's result."""
    tree = ast.parse(source, filename)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    codes = [compile(tree, filename, "exec", flags, dont_inherit=True)]
    if isinstance(last, ast.Expr):
        codes.append(compile(ast.Expression(last.value), filename, "eval", flags, dont_inherit=True))
    if not any(code.co_flags & inspect.CO_COROUTINE for code in codes):
        value = None
        for code in codes:
            value = eval(code, namespace)
        return value

    async def in_one_loop() -> Any:
        value = None
        for code in codes:
            value = eval(code, namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    return asyncio.run(in_one_loop())


def _keep_result(rank_folder: Path, value: Any) -> None:
    writer = events.writer()
    assert writer is not None
    try:
        text = _limited(repr(value))
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    trace = payload.Trace()
    try:
        size = payload.write_value(rank_folder / layout.RESULT, value, trace)
    except OSError:
        raise
    except Exception as error:
        writer.result(text, None, f"cannot pickle {type(value).__name__!r}: {error}", outline(value))
    else:
        content = result_digest.content(value, text, rank_folder / layout.RESULT)
        tried = trace.classes and size <= _TRIED_BYTES
        unreadable = _unreadable(rank_folder / layout.RESULT) if tried else None
        writer.result(text, size, unreadable, outline(value), content)


def _unreadable(result: Path) -> str | None:
    """Return why a result cannot be unpickled; None if it can.

    Only results with classes of the notebook are tried: their methods decide how they are unpickled.
    """
    try:
        payload.load(result)
    except Exception as error:  # unpickling runs the value's own code
        return f"cannot be unpickled: {type(error).__name__}: {error}"
    return None


def _limited(text: str) -> str:
    if len(text) <= _REPR_LIMIT:
        return text
    half = _REPR_LIMIT // 2
    return f"{text[:half]} … {len(text) - _REPR_LIMIT:,} characters left out … {text[-half:]}"


def _print_error(error: BaseException, labels: Mapping[str, str]) -> None:
    report = traceback.TracebackException.from_exception(error)
    for _ in _shown(report, labels):  # iterating removes the frames of jupyter-dist
        pass
    print(_labelled("".join(report.format()), labels), end="", file=sys.stderr, flush=True)


def _keep_error(rank_folder: Path, error: BaseException, labels: Mapping[str, str]) -> None:
    """Write the traceback to `error.json`, for the views, and then to the log, for people.

    A reader who sees the traceback in the log can then rely on `error.json`.
    """
    when = events.now()
    asked = _without_the_end(error)
    report = traceback.TracebackException.from_exception(error)
    frames = list(_shown(report, labels))
    text = _labelled("".join(report.format()), labels)
    try:
        message = str(error)
    except Exception:
        message = "<its str() raised as well>"
    data = {
        "rank": int(rank_folder.name),
        "time": when,
        "type": type(error).__qualname__,
        "message": _limited(_labelled(message, labels)),
        "text": _limited(text),
        "frames": frames,
        "exit_code": 1,
        "asked_to_end": asked,
    }
    prepared = _prepared(rank_folder)
    with open(os.open(prepared, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(json.dumps(data).encode())
        file.truncate()
    os.replace(prepared, rank_folder / layout.ERROR)
    with contextlib.suppress(OSError):  # the error may report a full disk
        print(text, end="", file=sys.stderr, flush=True)


def _without_the_end(error: BaseException) -> bool:
    """Remove the request to end from an error's history, because jupyter-dist raised it.

    Return whether it was there.
    """
    seen: set[int] = set()
    asked = False
    while id(error) not in seen:
        seen.add(id(error))
        if isinstance(error.__cause__, Terminated):
            error.__cause__, asked = None, True
        if isinstance(error.__context__, Terminated):
            error.__context__, asked = None, True
        error = error.__cause__ or error.__context__ or error
    return asked


def _keep_room(rank_folder: Path) -> None:
    """Reserve the space of an `error.json`, for the case that the disk fills up."""
    with contextlib.suppress(OSError):
        fd = os.open(_prepared(rank_folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _ERROR_BYTES)
        finally:
            os.close(fd)


def _prepared(rank_folder: Path) -> Path:
    return rank_folder / layout.hidden(layout.ERROR)


def _labelled(text: str, labels: Mapping[str, str]) -> str:
    """Replace the files of cells in a traceback by their labels, and remove the frames of jupyter-dist.

    A message can contain a traceback, as a DataLoader's does.
    """
    if _PLACE in text:
        text = _OUR_FRAMES.sub("", text)
    for file, label in labels.items():
        text = text.replace(f'File "{file}"', f'File "{label}"')
    return text


def _shown(report: traceback.TracebackException, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Remove the frames of jupyter-dist from a traceback and label its cells, causes included."""
    for part in _chain(report, set()):
        kept = []
        for frame in part.stack:
            if _is_ours(frame.filename):
                continue
            file = frame.filename
            source = frame.line  # read now: the label below is not a file
            frame.filename = labels.get(file, file)
            kept.append(frame)
            if part is report:
                yield {
                    "file": file,
                    "label": frame.filename,
                    "line": frame.lineno,
                    "function": frame.name,
                    "source": source,
                }
        part.stack[:] = kept


def _chain(report: traceback.TracebackException, seen: set[int]) -> Iterable[traceback.TracebackException]:
    if id(report) in seen:
        return
    seen.add(id(report))
    yield report
    for other in (report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())):
        if other is not None:
            yield from _chain(other, seen)


def _is_ours(filename: str) -> bool:
    return filename.startswith(os.path.dirname(os.path.dirname(__file__)) + os.sep)
