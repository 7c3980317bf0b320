"""The template: a process that has imported what the notebook imports, and forks supervisors.

The template runs only imports. After one matrix product with several threads, or one backward(), each fork
would hang. Therefore the kernel is never the parent. The template refuses to fork if an import has
started a thread or initialised CUDA.

The kernel and the template communicate over a socket pair, which no other process can access. The template
ends with the kernel, or after ten idle minutes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import DistError
from ..folder import RunFolder
from ..processes import forking
from ..processes.umask import current_umask
from ..worker.boot import QUIET
from .messages import is_readable, receive, send
from .preload import NO_THREADS, expand
from .spare_supervisor import SpareSupervisor, fork_supervisor

__all__ = ["close", "import_environ", "launch", "observe", "prepare", "wanted"]

_LOOK_S = 1.0
_REFILL_S = 0.1
"""Pause after a request until the next supervisor is forked in advance: the ranks need the cores first."""
_FIRST_RANKS, _MOST_RANKS = 2, 8
"""How many ranks are forked in advance: before the first run, and at most. Later: as in the last run."""
_IDLE_S = 600.0
_REPLY_S = 60.0
"""Timeout of the imports. After it the run starts cold."""
_SIGN_S = 2.0
"""Seconds between two updates of a run that waits for imports: less than `reader._GRACE_S`."""

_READ_AT_IMPORT = (
    "CUDA_HOME CUDA_MODULE_LOADING GOTO_ JAX_ KERAS_ KMP_ LD_ MKL_ NUMBA_ NUMEXPR_ NVIDIA_TF32_ OMP_ "
    "OPENBLAS_ PYTHON PYTORCH_ TF_ TORCH_ TRANSFORMERS_ XLA_"
).split()
"""Prefixes of variables that libraries read at import. Another value needs another template."""

_template: _Template | None = None
_poisoned: dict[str, str] = {}
"""Modules that this session cannot preload, and why."""


class _Template:
    """The kernel's side of a running template process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.owner = os.getpid()
        self.environ = import_environ(os.environ)
        self.asked: set[str] = set()
        self._unanswered = 0
        env = {**QUIET, **os.environ, **NO_THREADS}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_dist.launch.template", str(theirs.fileno())],
                env=env,
                cwd=Path(__file__).parents[2],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.settimeout(_REPLY_S)
        self._socket = ours

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def preload(self, modules: Sequence[str]) -> None:
        """Ask the template to import these modules. Returns at once."""
        new = [name for name in modules if name not in self.asked and name not in _poisoned]
        if new:
            self.asked.update(new)
            self._send({"import": new, "path": [path for path in sys.path if path]})

    def launch(self, folder: RunFolder, env: Mapping[str, str], why_cold: str | None, ranks: int) -> None:
        """Let a fork of the template supervise it. Blocks. Raises OSError, ValueError or TimeoutError."""
        told = {"launch": str(folder.path), "env": dict(env), "umask": current_umask(), "cold": why_cold}
        self._send({**told, "ranks": 0 if why_cold else ranks})
        while True:
            self._await(folder)
            answer = self._receive()
            self._unanswered -= 1
            _poisoned.update(answer.get("poisoned", {}))
            if answer.get("refused"):
                raise ValueError(answer["refused"])
            if "pid" in answer:
                return

    def _await(self, folder: RunFolder) -> None:
        """Wait for an answer, and mark the run as pending meanwhile. Raises TimeoutError."""
        until = time.monotonic() + _REPLY_S
        while not is_readable(self._socket, _SIGN_S):
            folder.still_pending()
            if time.monotonic() > until:
                raise TimeoutError("timed out")
        folder.still_pending()

    def _send(self, message: Mapping[str, Any]) -> None:
        send(self._socket, message)
        self._unanswered += 1

    def _receive(self) -> dict[str, Any]:
        answer = receive(self._socket)
        if answer is None:
            raise ConnectionError("the template process has ended")
        return answer

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
            return
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)


def import_environ(environ: Mapping[str, str]) -> dict[str, str]:
    read = {name: value for name, value in environ.items() if name.startswith(tuple(_READ_AT_IMPORT))}
    return {**QUIET, **read}


def _current() -> _Template:
    """Return this process's template. Starts one if there is none, or if its environment does not match."""
    global _template
    if _template is not None and (
        _template.owner != os.getpid()
        or not _template.alive()
        or _template.environ != import_environ(os.environ)
    ):
        if _template.owner == os.getpid():
            _template.close()
        _template = None
    if _template is None:
        _template = _Template()
    return _template


def close() -> None:
    """End the template, if there is one. Runs continue."""
    global _template
    if _template is not None and _template.owner == os.getpid():
        _template.close()
    _template = None


def wanted() -> bool:
    """Return whether this process is a notebook or an IPython session, where a second run is likely."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None and hasattr(os, "fork")


def observe(namespace: Mapping[str, Any]) -> None:
    """Preload in the background the modules that this namespace has imported. Returns at once."""
    wanted = sorted({name for value in list(namespace.values()) if (name := _home(value)) is not None})
    template = _current()
    template.preload(expand(wanted))


def prepare(modules: Sequence[str]) -> None:
    """Import these modules in the background, for later runs. Returns at once."""
    _current().preload(expand(modules))


def _home(value: Any) -> str | None:
    """Return the name of the installed module that a value is or belongs to; None for the user's own."""
    name: Any
    if isinstance(value, ModuleType):
        name = value.__name__
    elif isinstance(value, type) or callable(value):
        name = getattr(value, "__module__", None)
    else:
        name = type(value).__module__
    module = sys.modules.get(name) if isinstance(name, str) else None
    file = getattr(module, "__file__", None)
    if name is None or not isinstance(file, str) or name.split(".")[0] in _NOT_ON_RANKS:
        return None
    return str(name) if "site-packages" in file or "dist-packages" in file else None


_NOT_ON_RANKS = frozenset(
    {"IPython", "ipykernel", "ipywidgets", "jupyter_dist", "matplotlib_inline", "traitlets"}
)


def launch(
    folder: RunFolder,
    env: Mapping[str, str],
    modules: Sequence[str],
    why_cold: str | None = None,
    client: Sequence[str] = (),
    ranks: int = 0,
) -> str | None:
    """Start the run's supervisor as a fork of the template. Returns None, or why this was impossible.

    `why_cold`: why the ranks are no forks, if the backend starts them in another way.
    `client`: further modules to import (the backend's `Capabilities.client`). `ranks`: their number.
    """
    changed = _changed_for_run(env)
    if changed:
        return f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'} read at import"
    for _ in range(2):  # the second try omits the modules that poisoned the first
        try:
            template = _current()
            template.preload([*expand(modules), *client])
            template.launch(folder, env, why_cold, ranks)
            return None
        except (OSError, ValueError) as error:
            why = str(error) or type(error).__name__
            close()
        except BaseException:
            close()  # an interrupt may have left half an answer in the socket
            raise
    return why


def _changed_for_run(env: Mapping[str, str]) -> list[str]:
    ours, theirs = import_environ(os.environ), import_environ(env)
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def _serve(sock: socket.socket) -> None:
    """Import and fork on request, as the template process, until the kernel is gone or idle. Blocks."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
    from .. import backends
    from ..supervise import guard, supervisor  # noqa: F401  # each supervisor and rank needs these
    from ..supervise.backend_process import server  # noqa: F401
    from ..worker import __main__, api, autolog  # noqa: F401

    # Only built-in backends: another package's import might start threads, which would end all warm starts.
    for name in backends.built_in():
        with contextlib.suppress(DistError):
            backends.declared(name)

    kernel = os.getppid()
    _ready(sock)
    spare: SpareSupervisor | None = None
    ranks = _FIRST_RANKS
    used = time.monotonic()
    pause_s = _REFILL_S
    while os.getppid() == kernel and time.monotonic() - used < _IDLE_S:
        if not is_readable(sock, pause_s):
            spare = SpareSupervisor(ranks) if spare is None and _unsafe() is None else spare
            pause_s = _LOOK_S
            continue
        message = receive(sock)
        if message is None:
            return
        if "import" in message:
            if spare is not None:
                spare.close()  # it lacks these imports
                spare = None
            answer = _import(message["import"], message["path"])
            _ready(sock)
        else:
            answer = _launch(spare, message)
            spare, ranks = None, min(message["ranks"], _MOST_RANKS)
        pause_s = _REFILL_S
        send(sock, answer)
        used = time.monotonic()
        if "poisoned" in answer or "refused" in answer:
            return


def _launch(spare: SpareSupervisor | None, message: Mapping[str, Any]) -> dict[str, Any]:
    why = _unsafe()
    if why is not None:
        return {"refused": why}
    if spare is not None:
        with contextlib.suppress(OSError):  # somebody has killed it
            return {"pid": spare.launch(message)}
        spare.close()
    return {"pid": fork_supervisor(message)}


def _ready(sock: socket.socket) -> None:
    from ..worker import autolog

    autolog.prepare()
    gc.collect()
    gc.freeze()  # so that a garbage collection in a fork does not copy the pages
    forking.mark_warm({sock.fileno()})


def _import(names: Sequence[str], path: Sequence[str]) -> dict[str, Any]:
    sys.path[:] = list(dict.fromkeys([*sys.path, *path]))
    failed = {}
    gc.disable()  # a fifth of TensorFlow's import otherwise, and modules leave nothing to collect
    try:
        for name in names:
            try:
                importlib.import_module(name)
            except BaseException as error:
                failed[name] = repr(error)
            why = _unsafe()
            if why is not None:
                return {"poisoned": {name: why}}
    finally:
        gc.enable()
    return {"failed": failed}


def _unsafe() -> str | None:
    count = forking.threads()
    if count > 1:
        return f"an import has started {count - 1} threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "an import has initialised CUDA"
    return None


if __name__ == "__main__":
    # `__main__` is another module object than `jupyter_dist.launch.template`, so import the latter.
    importlib.import_module("jupyter_dist.launch.template")._serve(socket.socket(fileno=int(sys.argv[1])))
