"""A process that has imported much and forks kernels, or ranks, as fast as a notebook is read.

`python -m tests.rigs.random_notebooks.forked_kernels ROLE MODULE…` answers each line of its input, a JSON
object, with a line: what the fork's end was. Roles: `kernels` (IPython's own shell without its history),
`plain kernels` (they run the cells alone, and need no library), `ranks` (what a template forks).
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import importlib
import json
import linecache
import os
import select
import signal
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_dist.errors import CaptureError
from jupyter_dist.launch import preload

__all__ = ["main"]

_WITHIN_S = 60


def main(role: str, modules: list[str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in preload.expand(modules):
        with contextlib.suppress(ImportError):  # it names some that not every version has
            importlib.import_module(name)
    start = {"kernels": _kernels, "plain kernels": _plain_kernels, "ranks": _ranks}[role]()
    for line in sys.stdin:
        print(json.dumps(_end(start(json.loads(line)))), file=answers, flush=True)


def _end(pid: int) -> str:
    """Wait for a fork; how it has ended."""
    there = os.pidfd_open(pid)
    try:
        if not select.select([there], [], [], _WITHIN_S)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"did not end within {_WITHIN_S} s"
    finally:
        os.close(there)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "" if code == 0 else f"exit code {code}"


def _ranks() -> Callable[[dict[str, Any]], int]:
    from jupyter_dist.processes import forking

    forking.mark_warm({0})

    def start(asked: dict[str, Any]) -> int:
        env = {**asked["env"], "JUPYTER_DIST_PARENT": str(os.getpid())}
        return forking.fork_rank(env, os.devnull)

    return start


def _kernels() -> Callable[[dict[str, Any]], int]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    import jupyter_dist

    config = Config()
    config.HistoryManager.enabled = False  # it has a thread
    shell = InteractiveShell.instance(config=config)
    jupyter_dist.load_ipython_extension(shell)
    # What prepares a warm start after each cell: here nothing is started.
    jupyter_dist.magics.__dict__["_Preloader"].__call__ = lambda *_: None

    return _forking(lambda folder, asked: _be_kernel(shell, folder, asked))


def _plain_kernels() -> Callable[[dict[str, Any]], int]:
    """Kernels of a Python without libraries: they run the cells, and capture nothing."""
    return _forking(_be_plain_kernel)


def _forking(play: Callable[[Path, dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any]], int]:
    def start(asked: dict[str, Any]) -> int:
        pid = os.fork()
        if pid:
            return pid
        folder = Path(asked["folder"])
        try:
            log = os.open(folder / "kernel.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            found = play(folder, asked)
            (folder / "kernel.json").write_text(json.dumps(found))
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)

    return start


def _be_plain_kernel(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    from jupyter_dist.worker.payload import HERE
    from jupyter_dist.worker.rank.cell import _run_cell

    os.chdir(folder / "notebook")
    sys.path.insert(0, "")
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    seen, flags = None, 0
    for number, text in enumerate([*asked["cells"], asked["cell"]]):
        file = f"<cell {number}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        try:
            flags |= _futures(text)
            header = {"source": text, "filename": file, "flags": flags, "python": HERE.python}
            seen = _run_cell(header, vars(main))
        except Exception:
            return {"broken": traceback.format_exc()}
    return {"seen": seen}


def _futures(text: str) -> int:
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in nodes if node.module == "__future__" for alias in node.names]
    return functools.reduce(lambda bits, name: bits | getattr(__future__, name).compiler_flag, names, 0)


def _be_kernel(shell: Any, folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Run the cells, capture the distributed one, then run that one here as well."""
    from jupyter_dist.capture.payload_builder import capture_cell
    from jupyter_dist.start.origin import origin_in

    cells, cell = asked["cells"], asked["cell"]
    os.chdir(folder / "notebook")
    sys.path.insert(0, "")
    for text in cells:
        failure = _failure(shell.run_cell(text, store_history=True))
        if failure is not None:
            return {"broken": failure}
    shell.execution_count += 1
    origin = origin_in(shell)
    found: dict[str, Any] = {"environ": dict(os.environ)}
    try:
        payload = capture_cell(
            f"\n{cell}",
            shell.user_ns,
            flags=origin.flags,
            argv=origin.argv,
            here=asked["here"],
            other_python=not asked["here"],
            **origin.for_capture(),
        )
        found["notes"] = list(payload.notes)
        payload.write(folder / "run" / "payload.pkl")
        for shipped in payload.modules:
            target = folder / "run" / "modules" / shipped.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(shipped.data)
    except CaptureError as error:
        found["refused"] = str(error)
    except Exception:
        found["failed"] = traceback.format_exc()
    result = shell.run_cell(cell, store_history=True)
    failure = _failure(result)
    return found | ({"seen": result.result} if failure is None else {"broken": failure})


def _failure(result: Any) -> str | None:
    error = result.error_before_exec or result.error_in_exec
    return None if error is None else "".join(traceback.format_exception(error))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
