"""Kernels that are forks of one process, which has imported what every kernel of the tests imports first.

Such a kernel is ipykernel as it is, in a session, a folder and an environment of its own. Its start needs a
third of the CPU time. One difference remains: jupyter_dist is imported already. So what its import does in a
kernel is a test for an ordinary process. `with forked(): manager.start_kernel()` in this process; a Jupyter
server calls `install()` in its configuration.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from jupyter_dist.launch.messages import is_readable, receive, send
from jupyter_dist.launch.template import import_environ

__all__ = ["Fork", "forked", "install"]

_LAUNCHER = "ipykernel_launcher"
_LOOK_S = 0.02
_OWNER_S = 1.0
_NOWHERE = "/"
"""The folder for which "." stands in PYTHONPATH until a fork is in its own."""
_parents: dict[str, _Parent] = {}
"""By what libraries have read of the environment when they were imported."""


class _Parent:
    """This process's side of the process whose forks are kernels. It ends with this process."""

    def __init__(self, env: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=env,
                cwd=_NOWHERE,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self._close, os.getpid())

    def _close(self, owner: int) -> None:
        if os.getpid() != owner:  # a fork of this process
            return
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def alive(self) -> bool:
        return self._socket.fileno() >= 0 and self._process.poll() is None

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a message. Raises OSError if the process has ended."""
        with self._lock:
            try:
                send(self._socket, message)
                answer = receive(self._socket)
            except BaseException:
                # An interrupt may have left half an answer in the socket. The process ends with the socket.
                self._socket.close()
                raise
        if answer is None:
            raise ConnectionError("the process whose forks are kernels has ended")
        return answer


class Fork:
    """A kernel's process, used as `subprocess.Popen` is."""

    stdin = stdout = stderr = None

    def __init__(self, parent: _Parent, arguments: list[str], env: dict[str, str], cwd: str) -> None:
        self._parent = parent
        self.pid = int(parent.ask({"start": arguments, "env": env, "cwd": cwd})["pid"])
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                self.returncode = self._parent.ask({"poll": self.pid})["code"]
            except OSError:
                self.returncode = 1  # a kernel ends itself, with this code, once its parent has ended
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(_LAUNCHER, timeout or 0.0)
            time.sleep(_LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        # Nobody else takes the pid as long as nobody has asked how the process has ended.
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def install() -> None:
    """Make each kernel of Python that this process starts a fork from now on."""
    place = _place()
    ordinary = place.launch_kernel

    def launch(cmd: list[str], **named: Any) -> Any:
        if _LAUNCHER not in cmd:
            return ordinary(cmd, **named)
        env = dict(named.get("env") or os.environ)
        key = str(sorted(import_environ(env).items()))
        if key not in _parents or not _parents[key].alive():
            _parents[key] = _Parent(env)
        arguments = cmd[cmd.index(_LAUNCHER) + 1 :]
        return Fork(_parents[key], arguments, env, str(named.get("cwd") or os.getcwd()))

    place.launch_kernel = launch


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Kernels that are started meanwhile are forks."""
    place = _place()
    ordinary = place.launch_kernel
    install()
    try:
        yield
    finally:
        place.launch_kernel = ordinary


def _place() -> Any:
    """Return the module that starts kernels' processes, by the function `launch_kernel`."""
    return importlib.import_module("jupyter_client.provisioning.local_provisioner")


def _serve(asked: socket.socket) -> None:
    """Fork kernels, and say how they have ended, until the process that asks has ended."""
    owner = os.getppid()
    while os.getppid() == owner:  # its end closes the socket, unless a fork of it still has the socket too
        if not is_readable(asked, _OWNER_S):
            continue
        if (message := receive(asked)) is None:
            return
        if "poll" in message:
            pid, status = os.waitpid(message["poll"], os.WNOHANG)
            send(asked, {"code": os.waitstatus_to_exitcode(status) if pid else None})
        elif os.fork() == 0:
            _become_kernel(asked, message)
            return  # and not os._exit(): a kernel that ends in order runs exit handlers


def _become_kernel(asked: socket.socket, message: dict[str, Any]) -> None:
    from jupyter_dist.processes import forking
    from jupyter_dist.worker import random_state

    os.setsid()
    send(asked, {"pid": os.getpid()})  # only now do signals reach the kernel's process group
    asked.close()
    os.chdir(message["cwd"])
    forking.adopt({**message["env"], "JPY_PARENT_PID": str(os.getppid())})
    random_state.reseed()
    sys.path[:] = [message["cwd"] if entry == _NOWHERE else entry for entry in sys.path]
    launcher = sys.modules[_LAUNCHER].__file__
    sys.argv[:] = [str(launcher), *message["start"]]
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    import gc

    del sys.path[0]  # this file's folder
    # ipykernel reads it when it is imported: a kernel ends with this process, which is its parent.
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
    importlib.import_module(_LAUNCHER)
    from ipykernel import ipkernel, kernelapp, zmqshell  # noqa: F401

    import jupyter_dist.magics  # noqa: F401

    gc.freeze()  # else each fork copies every page that the collector looks at
    _serve(socket.socket(fileno=int(sys.argv[1])))
