"""Hold a way to a launched cluster's head open: `python port_forward_program.py FILE LOCAL_PORT HEAD_PORT`.

The program does what `ray exec --port-forward` does, with a port of our choice on this side: it logs in to
the head as the cluster-launcher file says, forwards the port, and prints the autoscaler's log as it grows. It
ends with the connection.
"""

from __future__ import annotations

import importlib
import sys

__all__ = ["main"]

_SHOWN_LINES = 20
_FOLLOW = f"tail -n {_SHOWN_LINES} -F /tmp/ray/session_latest/logs/monitor.log"
"""`-F` waits for a file that is not there, such as where no autoscaler runs."""


def main(path: str, local_port: int, head_port: int) -> None:
    """Blocks until the connection is lost. Raises what Ray's launcher raises, such as where no head runs."""
    sdk = importlib.import_module("ray.autoscaler.sdk")
    sdk.run_on_cluster(path, cmd=_FOLLOW, port_forward=(local_port, head_port))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
