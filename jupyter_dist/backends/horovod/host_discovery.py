"""The program of horovodrun's --host-discovery-script in every elastic run: it prints the current slots.

    python -S -E host_discovery.py ATTEMPT_FOLDER COOLDOWN DEFAULT_SLOTS hosts HOST:SLOTS…
    python -S -E host_discovery.py ATTEMPT_FOLDER COOLDOWN DEFAULT_SLOTS script FOLDER PROGRAM ARGUMENTS…

horovodrun starts this file every second, and reads its `HOST:SLOTS` lines. It imports no installed package,
and only our modules that need none.

When a rank fails, horovodrun blacklists the rank's whole host. After the host's cooldown, horovodrun starts
nothing there while it waits for the smallest number of ranks. Each slot of this machine is therefore a host
of its own, under one of the many spellings of 127.0.0.1. A slot gets a new spelling when its rank has failed.

If there may be other hosts, a slot is called `HOST~GENERATION.SLOT.FAILURES`
(worker/launchers/fast_horovodrun.py finds the host by that name). The discovered hosts are written to
ATTEMPT_FOLDER/wanted.json. The supervisor sets the hosts up and writes them to `ready.json` there
(elastic_hosts.py). Only these are printed.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # this file runs without a package around it
    sys.path.insert(0, str(Path(__file__).parents[3]))

from jupyter_dist.worker import layout

__all__ = ["find", "is_local", "local_name", "look_for_failures", "main", "offered", "parse", "spread"]

_PATIENCE = 5
"""Number of failures after which a slot is given up."""


def local_name(slot: int, failures: int = 0) -> str:
    """Return a unique name of this machine for a slot: 127.0.0.1, 127.00.0.1… then 127.0.0.01 and so on."""
    return f"127.{'0' * (slot + 1)}.0.{'0' * failures}1"


def parse(text: str, default_slots: int) -> dict[str, int]:
    """Return the slots by host, from lines such as `node1`, `node1:4` or `node1 slots=4`.

    Raises ValueError.
    """
    found: dict[str, int] = {}
    for line in text.split("\n"):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([\w.-]+)(?:\s*:\s*(\d+)|\s+slots\s*=\s*(\d+))?", line)
        if match is None:
            raise ValueError(f"needs lines such as `node1:4`, got {line!r}")
        slots = match[2] or match[3]
        found[match[1]] = found.get(match[1], 0) + (int(slots) if slots else default_slots)
    return found


def is_local(host: str) -> bool:
    """Return whether a name belongs to this machine: only a local address can be bound."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((socket.gethostbyname(host), 0))
    except OSError:
        return False
    return True


def offered(
    hosts: dict[str, int], ready: dict[str, int], failures: dict[Any, list[float]], cooldown: str
) -> dict[str, int]:
    """Return a name for each usable slot. `ready`: the generation of each ready host."""
    found: dict[str, int] = {}
    for host, slots in hosts.items():
        for slot in range(slots if host in ready else 0):
            name = f"{host}~{ready[host]}.{slot}"
            failed = failures.get(name, [])
            if _is_usable(failed, cooldown):
                found[f"{name}.{len(failed)}"] = 1
    return found


def _is_usable(failed: list[float], cooldown: str) -> bool:
    low, high = map(int, cooldown.split(","))
    ready = not failed or time.time() >= failed[-1] + min(high, low * 2 ** (len(failed) - 1))
    return ready and len(failed) < _PATIENCE


def spread(slots: int, failures: dict[Any, list[float]], cooldown: str) -> dict[str, int]:
    """Return a name for each usable slot of this machine.

    `failures`: when the ranks of a slot have failed, in seconds since the epoch.
    """
    times = [failures.get(slot, []) for slot in range(slots)]
    return {
        local_name(slot, len(failed)): 1 for slot, failed in enumerate(times) if _is_usable(failed, cooldown)
    }


def look_for_failures(attempt: Path) -> dict[Any, list[float]]:
    """Return when the ranks of each slot have failed, from their exit files. A file keeps the result.

    The key is a number for a local slot, and the name `HOST~GENERATION.SLOT` for a slot on another host.
    """
    memory = attempt / "failures.json"
    known: dict[Any, list[float]] = {}
    for slot, times in (_json(memory) or {}).items():
        known[int(slot) if slot.isdigit() else slot] = list(times)
    before = json.dumps(known)
    for claim in (attempt / "slots").glob("*"):
        name = re.match(r"127\.(0+)\.0\.1:|(.+~\d+\.\d+)$", claim.read_text())
        ended = _json(attempt / layout.RANKS / claim.name / layout.EXIT)
        if name is None or ended is None or ended["exit_code"] == 0:
            continue
        times = known.setdefault(name[2] or len(name[1]) - 1, [])
        if ended["ended"] not in times:
            times.append(ended["ended"])
    if json.dumps(known) != before:
        _write(memory, known)
    return known


def _json(path: Path) -> Any:
    """Return a file's content, or None if the file is missing or incomplete."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _write(path: Path, data: object) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(data))
    os.replace(temporary, path)


def find(default_slots: int, kind: str, *words: str) -> dict[str, int]:
    """Return the current hosts. Raises ValueError, OSError, CalledProcessError."""
    if kind == "hosts":
        return parse("\n".join(words), default_slots)
    folder, *argv = words
    done = subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return parse(done.stdout.decode(errors="replace"), default_slots)


def main(argv: list[str]) -> int:
    attempt, cooldown, default_slots, *words = argv
    try:
        hosts = find(int(default_slots), *words)
    except subprocess.CalledProcessError as error:
        print(f"the host discovery script ended with exit code {error.returncode}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"the host discovery script: {error}", file=sys.stderr)
        return 1
    failures = look_for_failures(Path(attempt))
    ready = _json(Path(attempt, "ready.json"))
    if ready is None:
        slots = spread(sum(hosts.values()), failures, cooldown)
    else:
        _write(Path(attempt, "wanted.json"), hosts)
        slots = offered(hosts, ready, failures, cooldown)
    print("\n".join(f"{host}:{count}" for host, count in slots.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
