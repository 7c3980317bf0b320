"""A kernel that is a fork is as an ordinary one, apart from its modules: what cells see, and how it ends."""

from __future__ import annotations

import ast
import contextlib
import signal
from pathlib import Path

import pytest

from tests.conftest import Kernel
from tests.rigs import kernel_forks
from tests.rigs.stopwatch import WaitFor

SEES = """
import os, random, signal, sys, threading
import numpy
seen = {
    "path": sys.path,
    "argv": sys.argv[:2],
    "folder": os.getcwd(),
    "main": sorted(vars(sys.modules["__main__"])),
    "own session": os.getsid(0) == os.getpid(),
    "own parent": os.environ["JPY_PARENT_PID"] == str(os.getppid()),
    "environment": {k: v for k, v in os.environ.items() if k != "JPY_PARENT_PID"},
    "flags": tuple(sys.flags),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "threads": sorted(thread.name.rstrip("0123456789") for thread in threading.enumerate()),
}
drawn = random.random(), numpy.random.random()
print((seen, drawn))
"""


def test_it_sees_what_an_ordinary_kernel_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    with contextlib.ExitStack() as stack:
        for ordinary in (True, False, False):
            if ordinary:
                with monkeypatch.context() as patch:
                    patch.setattr(kernel_forks, "forked", contextlib.nullcontext)
                    kernel = Kernel(tmp_path)
            else:
                kernel = Kernel(tmp_path)
            stack.callback(kernel.close)
            found.append(ast.literal_eval(kernel.run(SEES).stdout))
    (ordinary_sees, _), (fork_sees, one), (_, another) = found
    assert fork_sees == ordinary_sees
    assert one != another


def test_it_runs_exit_handlers(kernel: Kernel, tmp_path: Path) -> None:
    process = kernel.manager.provisioner.process  # type: ignore[union-attr]
    assert isinstance(process, kernel_forks.Fork)
    kernel.start("import atexit, pathlib\natexit.register(pathlib.Path('ended').touch)\nexit()")
    assert process.wait() == 0
    assert (tmp_path / "ended").exists()


def test_how_it_has_ended_is_known(kernel: Kernel, wait_for: WaitFor) -> None:
    process = kernel.manager.provisioner.process  # type: ignore[union-attr]
    assert isinstance(process, kernel_forks.Fork)
    assert process.poll() is None
    kernel.start("import os\nos._exit(7)")
    assert process.wait() == 7
    kernel.restart()
    process = kernel.manager.provisioner.process  # type: ignore[union-attr]
    kernel.kill()
    assert process.wait() == -signal.SIGKILL
