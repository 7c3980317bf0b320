"""What an agent tells of its host: cores, GPUs, addresses and free disk."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
from typing import Any

__all__ = ["facts", "free_disk", "interface_of"]

_SIOCGIFADDR = 0x8915


def facts(stage: str) -> dict[str, Any]:
    """The host as JSON. Asks nvidia-smi where there is one, which takes a moment."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    address = connection[2] if len(connection) == 4 else None
    return {
        "hostname": socket.gethostname(),
        "python": sys.executable,
        "version": platform.python_version(),
        "home": os.path.expanduser("~"),
        "stage": stage,
        "cores": cores(),
        "gpus": gpus(),
        "address": address,
        "client": connection[0] if connection else None,
        "interface": None if address is None else interface_of(address),
        "free_disk": free_disk(stage),
    }


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES would list."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        listed = [part.strip() for part in chosen.split(",")]
        # As CUDA reads it: everything from the first invalid entry on is invisible.
        for place, part in enumerate(listed):
            if not part or part.startswith("-"):
                return listed[:place]
        return listed
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in found.stdout.splitlines() if line.strip().isdigit()]


def free_disk(path: str) -> int:
    """Bytes that can still be written there; -1 where that is not told."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return -1


def interface_of(address: str) -> str | None:
    """The name of the network interface that has this address."""
    if ":" in address:
        return _interface_of_v6(address)
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                try:
                    answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:
                    continue  # it has no address
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    except (ImportError, OSError):
        return None
    return None


def _interface_of_v6(address: str) -> str | None:
    try:
        wanted = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
        with open("/proc/net/if_inet6") as file:
            for line in file:
                words = line.split()
                if words[0] == wanted:
                    return words[5]
    except (OSError, IndexError):
        return None
    return None
