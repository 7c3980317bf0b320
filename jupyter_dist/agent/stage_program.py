"""The stage program: sets up a run's folder on a host and connects to its agent. Sent as text to a Python.

The program imports nothing of the package, which is not on the host yet. It answers on stdout with a line
that contains the word in its argument. The word separates the answer from a login's output. Then both sides
exchange frames (frames.py): first this program with the driver, then the agent with the driver.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import shutil
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["OLDEST_PYTHON", "Refused", "main", "not_set_up", "prepare", "remove"]

OLDEST_PYTHON = (3, 9)  # of a rank: the code in `agent` and `worker` runs on it
_LENGTHS = struct.Struct(">IQ")
_KEEP_S = 14 * 86400
_READY_TIMEOUT_S = 60
_RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4,8}(-t\d{1,6})?")
_MARK = ".jupyter-dist"
"""A file that only this program writes into a run's folder on a host. Users' own folders do not have it."""
_Fetch = Callable[[str, "list[str]"], None]
_Answer = Callable[["dict[str, Any]"], None]
_START = """#!/bin/sh
# Start a rank of the run, or what is named, as this host's stage says.
me=$(uname -n)
for stage in "${0%/*}"/*/; do
  if [ "$(cat "${stage}host" 2>/dev/null)" = "$me" ] && [ -f "${stage}start" ]; then
    exec /bin/sh "${stage}start" "$@"
  fi
done
echo "no stage of host $me in ${0%/*}" >&2
exit 127
"""


class Refused(Exception):
    """A failed set-up, with its reason for the user. `final`: a retry would fail too."""

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def main(word: str) -> None:
    """Serve one connection, which begins with the driver's request on stdin. Blocks until its end."""
    login_umask = os.umask(0o077)
    _write_all(1, f"{word} ok\n".encode())
    wish = {**_read_head()[0], "umask": login_umask}
    try:
        agent = prepare(wish, _receive_files, _answer)
    except Refused as error:
        _answer({"is": "refused", "why": str(error), "final": error.final})
    except OSError as error:
        _answer({"is": "refused", "why": not_set_up(error)})
    else:
        _pump(agent)


def not_set_up(error: OSError) -> str:
    """Describe for the user why `prepare` failed."""
    name = f" ({error.filename})" if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    cure = f"{'free some space there or ' if full else ''}name another folder with --remote-dir"
    return f"its folder cannot be set up: {error.strerror or error}{name}: {cure}"


def prepare(wish: dict[str, Any], fetch: _Fetch, answer: _Answer) -> socket.socket:
    """Return a socket to the agent. Set up the stage first if the request asks for it.

    Raises Refused or OSError.
    `fetch` copies files, by their names in the request, into the stage folder. `answer` sends to the driver.
    """
    _check_version(wish)
    root = os.path.join(os.path.expanduser(wish["dir"]), wish["run"])
    if not os.path.isabs(root):
        root = os.path.abspath(root)
    stage = os.path.join(root, str(wish["node"]))
    mode = wish["mode"]
    agent = _connect(stage)
    # This checks the code, not the folder: `remove` may leave the ranks' output in the folder.
    if agent is None and mode == "resume" and not os.path.isdir(os.path.join(stage, "code")):
        raise Refused(f"the run's folder {stage!r} no longer exists", final=True)
    if agent is None:
        if mode == "stage":
            _receive(wish, root, stage, fetch)
        try:
            agent = _start_agent(stage, wish, answer)
        except Refused:
            if mode == "stage":
                remove(stage)
            raise
    else:
        answer({"is": "connected", "stage": stage})
    return agent


def _check_version(wish: dict[str, Any]) -> None:
    """Check the Python version. `wish["other_python"]` is why another one will not do, or an empty text."""
    own, wanted = f"{sys.version_info[0]}.{sys.version_info[1]}", wish.get("version")
    if wanted in (None, own):
        return
    oldest = f"Ranks need Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer. Run it with Python {wanted}"
    why = oldest if sys.version_info[:2] < OLDEST_PYTHON else wish["other_python"]
    if why:
        has = f"its Python is {own} ({sys.executable}) and the notebook's is {wanted}"
        raise Refused(f"{has}. {why}", final=True)


def _connect(stage: str) -> socket.socket | None:
    """Return a connection to this stage's agent; None if there is no agent."""
    agent = socket.socket(socket.AF_UNIX)
    try:
        # The path of a socket must be short, so it is relative to the folder.
        os.chdir(stage)
        agent.connect("agent.sock")
    except OSError:
        agent.close()
        return None
    return agent


def _receive(wish: dict[str, Any], root: str, stage: str, fetch: _Fetch) -> None:
    fresh = not os.path.exists(stage)
    try:
        _make_folders(root, stage)
        with open(os.path.join(root, _MARK), "w") as file:
            file.write(os.path.basename(root) + "\n")
        _drop_old(os.path.dirname(root), os.path.basename(root))
        missing = _missing(wish, stage)
    except BaseException:
        if fresh:
            remove(stage)  # an incomplete stage must not fill a full disk
        raise
    try:
        fetch(stage, missing)
        for name in set(missing).intersection(wish.get("kept", ())):
            os.utime(os.path.join(stage, name), (wish["kept"][name],) * 2)
    except BaseException:
        # No agent would ever remove an incomplete stage.
        remove(stage)
        raise
    with open(os.path.join(stage, "host"), "w") as file:
        file.write(os.uname().nodename + "\n")
    start = os.path.join(root, "start")
    with open(f"{start}.{os.getpid()}", "w") as file:
        file.write(_START)
        os.fchmod(file.fileno(), 0o700)
    os.replace(f"{start}.{os.getpid()}", start)


def _missing(wish: dict[str, Any], stage: str) -> list[str]:
    """Return the files that are missing in the stage. Raises Refused if the disk is too full for them."""
    sizes = {name: size for name, size, *_ in wish["files"]}
    here = {name: _size(os.path.join(stage, name)) for name in sizes}
    kept = wish.get("kept", ())  # checkpoints: a file on this host may be newer
    missing = [n for n, size in sizes.items() if here[n] < 0 or (here[n] != size and n not in kept)]
    needed = sum(sizes[name] for name in missing)
    free = shutil.disk_usage(stage).free
    if needed + (1 << 20) > free:
        raise Refused(
            f"{stage!r} has {free / 1e6:,.1f} MB free, and the run needs {needed / 1e6 + 1:,.1f} MB. "
            "Free some space there, or name another folder with --remote-dir"
        )
    return missing


def _receive_files(stage: str, missing: list[str]) -> None:
    """Ask the driver for files, and read them from stdin."""
    _answer({"is": "send", "files": missing})
    while True:
        header, size = _read_head()
        if "path" not in header:
            return
        _receive_file(os.path.join(stage, header["path"]), size)


def _receive_file(path: str, size: int) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path + ".part", "wb") as file:
        while size:
            data = os.read(0, min(size, 1 << 20))
            if not data:
                raise SystemExit(1)  # the driver disconnected; it will start again
            file.write(data)
            size -= len(data)
    os.replace(path + ".part", path)


def _make_folders(root: str, stage: str) -> None:
    os.makedirs(os.path.dirname(root), exist_ok=True)
    for folder in (root, stage):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        info = os.lstat(folder)
        if info.st_uid != os.geteuid() or os.path.islink(folder):
            raise Refused(f"{folder!r} belongs to somebody else, or is a link: use another --remote-dir")
        os.chmod(folder, 0o700)
    for name in ("code", "run", "run/attempts", "work"):
        os.makedirs(os.path.join(stage, name), mode=0o700, exist_ok=True)


def _start_agent(stage: str, wish: dict[str, Any], answer: _Answer) -> socket.socket:
    """Start the agent, detached, and connect to it."""
    settings = {**wish, "files": None}
    try:
        with open(os.path.join(stage, "agent.json"), "w") as file:
            json.dump(settings, file)
    except OSError:
        if wish["mode"] != "resume":
            raise
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _become_agent(stage, write)
        finally:
            os._exit(71)
    os.close(write)
    with open(read, "rb", 0) as ready:
        os.waitpid(child, 0)
        if not select.select([ready], [], [], _READY_TIMEOUT_S)[0] or ready.read(1) != b"+":
            raise Refused(f"its agent did not start: {_end_of(os.path.join(stage, 'agent.log'))}")
    agent = _connect(stage)
    if agent is None:
        raise Refused(f"its agent ended at once: {_end_of(os.path.join(stage, 'agent.log'))}")
    answer({"is": "connected", "stage": stage})
    return agent


def _become_agent(stage: str, ready: int) -> None:
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        log = os.open(os.path.join(stage, "agent.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        log = null
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    try:
        os.set_inheritable(ready, True)
        if os.environ.get("JUPYTER_DIST_LIFELINE"):
            os.set_inheritable(int(os.environ["JUPYTER_DIST_LIFELINE"]), True)
        os.chdir(os.path.join(stage, "code"))
        env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        env["JUPYTER_DIST_STAGE"] = stage
        os.execve(sys.executable, [sys.executable, "-m", "jupyter_dist.agent", stage, str(ready)], env)
    except Exception as error:
        os.write(2, f"it cannot be started: {error!r}\n".encode())  # `_start_agent` reads this
        raise


def _end_of(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()[-1000:].strip() or "it said nothing"
    except OSError as error:
        return f"it left no log ({error.strerror})"


def remove(stage: str, *, keep_run: bool = False) -> None:
    """Remove a stage folder. After the last stage, also remove the run's folder on this host.
    `keep_run`: remove only the code and the values that the driver sent, and leave the ranks' output."""
    os.chdir("/")
    root = os.path.dirname(stage)
    if keep_run:
        for entry in os.scandir(stage):
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ("run", "cells"):
                    shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        return
    going = f"{stage}.going"
    # The rename removes the stage in one step: a driver that connects meanwhile finds all of it, or nothing.
    with contextlib.suppress(OSError):
        os.rename(stage, going)
    for path in (going, stage):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        if set(os.listdir(root)) <= {"start", _MARK}:
            for name in os.listdir(root):
                os.unlink(os.path.join(root, name))
        os.rmdir(root)


def _drop_old(folder: str, run: str) -> None:
    """Remove the folders of runs that were never cleaned up, two weeks after their last use.

    The folder may be the user's own: this removes only folders with a run's id as name and our mark.
    """
    for name in os.listdir(folder):
        old = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if name == run or not _RUN.fullmatch(name) or not _is_ours(old, name):
                continue
            stages = [os.path.join(old, node) for node in os.listdir(old) if node.isdigit()]
            newest = max(os.stat(path).st_mtime for path in (old, *stages))
            if time.time() - newest > _KEEP_S and not any(map(_lives, stages)):
                shutil.rmtree(old, ignore_errors=True)


def _is_ours(folder: str, run: str) -> bool:
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        return False
    with open(os.path.join(folder, _MARK)) as file:
        return file.read() == run + "\n"


def _lives(stage: str) -> bool:
    agent = _connect(stage)
    if agent is not None:
        agent.close()
    return agent is not None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _read_head() -> tuple[dict[str, Any], int]:
    """Return the next frame's header, and the number of bytes that follow it."""
    head, body = _LENGTHS.unpack(_read_exactly(_LENGTHS.size))
    header: dict[str, Any] = json.loads(_read_exactly(head))
    return header, body


def _read_exactly(size: int) -> bytes:
    parts = []
    while size:
        data = os.read(0, size)
        if not data:
            raise SystemExit(1)
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _answer(header: dict[str, Any]) -> None:
    data = json.dumps(header).encode()
    _write_all(1, _LENGTHS.pack(len(data), 0) + data)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _pump(agent: socket.socket) -> None:
    """Copy between this program's streams and the agent until either side ends."""
    there = agent.fileno()
    waiting = {1: b"", there: b""}
    come_from = {1: there, there: 0}
    for fd in (0, 1, there):
        os.set_blocking(fd, False)
    while True:
        readable = [come_from[target] for target, data in waiting.items() if not data]
        writable = [target for target, data in waiting.items() if data]
        can_read, can_write, _ = select.select(readable, writable, [])
        for target in can_write:
            try:
                done = os.write(target, waiting[target])
            except BlockingIOError:
                continue
            except OSError:
                return
            waiting[target] = waiting[target][done:]
        for target, source in come_from.items():
            if source in can_read:
                try:
                    data = os.read(source, 1 << 18)
                except BlockingIOError:
                    continue
                except OSError:
                    return
                if not data:
                    return
                waiting[target] = data


if __name__ == "__main__":
    main(sys.argv[1])
