"""Elastic runs of horovodrun on this machine: its hosts, and the variables of each slot.

For several hosts, see elastic_hosts.py.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError, LaunchError
from ...job import Job
from ...worker.launchers.horovodrun_rank import GPUS, SLOTS
from . import host_discovery
from .options import HorovodOptions

__all__ = ["arguments", "check_script", "command", "environment", "look", "slots"]

_SCRIPT_TIMEOUT_S = 30.0


def check_script(options: HorovodOptions, world_size: int, cwd: Path) -> None:
    """Raise InputError for elastic options that cannot work. Runs nothing."""
    if options.min_np is not None and options.min_np > world_size:
        raise InputError(f"--min-np {options.min_np} is more than -np {world_size}")
    if options.max_np is not None and options.max_np < world_size:
        raise InputError(f"--max-np {options.max_np} is less than -np {world_size}")
    if options.host_discovery_script is None:
        return
    words = shlex.split(options.host_discovery_script)
    script = cwd / Path(words[0]).expanduser() if words else cwd
    if not script.is_file():
        raise InputError(f"--host-discovery-script: there is no file {str(script)!r}")
    if not os.access(script, os.X_OK):
        raise InputError(f"--host-discovery-script: {str(script)!r} cannot be run: chmod +x {str(script)!r}")


def command(job: Job, options: HorovodOptions, attempt: Path) -> list[str]:
    """Return the command that discovers the current hosts. Pure. `attempt`: the attempt's folder."""
    own = [sys.executable, "-S", "-E", host_discovery.__file__, str(attempt)]
    own += [options.blacklist_cooldown_range, str(options.slots or 1)]
    if options.host_discovery_script is not None:
        first, *rest = shlex.split(options.host_discovery_script)
        return [*own, "script", job.cwd, str(Path(job.cwd, Path(first).expanduser())), *rest]
    hosts = [f"{host['name']}:{host['slots']}" for host in options.hosts]
    return [*own, "hosts", *(hosts or [f"localhost:{options.max_np or job.world_size}"])]


def arguments(job: Job, options: HorovodOptions, attempt: Path, *, here: bool) -> list[str]:
    """Return horovodrun's arguments. Pure. `attempt`: its folder. `here`: all ranks are on this machine."""
    found = ["--min-np", str(options.min_np or job.world_size)]
    if options.max_np is not None:
        found += ["--max-np", str(options.max_np)]
    for name in ("elastic_timeout", "reset_limit"):
        value = getattr(options, name)
        if value is not None:
            found += ["--" + name.replace("_", "-"), str(value)]
    found += ["--blacklist-cooldown-range", *options.blacklist_cooldown_range.split(",")]
    if here and not options.network_interfaces:
        # Without this flag, horovodrun waits for a second host to find common interfaces.
        found += ["--network-interfaces", "lo" if sys.platform == "linux" else "lo0"]
    # A shell reads this: horovodrun accepts a command line.
    return [*found, "--host-discovery-script", shlex.join(command(job, options, attempt))]


def look(job: Job, options: HorovodOptions, attempt: Path) -> None:
    """Discover the first hosts. Raises LaunchError if that fails, as horovodrun would."""
    try:
        done = subprocess.run(
            command(job, options, attempt),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SCRIPT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"The host discovery script did not end within {_SCRIPT_TIMEOUT_S:g} s. Run it in a "
            "terminal to see why"
        ) from None
    if done.returncode:
        raise LaunchError(f"jupyter-dist found no hosts to start ranks on: {done.stderr.strip()[-1000:]}")


def slots(options: HorovodOptions, world_size: int) -> int:
    """Return the largest number of simultaneous ranks of a run on this machine. Pure.

    Without --max-np, horovodrun starts a rank in every slot of -H.
    """
    if not options.elastic:
        return world_size
    named = sum(int(host["slots"]) for host in options.hosts)
    most = options.max_np or named or world_size
    return min(most, named) if named else most


def environment(
    options: HorovodOptions, world_size: int, attempt: Path, gpus: Sequence[str]
) -> dict[str, str]:
    """Return the extra variables of an elastic run's ranks.

    Each local slot gets its own of the run's GPUs.
    """
    env = {SLOTS: str(attempt / "slots")}
    if gpus:
        count = slots(options, world_size)
        share = max(1, len(gpus) // count)
        shares = [gpus[at : at + share] for at in range(0, share * min(count, len(gpus)), share)]
        env[GPUS] = ";".join(",".join(part) for part in shares)
    return env
