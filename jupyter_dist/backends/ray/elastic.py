"""The backend `ray` in an elastic run: nodes and Horovod's ranks join and leave together."""

from __future__ import annotations

import functools
import json
import threading
from typing import Any

from ...errors import LaunchError, Unreachable
from ...folder import RunFolder, make_private, write_json
from ...job import Job, Poll
from ...worker import layout
from ..hosted import Hosted, Hosting, by_pipe
from ..interface import Handle
from . import connection, local_cluster
from .elastic_allocation import PerRankAllocations
from .options import RayOptions

__all__ = ["ElasticRay"]

_ROOMS = layout.hidden("rooms.json")
"""File in an attempt's folder that records the allocations of its ranks."""


class ElasticRay:
    """The elastic part of the backend, with a backend's methods. The run's handle has the key `elastic`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._hosted = Hosted(self._hosting)
        self._handle: Handle = {}
        self._allocations: PerRankAllocations | None = None

    def submit(self, job: Job, folder: RunFolder, attempt: int, gpus: Any) -> Handle:
        """Request the allocations. `gpus` returns the GPUs per rank, once this process is a driver."""
        with self._lock:
            asked = RayOptions(**job.options)
            if self._allocations is None:
                own = None
                address = connection.find_address(asked.address)
                if address is None:
                    address, own = local_cluster.start(folder, asked, asked.max_np or job.world_size)
                try:
                    connection.connect(address, asked.read_runtime_env)
                except Unreachable as error:
                    raise LaunchError(f"{error}. Nothing was started.") from None
                self._handle = {"elastic": True, "address": address, "embedded": own, "gpus": gpus(asked)}
                self._handle |= {"first": attempt}
                self._make_allocations(job)
            self._handle = {**self._handle, "attempt": attempt}
            self._write_down(folder)
            self._hosted.submit(job, folder, attempt)
            return self._handle

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        known = self._recall(folder, attempt)
        return None if known is None else known["handle"]

    def poll(self, job: Job, folder: RunFolder, handle: Handle) -> Poll:
        with self._lock:
            if self._ours(job, folder, handle).turn():
                self._write_down(folder)
        return self._hosted.poll(job, folder, handle)

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        with self._lock:
            self._ours(job, folder, handle)
        self._hosted.stop(job, folder, handle, kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        self._hosted.ask(job, folder, handle, rank, verb)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        with self._lock:
            allocations = self._ours(job, folder, handle)
            told = self._hosted.release(job, folder, handle)
            allocations.release()
            self._allocations = None
            if handle.get("embedded"):
                local_cluster.end(handle["embedded"])
            return told

    def _ours(self, job: Job, folder: RunFolder, handle: Handle) -> PerRankAllocations:
        """Return the run's allocations. Another process that requested them has recorded them."""
        if self._allocations is None:
            known = self._recall(folder, handle["attempt"])
            assert known is not None
            self._handle = handle
            allocations = self._make_allocations(job)
            allocations.recall(known["rooms"])
        assert self._allocations is not None
        return self._allocations

    def _make_allocations(self, job: Job) -> PerRankAllocations:
        asked, about = RayOptions(**job.options), self._handle
        self._allocations = PerRankAllocations(
            f"{job.id}-{about['first']}",
            asked.max_np or job.world_size,
            asked.bundle(about["gpus"]),
            about["gpus"],
            asked.environment(),
            about["address"],
            functools.partial(connection.connect, about["address"], asked.read_runtime_env),
        )
        return self._allocations

    def _write_down(self, folder: RunFolder) -> None:
        assert self._allocations is not None
        place = folder.attempt(self._handle["attempt"])
        make_private(place)
        write_json(place / _ROOMS, {"handle": self._handle, "rooms": self._allocations.to_json()})

    @staticmethod
    def _recall(folder: RunFolder, attempt: int) -> Any:
        try:
            return json.loads((folder.attempt(attempt) / _ROOMS).read_bytes())
        except FileNotFoundError:
            return None

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        asked, allocations = RayOptions(**job.options), self._allocations
        assert allocations is not None
        return Hosting(
            hosts=(),
            settings=asked.agent_settings(),
            reach=by_pipe(allocations.take),
            wanted=asked.wanted(self._handle["gpus"]),
            trouble=allocations.trouble,
            gone=allocations.gone,
            elastic=asked.limits(job.world_size),
            now=allocations.hosts,
        )
