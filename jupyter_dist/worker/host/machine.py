"""Facts about this machine: cores, GPUs, addresses and free disk."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import select
import shutil
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..gpus.devices import visible_gpus

__all__ = ["cores", "facts", "free_disk", "interface_of", "interfaces", "unreached"]

_SIOCGIFADDR = 0x8915


def facts(stage: str) -> dict[str, Any]:
    """Return the facts about the host as JSON. Runs nvidia-smi if it is installed, which is slow."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    # Without ssh, JUPYTER_DIST_ADDRESS can contain the address. The starter of the stage program sets it.
    address = connection[2] if len(connection) == 4 else os.environ.get("JUPYTER_DIST_ADDRESS")
    return {
        "hostname": socket.gethostname(),
        "python": sys.executable,
        "version": platform.python_version(),
        "home": os.path.expanduser("~"),
        "stage": stage,
        "cores": cores(),
        "gpus": [gpu.name for gpu in visible_gpus()],
        "address": address,
        "client": connection[0] if connection else None,
        "interfaces": interfaces(),
        "route": _route(),
        "machine": _machine(),
        "free_disk": free_disk(stage),
    }


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_disk(path: str) -> int:
    """Return the free bytes at this path; -1 if they are unknown."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return -1


def interface_of(address: str) -> str | None:
    """Return the name of the network interface with this address."""
    return next((name for name, addresses in interfaces().items() if address in addresses), None)


def interfaces() -> dict[str, list[str]]:
    """Return the addresses of each network interface without link-local ones: IPv4, then IPv6."""
    found: dict[str, list[str]] = {}
    with contextlib.suppress(ImportError, OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        import fcntl

        for _, name in socket.if_nameindex():
            found[name] = []
            with contextlib.suppress(OSError):  # the interface has no address
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found[name].append(socket.inet_ntoa(answer[20:24]))
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:
        for words in map(str.split, file):
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
            if not address.startswith("fe80:"):
                found.setdefault(words[5], []).append(address)
    return found


def _route() -> str | None:
    """Return the address from which this machine sends to others. Nothing is sent to find it."""
    for target in ("192.0.2.1", "10.255.255.255"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    found = (held[0] for name, held in interfaces().items() if held and name != "lo")
    return next(found, None)


def unreached(places: Mapping[str, Sequence[Any]], timeout_s: float) -> dict[str, str]:
    """Return the places of other hosts to which no connection is possible from here, and why.

    `places` maps names to an address and a port. A place where nobody listens counts as reachable. All are
    tried at once.
    Blocks for at most `timeout_s`.
    """
    why: dict[str, str] = {}
    trying: dict[int, tuple[str, socket.socket]] = {}
    poll = select.poll()
    for name, (address, port) in places.items():
        try:
            family, kind, proto, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            probe = socket.socket(family, kind, proto)
        except OSError as error:
            why[name] = error.strerror or str(error)
            continue
        probe.setblocking(False)
        told = probe.connect_ex(target)
        if told in (errno.EINPROGRESS, errno.EAGAIN):
            trying[probe.fileno()] = name, probe
            poll.register(probe, select.POLLOUT)
        else:
            _judge(why, name, told, probe)
    end = time.monotonic() + timeout_s
    while trying and (left := end - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left * 1000):
            poll.unregister(descriptor)
            name, probe = trying.pop(descriptor)
            _judge(why, name, probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), probe)
    for name, probe in trying.values():
        _judge(why, name, errno.ETIMEDOUT, probe)
    return why


def _judge(why: dict[str, str], name: str, told: int, probe: socket.socket) -> None:
    if told not in (0, errno.ECONNREFUSED):
        why[name] = "timed out" if told == errno.ETIMEDOUT else os.strerror(told)
    probe.close()


def _machine() -> str:
    """Return an id that two logins share only if they share processes and network.

    Such logins have the same GPUs and the same ports.
    """
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("net", "pid")]
        return " ".join((file.read().strip(), *spaces))
    return socket.gethostname()
