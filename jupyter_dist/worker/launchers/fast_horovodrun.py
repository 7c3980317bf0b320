"""A faster start of `horovodrun`. `python -m` with this module accepts the same arguments.

At each start, horovodrun imports TensorFlow in a separate process, only to find out whether Horovod has Gloo
and MPI. This module reads the same fact from Horovod's libraries. The original horovodrun also puts the whole
environment into the command lines of its ranks. There `ps` shows it to everybody. Ranks of this module
inherit the environment anyway. All other code is horovodrun's own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import mmap
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import layout
from .horovodrun_rank import claim
from .rank_folder import FOLDER

__all__ = ["ANY_INTERFACE", "EXPORTED", "PLACES", "SENT", "START", "built_with", "main"]

EXPORTED = "JUPYTER_DIST_HOROVOD_EXPORTED"
"""Names, with commas, of variables that mpirun sends to other hosts over its own connection."""
SENT = "JUPYTER_DIST_HOROVOD_SENT"
"""Names, with commas, of variables that are sent to other hosts through the stdin of ssh.

The launcher has no connection of its own for them.
"""
ANY_INTERFACE = "JUPYTER_DIST_HOROVOD_ANY_INTERFACE"
"""Set if the interfaces have different names on other hosts. mpirun then finds the interfaces itself."""

PLACES = "JUPYTER_DIST_HOROVOD_PLACES"
"""The attempt's folder, in an elastic run over several hosts.

Each slot is a host for horovodrun, named HOST~…
"""
START = "JUPYTER_DIST_HOROVOD_START"
"""The command that starts a rank on its host, in such a run."""
_NOTIFY_S = 2.0

_MARKS = {"gloo": b"11GlooContext10Initialize", "mpi": b"\0libmpi"}
"""For gloo a function of its code, for mpi the name of a library that it needs."""
_SAY = """import os, shlex, sys
for name in sys.argv[1:]:
    sys.stdout.buffer.write(os.fsencode(f"export {name}={shlex.quote(os.environ[name])}\\n"))
"""


def built_with() -> frozenset[str]:
    """Return which of `gloo` and `mpi` Horovod was built with, as far as its libraries show."""
    found: set[str] = set()
    for library in _libraries():
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found |= {name for name, mark in _MARKS.items() if data.find(mark) >= 0}
    return frozenset(found)


def _libraries() -> Iterator[Path]:
    spec = importlib.util.find_spec("horovod")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(folder).glob("*/mpi_lib*.so"))[:1]


def main() -> Any:
    """Run the command `horovodrun`."""
    from horovod.runner import launch
    from horovod.runner.common.util import env

    for name in built_with():
        setattr(launch, f"{name}_built", lambda verbose=False: True)
    secret, mpi_run = env.is_exportable, launch.mpi_run
    exported, sent = _names(EXPORTED), _names(SENT)
    env.is_exportable = lambda name: (
        secret(name) and name not in sent and (name.startswith("HOROVOD_") or name in exported)
    )
    if ANY_INTERFACE in os.environ:
        launch.mpi_run = lambda settings, nics, *more: mpi_run(settings, None, *more)
    attempt = os.environ.pop(PLACES, None)
    if attempt is not None:
        _know_slots(Path(attempt))
    if sent:
        _send(sorted(sent))
    return launch.run_commandline()


def _names(variable: str) -> set[str]:
    return {name for name in os.environ.get(variable, "").split(",") if name in os.environ}


def _send(names: Sequence[str]) -> None:
    """Send these variables to processes on other hosts. Nobody there can see their values."""
    from horovod.runner import gloo_run

    remote = gloo_run.get_remote_command
    say = shlex.join([sys.executable, "-I", "-S", "-c", _SAY, *names])

    def command(local_command: str, host: str, **more: Any) -> str:
        (line,) = shlex.split(local_command)
        script = shlex.join(["exec", "/bin/sh", "-c", f'eval "$(cat)"; {line}'])
        return f"{say} | {remote(shlex.quote(script), host=host, **more)}"

    gloo_run.get_remote_command = command


def _know_slots(attempt: Path) -> None:
    """Resolve the host of a slot from the slot's name, and pass each rank the name of its folder."""
    from horovod.runner import gloo_run
    from horovod.runner.driver import driver_service
    from horovod.runner.elastic.discovery import HostManager
    from horovod.runner.elastic.worker import WorkerNotificationClient
    from horovod.runner.util import network

    variables, remote = gloo_run.create_slot_env_vars, gloo_run.get_remote_command
    resolve, order = network.resolve_host_address, HostManager.order_available_hosts
    common, notify = driver_service.get_common_interfaces, WorkerNotificationClient.notify_hosts_updated

    def told(slot: Any) -> dict[str, str]:
        index = claim(attempt / "slots", slot.hostname.rpartition(".")[0], slot.rank)
        place = attempt / layout.RANKS / str(index)
        for name in (layout.EXIT, layout.ERROR, layout.RESULT):  # files of an earlier rank in this folder
            with contextlib.suppress(OSError):
                os.unlink(place / name)
        script = json.loads((attempt / "starts.json").read_bytes())[_host(slot.hostname)]
        return {**variables(slot), FOLDER: str(index), START: shlex.quote(script)}

    def notified(*args: Any) -> None:
        # The host of rank 0 may be lost. Without the thread, everything else would wait until its connection
        # times out.
        thread = threading.Thread(target=_try, args=(notify, *args), daemon=True)
        thread.start()
        thread.join(_NOTIFY_S)

    # If all hosts are this machine, horovodrun would choose `lo`. Hosts that join later could reach nobody
    # there.
    driver_service.get_common_interfaces = lambda settings, *more: settings.nics or common(settings, *more)
    gloo_run.create_slot_env_vars = told
    gloo_run.get_remote_command = lambda command, host, **more: remote(command, host=_host(host), **more)
    network.resolve_host_address = lambda name: resolve(_host(name))
    WorkerNotificationClient.notify_hosts_updated = notified
    # The hosts arrive as a set, and the first one gets rank 0.
    HostManager.order_available_hosts = staticmethod(lambda new, old: order(sorted(new, key=_by_number), old))


def _try(function: Callable[..., object], *args: Any) -> None:
    with contextlib.suppress(Exception):
        function(*args)


def _host(slot: str) -> str:
    return slot.partition("~")[0]


def _by_number(name: str) -> list[tuple[str, int]]:
    """Return the sort key that puts node2 before node10."""
    parts = re.split(r"(\d+)", name)
    return [(text, int(number)) for text, number in zip(parts[::2], [*parts[1::2], "0"])]


if __name__ == "__main__":
    main()
