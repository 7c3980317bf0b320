"""The machines of training jobs: pairs of hosts in namespaces of their own, and the pool they come from."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.rigs.hosts import Hosts, Process

__all__ = ["Instances", "NoCapacity", "Pool"]

_NAMES = ("algo-1", "algo-2")
_TERM_S = 10.0
"""From SIGTERM to SIGKILL of a container that is stopped; 120 there."""
_ALIKE = ("InstanceType", "InstanceCount", "VolumeKmsKeyId")
"""What a job has to have in common with the one before to get its instances, with its role and its VPC.
https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html"""
_CREDENTIALS = "169.254.170.2"
"""Where a container asks for the credentials of its role."""
_NEW_CONTAINER = (
    "rm -rf /opt/ml ~/.cache ~/.config && : > /etc/environment && "
    "mkdir -p /opt/ml/input/config /opt/ml/input/data /opt/ml/model /opt/ml/output/data /opt/ml/code"
)


class NoCapacity(Exception):
    """There are no such machines now."""


class Instances:
    """Two machines, of which a job has the first or both."""

    def __init__(self, folder: Path, port: int, shared: Sequence[Path]) -> None:
        """`port`: where the plane listens on this machine."""
        self.hosts = Hosts(folder, _NAMES, shared=shared)
        self._port = port
        self.busy = True
        self.id = ""
        """Another one each time that it is started, as of machines that nobody has had before."""
        self.kept_for: tuple[Any, ...] = ()
        self.kept_until = 0.0
        self.kept_by: Any = None
        """The job after which they are kept, for another one of the same kind."""

    def boot(self) -> None:
        self.hosts.__enter__()
        # paramiko, which AWS's toolkit greets its sshd with, does not speak what the rig's is kept to.
        as_ever = "sed -i /KexAlgorithms/d /etc/ssh/sshd_config && kill -HUP $(cat /run/sshd.pid)"
        rule = f"ip daddr {_CREDENTIALS} tcp dport 80 dnat to {self.hosts.driver_address}:{self._port}"
        table = f"table ip role {{\n chain out {{\n type nat hook output priority -100;\n {rule}\n }}\n}}\n"
        for name in _NAMES:
            self.hosts.exec(name, ["sh", "-c", as_ever])
            self.hosts.exec(name, ["nft", "-f", "-"], input=table)

    def start(self) -> None:
        """Other machines than those that were there."""
        self.id = f"i-{secrets.token_hex(8)}"
        for name in _NAMES:
            self.hosts.exec(name, ["sh", "-c", f"echo {self.id}-{name} > /etc/instance-id"])

    def renew(self, host: str) -> None:
        """Another container: nothing is left of what the one before has written."""
        self.hosts.empty_tmp(host)
        self.hosts.exec(host, ["sh", "-c", _NEW_CONTAINER])

    def write(self, host: str, path: str, data: bytes) -> None:
        put = ["sh", "-c", 'mkdir -p "$(dirname "$0")" && cat > "$0"', path]
        subprocess.run(self.hosts.inside(host, put), input=data, check=True)

    def folder(self, host: str, path: str) -> dict[str, bytes]:
        """The files below a folder, by name; none where it is not there."""
        packed = subprocess.run(
            self.hosts.inside(host, ["tar", "-cC", path, "-f", "-", "."]), capture_output=True
        ).stdout
        if not packed:
            return {}
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            files = [(each, archive.extractfile(each)) for each in archive if each.isfile()]
        return {each.name.removeprefix("./"): file.read() for each, file in files if file is not None}

    def run(self, host: str, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = self.hosts.popen(
            host,
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return process

    def end(self, program: str, containers: Mapping[str, subprocess.Popen[bytes]]) -> None:
        """End the containers that `run` has started, by their hosts: SIGTERM to their first process, which is
        `program`, and SIGKILL to the rest. One that is only about to begin is waited for."""
        deadline = time.monotonic() + _TERM_S
        untold = set(containers)
        while _running(containers) and time.monotonic() < deadline:
            for name in sorted(untold):
                first = [each for each in self.hosts.pids(name) if program in each.argv][:1]
                if first:
                    _kill(first, signal.SIGTERM)
                    untold.remove(name)
            time.sleep(0.05)
        while (left := self._left()) or _running(containers):
            _kill(left, signal.SIGKILL)
            time.sleep(0.02)

    def _left(self) -> list[Process]:
        return [process for name in _NAMES for process in self.hosts.pids(name)]


class Pool:
    """All machines that the service has. Machines are started where none are free, and never given back."""

    def __init__(self, folder: Path, port: int, shared: Sequence[Path], most: int) -> None:
        self._folder, self._port, self._shared, self._most = folder, port, shared, most
        self._lock = threading.RLock()
        # The kernel ends the machines with the thread that has started them (hosts.py).
        self._starter = ThreadPoolExecutor(1, "instances")
        self.all: list[Instances] = []

    def take(self, request: Mapping[str, Any]) -> tuple[Instances, Any]:
        """Machines for a job, and the one before it that had them kept warm, or None. Raises NoCapacity."""
        if request["ResourceConfig"]["InstanceCount"] > len(_NAMES):
            raise NoCapacity
        kind, now = _kind(request), time.time()
        with self._lock:
            for each in self.all:
                if not each.busy and each.kept_for == kind and now < each.kept_until:
                    each.busy = True
                    return each, each.kept_by
            free = [each for each in self.all if not each.busy and now >= each.kept_until]
            if not free and len(self.all) >= self._most:  # a warm pool ends where others need its machines
                free = [each for each in self.all if not each.busy]
                if not free:
                    raise NoCapacity
            if free:
                found = free[0]
            else:
                found = Instances(self._folder / str(len(self.all)) / "hosts", self._port, self._shared)
                self._starter.submit(found.boot).result()
                self.all.append(found)
            found.busy, found.kept_until = True, 0.0
        found.start()
        return found, None

    def give(self, used: Instances, request: Mapping[str, Any], job: Any, keep_s: float) -> None:
        """Machines that a job is done with, to be kept for another of its kind for so long."""
        with self._lock:
            used.kept_for, used.kept_until = _kind(request), time.time() + keep_s if keep_s else 0.0
            used.kept_by, used.busy = job, False

    def close(self) -> None:
        for each in self.all:
            each.hosts.close()
        self._starter.shutdown()


def _kind(request: Mapping[str, Any]) -> tuple[Any, ...]:
    resources = request["ResourceConfig"]
    vpc = str(request.get("VpcConfig"))
    return (request["RoleArn"], vpc, *(resources.get(name) for name in _ALIKE))


def _running(containers: Mapping[str, subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is None for process in containers.values())


def _kill(processes: Sequence[Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
