"""The rendezvous of Horovod's ranks on hosts with our agent, without horovodrun.

In a run with fixed ranks (`JUPYTER_DIST_HOROVOD=static`) each rank has its number from its start. Only the
store for exchanging addresses is missing. Rank 0 serves the store from its `hvd.init()` on, and the other
ranks wait for it in theirs. In a session, the ranks also wait for each other in Python, because Horovod's
wait hears no signal. After a failed cell, the session's supervisor chooses another port for the store.

In an elastic run each `hvd.init()` assigns the numbers. A rank writes a request to its folder, with the port
on which it would serve the store. The agent sends the request on. The answer for all ranks is a file that the
agent writes (the supervisor's side: backends/elastic/live_resize.py). The file also shows that other ranks
are waiting to join, and which hosts are lost. Horovod's `state.commit()` then informs the training loop.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import layout
from ..gpus import by_local_rank
from ..line_file import append_line
from ..patching import wrap
from ..session import place as session_place
from . import output_files
from .peer_connections import Peers

__all__ = ["HOW", "PROCESS", "patch", "patch_notifications", "peers"]

HOW = "JUPYTER_DIST_HOROVOD"
"""The variable with the kind of rendezvous without horovodrun: `static` or `elastic`."""
PROCESS = "JUPYTER_DIST_HOROVOD_PROCESS"
"""The variable with the seat and the number of this process in an elastic run, such as `2 0`.

The seat is the name of its rank folder.
"""

_TIMEOUT_S = 300.0
_STALLED_S = "10"
_WAIT_S, _LOOK_S = 0.02, 0.5
_ADDED = 2
"""Horovod's value for added hosts (HostUpdateResult). The ranks must then exchange their states."""
_store: Any = None
_asks = _round = _news = 0
_meetings: dict[int, int] = {}
"""How often the ranks of a session have met, by the port of the store."""
peers = Peers()
"""The connections that Horovod has made."""


def patch(basics: Any) -> None:
    """Add a rendezvous to each `hvd.init()`. For the module `horovod.common.basics`."""
    # After this time Horovod says which ranks a collective waits for, which the card of a hang needs.
    os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", _STALLED_S)
    by_local_rank.patch_horovod(basics)
    output_files.patch(basics)
    meet = {"static": _meet, "elastic": _meet_anew}.get(os.environ.get(HOW, ""))
    if meet is not None:
        # Each cell of a session calls this again.
        wrap(basics.HorovodBasics, "init", functools.partial(_meeting, meet=meet))


def _meeting(original: Callable[..., Any], meet: Callable[[], None]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **more: Any) -> Any:
        if self.is_initialized():
            return original(self, *args, **more)
        meet()
        with peers.noted():
            return original(self, *args, **more)

    return init


def _meet() -> None:
    global _store
    from .rendezvous_store import Store, wait_for_keys, wait_until_served

    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    limit_s = float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS") or _TIMEOUT_S)
    rank = os.environ["HOROVOD_RANK"]
    if rank != "0":
        wait_until_served(address, port, limit_s)
    elif _store is None or _store.port != port:
        ended, _store = _store, None  # the new one may fail to open, or be interrupted
        if ended is not None:
            ended.end()
        _store = Store("127.0.0.1" if address == "127.0.0.1" else "", port)
    if session_place.ID_VARIABLE in os.environ:
        number = _meetings.get(port, 0)
        wait_for_keys(address, port, f"ranks{number}", rank, int(os.environ["HOROVOD_SIZE"]), limit_s)
        _meetings[port] = number + 1


def _meet_anew() -> None:
    """Request a rank number in the next round, and wait for the round.

    It begins when enough ranks have asked.
    """
    global _store, _asks, _round, _news
    from .rendezvous_store import Store, put

    if _store is None:
        _store = Store("", 0)
    _store.clear()
    peers.let_go()
    _asks += 1
    seat, number = os.environ[PROCESS].split()
    folder = Path(layout.rank_path(os.environ["JUPYTER_DIST_RUN"], os.environ["JUPYTER_DIST_ATTEMPT"], seat))
    asked = {"process": int(number), "asks": _asks, "port": _store.port}
    append_line(folder / layout.MEETING, json.dumps(asked).encode() + b"\n")
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
    # In the first `hvd.init()`, Horovod reads the rank and the sizes from the environment. Later it asks the
    # store for them.
    key = f"{os.environ['HOROVOD_HOSTNAME']}:{place['LOCAL_RANK']}"
    answer = ",".join(place[f"{of}{what}"] for of in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE"))
    put(told["address"], told["port"], "rank_and_size", key, answer.encode())


def _notice() -> dict[str, Any]:
    """Return the last notice to all ranks of this host."""
    attempt = layout.attempt_path(os.environ["JUPYTER_DIST_RUN"], os.environ["JUPYTER_DIST_ATTEMPT"])
    try:
        told: dict[str, Any] = json.loads(Path(attempt, layout.NOTICE).read_bytes())
    except (OSError, ValueError):
        return {}
    return told


def patch_notifications(worker: Any) -> None:
    """Make training loops learn from the notice file that ranks are waiting to join.

    Otherwise they would open a port for horovodrun's driver. For the module `horovod.runner.elastic.worker`.
    """
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
        peers.let_go(told.get("gone", ()))
        if told.get("news", 0) > _news and manager._listeners:
            _news = told["news"]
            for listener in list(manager._listeners):
                # Horovod expects a timestamp here, and only the newest one counts. A growing number works as
                # well.
                listener.on_hosts_updated(_news, _ADDED)
