"""Ray's command line on a busy machine: `python tests/rigs/ray/start.py start --head --block …`.

Ray gives a node 30 s to start, and its helpers 15 s to say at which ports they listen, or ends it. A busy
machine takes longer: here the ports are given beforehand, and the node is waited for.

Ray has a shell start some of its processes, and quotes nothing. If this Python lies below a path with a
space, `PYTHON` is the same one by another path.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_dist.conformance.ports import take_port

__all__ = ["PYTHON", "RAY", "give_time", "ports_of_a_node"]


def _python() -> str:
    if " " not in sys.prefix:
        return sys.executable
    # Not below /tmp, where the tests' hosts have a folder of their own.
    link = Path("/var/tmp", f"python-{hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]}")
    with contextlib.suppress(FileExistsError):
        link.symlink_to(sys.prefix)
    return str(link / Path(sys.executable).relative_to(sys.prefix))


PYTHON = _python()
RAY = [PYTHON, __file__]
HELPERS = ("dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent", "metrics-export")
PORTS = ("dashboard_agent_listen_port", "metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
PATIENCE_S = 120


def ports_of_a_node() -> list[str]:
    """Options of `ray start`: ports that nobody else takes. The kernel chooses those of workers (0)."""
    chosen = ["--min-worker-port", "0", "--max-worker-port", "0"]
    return [*chosen, *(word for name in HELPERS for word in (f"--{name}-port", str(take_port())))]


def give_time() -> None:
    """Have the Ray of this process wait for the nodes that it starts."""
    from ray import _raylet
    from ray._private import node, services
    from ray._private.ray_constants import DEFAULT_DASHBOARD_AGENT_LISTEN_PORT

    persist = _raylet.persist_port  # type: ignore[attr-defined]

    def start_raylet(self: Any, *given: Any, **named: Any) -> None:
        asked = self._ray_params
        for name in PORTS:
            # `ray.init` gives no ports. Ray's own number for the first one is that of any other Ray, too.
            if getattr(asked, name) in (None, 0, DEFAULT_DASHBOARD_AGENT_LISTEN_PORT):
                setattr(asked, name, take_port())
            persist(self._session_dir, self._node_id, name, getattr(asked, name))
        start(self, *given, **named)

    def get_node(*given: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(*given)
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    start, node.Node.start_raylet = node.Node.start_raylet, start_raylet
    ask, services.get_node = services.get_node, get_node


if __name__ == "__main__":
    from ray.scripts.scripts import main

    give_time()
    main()
