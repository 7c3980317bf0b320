"""Execution of the payload in a fresh `__main__`, and the record of how it ended."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import linecache
import os
import sys
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .. import boot, debugger, layout, payload, steps
from .. import settings as notebook_settings
from ..api import trial_parameters, trial_pause
from ..boot import Terminated
from ..gpus import by_local_rank
from ..output import events
from ..output.result_outline import outline
from ..pickling.unpickling import syntax_of
from ..tf_config import task
from . import (
    collectives,
    error_report,
    ignored_exceptions,
    main_snapshot,
    result_digest,
    script_names,
    search_path,
    shipped_modules,
    spawned_process,
)

if TYPE_CHECKING:  # a plain rank starts without the modules of sessions
    from ..session.kept_names import KeptNames

__all__ = ["compile_ahead", "run"]

_OLDEST_FORMAT, _OLDEST_IN_SESSION = 1, 2
_TRIED_BYTES = 1_000_000
"""The size up to which a rank unpickles its result to see whether the notebook can."""


def run(run_folder: Path, rank_folder: Path, kept: KeptNames | None = None) -> tuple[int, bool]:
    """Run the cell. Returns the exit code and whether the end is orderly.

    `kept`: the `__main__` of a session's rank, in which the cell runs. By default it runs in a new one.

    Writes `result.pkl` and a result event, or `error.json` and the traceback in the log. A process that the
    cell has forked may return from this function, too. Such a process only writes its traceback to the log.
    """
    labels: Mapping[str, str] = {}
    rank = os.getpid()
    ignored_exceptions.install()
    error_report.keep_room(rank_folder)
    try:
        header = payload.read_header(run_folder / layout.PAYLOAD)
        payload.check_format(header, oldest=_OLDEST_FORMAT if kept is None else _OLDEST_IN_SESSION)
        if kept is not None:
            header["labels"] = kept.all_labels(header["labels"])
        labels = header["labels"]
        value = None
        with contextlib.suppress(steps.Enough), debugger.Prompting(run_folder, rank_folder, header):
            value = _execute(run_folder, rank_folder, header, kept)
        if os.getpid() != rank:
            return 0, True
        _show_last(header, value)
        _write_last()
        if kept is None:  # a session's process group stays open for its next cell
            from .. import api

            api._finish(True)
        _keep_result(rank_folder, value, header)
        error_report.forget_room(rank_folder)
        return 0, True
    except Terminated as error:
        boot.hold_requests()
        _write_last()
        return int(error.code or 0), False
    except SystemExit as error:
        _write_last()
        code, orderly = _exit_code(error)
        if code and os.getpid() == rank:
            with contextlib.suppress(OSError):  # the exit code remains
                error_report.keep_exit(rank_folder, error, code, labels)
        return code, orderly
    except BaseException as error:
        debugger.failed(error)
        # Another rank can fail at the same moment, and its failure ends this rank.
        try:
            boot.hold_requests()
        except (Terminated, KeyboardInterrupt):
            boot.hold_requests()
        if os.getpid() != rank:
            error_report.print_error(error, labels)
            return 1, False
        _write_last()
        if kept is not None:
            kept.explain(error)
        error_report.keep_error(rank_folder, error, labels)
        with contextlib.suppress(Exception):  # the error of the cell is reported
            _show_open()
        return 1, False


def _write_last() -> None:
    """Write what only the end of the cell completes."""
    collectives.write(final=True)
    steps.write()
    steps.end_trace()


def _show_last(header: Mapping[str, Any], value: Any) -> None:
    """Show what a notebook shows at the end of a cell: open figures, and a last expression without a `;`."""
    from ..output import displays

    _show_open(value)
    if not header["source"].rstrip().endswith(";"):
        try:
            displays.show_result(value)
        except Exception as error:  # the value's own code raises, and the cell has already succeeded
            print(f"the last expression cannot be shown: {type(error).__name__}: {error}", file=sys.stderr)


def _exit_code(error: SystemExit) -> tuple[int, bool]:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF, not error.code
    print(error.code, file=sys.stderr)
    return 1, False


def _show_open(value: Any = None) -> None:
    """Show the final state of widgets and the open figures, also below an error, as a notebook does.

    Otherwise a session would show the figures below its next cell. `value`: of the last expression.
    """
    from ..output import displays, library_displays

    displays.renew_widgets()
    library_displays.close_figures(value)


def _execute(run_folder: Path, rank_folder: Path, header: Mapping[str, Any], kept: KeptNames | None) -> Any:
    modules = f"{run_folder}{os.sep}{layout.MODULES}"
    paths = search_path.own(header["sys_path"], header["python"])
    with_modules = os.path.isdir(modules)
    if kept is not None:
        kept.enter(modules if with_modules else None)
    if with_modules:
        paths = [modules, *paths]
        shipped_modules.install(modules, header["origins"])
    sys.path[:] = dict.fromkeys([*paths, *sys.path])
    sys.argv = list(header["argv"]) if kept is None else kept.new_arguments(header["argv"])
    for filename, text in payload.shown_texts(header).items():
        # A size of None as mtime prevents linecache from looking for the file.
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    why = header["legacy_keras"]
    if not why and header["legacy_keras_if_several"]:
        why = header["legacy_keras_if_several"] if task().is_of_several else ""
    if why:
        from .. import keras

        keras.arrange(why)
    if header["spanning_strategy"] or header["logical_cpus"] > 1:
        from ..pickling import deferred_variables

        deferred_variables.expect_strategy(spans=header["spanning_strategy"], cpus=header["logical_cpus"])
    from .. import autolog, hints
    from ..hints import losses, thread_errors

    hints.begin(header)
    losses.install()
    thread_errors.install()
    autolog.install()
    steps.begin(header.get("most_steps"))
    spawned_process.take_displays(header["filename"])
    main = types.ModuleType("__main__") if kept is None else kept.main
    main.__dict__["__builtins__"] = __builtins__
    of_script = script_names.of(header)
    main.__dict__.update(of_script if kept is None else kept.script_names(of_script))
    # `multiprocessing` sets the second name when it is imported, which can be long ago.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    main_snapshot.prepare(rank_folder / layout.MAIN, header["sources"])
    writer = events.writer()
    assert writer is not None
    # Loading the names may import the user's modules, which runs their code.
    writer.cell()
    if header["python"] != payload.HERE.python:
        writer.note(
            f"Ranks have Python {payload.HERE.python}, and the notebook has Python {header['python']}. Ranks "
            "compile the notebook's functions from their texts."
        )
    by_local_rank.look_at(run_folder / layout.PAYLOAD, Path(modules))
    settings = header.get("settings", {}) if kept is None else kept.new_settings(header)
    if settings:
        _ahead.clear()  # they may say which warnings of the compiler are errors
    notebook_settings.before_names(settings)
    load = payload.load if kept is None else kept.load
    try:
        names = load(run_folder / layout.PAYLOAD, main=main.__dict__, header=header)
    finally:  # if a library cannot load an object of another version, the note says why
        if header.get("libraries"):
            from . import library_versions

            differing = library_versions.note(header["libraries"])
            if differing is not None:
                writer.note(differing)
    for name in header["submodules"]:
        with contextlib.suppress(Exception):  # the code that needs the module reports the error
            importlib.import_module(name)
    objects = names.pop(notebook_settings.OBJECTS, {})
    if kept is not None:
        settings, objects = kept.new_objects(settings, objects)
    notebook_settings.after_names(settings, objects, int(rank_folder.name), main.__dict__)
    main_snapshot.hand_on(*((settings, objects) if kept is None else kept.all_settings))
    parameters = header.get("parameters", {})  # the parameters of a tuning run's trial
    trial_parameters.tell(parameters)
    trial_pause.tell(header.get("pause"))
    if header["kind"] == "call":
        code = getattr(names["fn"], "__code__", None)
        spawned_process.take_displays(getattr(code, "co_filename", None))
        if getattr(names["fn"], "__module__", None) == "__main__":
            # A process that the function starts can find it there.
            main.__dict__.setdefault(names["fn"].__name__, names["fn"])
        if kept is not None:
            kept.begin(header)
        return names["fn"](*names["args"], **{**names["kwargs"], **parameters})
    main.__dict__.update(names)
    main.__dict__.update(parameters)  # parameters override the notebook's values of these names
    if kept is not None:
        kept.begin(header)
    package = header.get("module", "").rpartition(".")[0]
    if package:  # `python -m` imports it first, too
        importlib.import_module(package)
    return _run_cell(header, main.__dict__)


_Code = tuple[str, str, int]
_ahead: dict[_Code, list[types.CodeType]] = {}
"""The code of a cell that a session expects, by its source, file name and flags."""


def compile_ahead(source: str, cell: str, flags: int) -> None:
    """Compile a cell that this rank will probably run next. Shows no error and no warning: the cell does.

    `cell`: the file name of the cell.
    """
    _ahead.clear()
    show, warned = warnings.showwarning, False

    def keep(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        nonlocal warned
        if filename == cell:
            warned = True
        else:  # of a thread that an earlier cell has left
            show(message, category, filename, lineno, file, line)

    # Not `catch_warnings`: libraries would show their warnings again that Python shows once.
    warnings.showwarning = keep
    try:
        with contextlib.suppress(Exception):
            codes = _compiled(source, cell, flags)
            if not warned:
                _ahead[source, cell, flags] = codes
    finally:
        warnings.showwarning = show


def _compiled(source: str, filename: str, flags: int) -> list[types.CodeType]:
    """Return the statements, and a last expression as a code of its own."""
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(source, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    codes = [compile(tree, filename, "exec", flags, dont_inherit=True)]
    if isinstance(last, ast.Expr):
        codes.append(compile(ast.Expression(last.value), filename, "eval", flags, dont_inherit=True))
    return codes


def _run_cell(header: Mapping[str, Any], namespace: dict[str, Any]) -> Any:
    """Run the statements. The value of a last expression is the rank's result."""
    cell = header["source"], header["filename"], header["flags"]
    codes = _ahead.pop(cell, None)
    if codes is None:
        with syntax_of(header["python"]):
            codes = _compiled(*cell)
    if not any(code.co_flags & inspect.CO_COROUTINE for code in codes):
        value = None
        for code in codes:
            value = eval(code, namespace)
        return value

    import asyncio  # a quarter of what a rank imports by itself, and few cells need it

    async def in_one_loop() -> Any:
        value = None
        for code in codes:
            value = eval(code, namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    return asyncio.run(in_one_loop())


def _keep_result(rank_folder: Path, value: Any, header: Mapping[str, Any]) -> None:
    writer = events.writer()
    assert writer is not None
    try:
        text = error_report.limited(repr(value))
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    trace = payload.Trace()
    try:
        size = payload.write_value(
            rank_folder / layout.RESULT,
            value,
            trace,
            payload.writer_of(header),
            prepared=error_report.room(rank_folder),  # a rank with a result has no error
        )
    except OSError:
        raise
    except Exception as error:
        kind, why = f"cannot pickle {type(value).__name__!r}", str(error)
        writer.result(text, None, why if why.startswith(kind) else f"{kind}: {why}", outline(value))
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
