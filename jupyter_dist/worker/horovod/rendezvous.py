"""How the ranks of hosts that have our agent meet for Horovod, without horovodrun.

Fixed ranks (`JUPYTER_DIST_HOROVOD=static`) know from their start which ones they are. Only the store is
missing in which they exchange addresses: rank 0 serves it from its `hvd.init()` on, and the others wait for
it in theirs.

Elastic ones learn it in each `hvd.init()`: a rank writes into its folder that it asks for a place, and where
it would serve the store; the agent sends that on, and the answer for all is a file that the agent writes (the
supervisor's side: backends/elastic/live_resize.py). In that file they also find that others wait for a place,
which Horovod's `state.commit()` then tells the loop, and which hosts are gone.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import layout
from . import gpus, output_files
from .peer_connections import Peers

__all__ = ["HOW", "PROCESS", "patch", "patch_notifications"]

HOW = "JUPYTER_DIST_HOROVOD"
"""The variable that says how ranks meet that horovodrun has not started: `static` or `elastic`."""
PROCESS = "JUPYTER_DIST_HOROVOD_PROCESS"
"""In an elastic run: the seat and the number of this process, `2 0`."""

_TIMEOUT_S = 300.0
_WAIT_S, _LOOK_S = 0.02, 0.5
_ADDED = 2
"""Horovod's word for hosts that were added: the ranks have to exchange their states (HostUpdateResult)."""
_store: Any = None
_asks = _round = _news = 0
_peers = Peers()


def patch(basics: Any) -> None:
    """Meet in each `hvd.init()`. For the module `horovod.common.basics`."""
    gpus.patch(basics)
    output_files.patch(basics)
    meet = {"static": _meet, "elastic": _meet_anew}.get(os.environ.get(HOW, ""))
    if meet is not None:
        basics.HorovodBasics.init = _meeting(basics.HorovodBasics.init, meet)


def _meeting(original: Callable[..., Any], meet: Callable[[], None]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **more: Any) -> Any:
        if self.is_initialized():
            return original(self, *args, **more)
        meet()
        with _peers.noted():
            return original(self, *args, **more)

    return init


def _meet() -> None:
    global _store
    from .rendezvous_store import Store, wait_until_served

    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    if os.environ["HOROVOD_RANK"] != "0":
        wait_until_served(address, port, float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS") or _TIMEOUT_S))
    elif _store is None:
        _store = Store("127.0.0.1" if address == "127.0.0.1" else "", port)


def _meet_anew() -> None:
    """Ask for a place in the next round, and wait for it: it begins when enough ranks have asked."""
    global _store, _asks, _round, _news
    from .rendezvous_store import Store, put

    if _store is None:
        _store = Store("", 0)
    _store.clear()
    _peers.let_go()
    _asks += 1
    seat, number = os.environ[PROCESS].split()
    folder = Path(layout.rank_path(os.environ["JUPYTER_DIST_RUN"], os.environ["JUPYTER_DIST_ATTEMPT"], seat))
    asked = {"process": int(number), "asks": _asks, "port": _store.port}
    fd = os.open(folder / layout.MEETING, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(asked).encode() + b"\n")
    finally:
        os.close(fd)
    told = _notice()
    while told.get("round", 0) <= _round or os.environ[PROCESS] not in told["members"]:
        time.sleep(_WAIT_S)
        told = _notice()
    _round, _news = told["round"], told["news"]
    place = {name: str(value) for name, value in told["members"][os.environ[PROCESS]].items()}
    os.environ["GROUP_RANK"] = place.pop("NODE")
    os.environ |= {f"HOROVOD_{name}": value for name, value in place.items()}
    for ours, name in (("RANK", "RANK"), ("WORLD_SIZE", "SIZE"), ("LOCAL_RANK", "LOCAL_RANK")):
        os.environ[ours] = place[name]
    os.environ["LOCAL_WORLD_SIZE"] = place["LOCAL_SIZE"]
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = told["address"]
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = str(told["port"])
    # After its first time, Horovod asks the store what it finds in the environment then.
    key = f"{os.environ['HOROVOD_HOSTNAME']}:{place['LOCAL_RANK']}"
    answer = ",".join(place[f"{of}{what}"] for of in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE"))
    put(told["address"], told["port"], "rank_and_size", key, answer.encode())


def _notice() -> dict[str, Any]:
    """What all ranks of this host were told last."""
    attempt = layout.attempt_path(os.environ["JUPYTER_DIST_RUN"], os.environ["JUPYTER_DIST_ATTEMPT"])
    try:
        told: dict[str, Any] = json.loads(Path(attempt, layout.NOTICE).read_bytes())
    except (OSError, ValueError):
        return {}
    return told


def patch_notifications(worker: Any) -> None:
    """Have loops learn from us that others wait for a place, and not through a port that horovodrun's driver
    would connect to. For the module `horovod.runner.elastic.worker`."""
    if os.environ.get(HOW) == "elastic":
        worker.WorkerNotificationManager.init = _watch


def _watch(manager: Any, *args: Any, **more: Any) -> None:
    with manager._lock:
        if manager._service is None:
            manager._service = threading.Thread(target=_look, args=(manager,), daemon=True)
            manager._service.start()


def _look(manager: Any) -> None:
    global _news
    while True:
        time.sleep(_LOOK_S)
        told = _notice()
        _peers.let_go(told.get("gone", ()))
        if told.get("news", 0) > _news and manager._listeners:
            _news = told["news"]
            for listener in list(manager._listeners):
                # Only the newest of these numbers counts, as Horovod's times of change do.
                listener.on_hosts_updated(_news, _ADDED)
