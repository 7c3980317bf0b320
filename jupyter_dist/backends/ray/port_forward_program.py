"""A program that forwards a local port to the head of a launched cluster.

It is started as `python port_forward_program.py FILE LOCAL_PORT HEAD_PORT`. The program does what `ray exec
--port-forward` does, with a free choice of the local port. It logs in to the head with the cluster-launcher
file, forwards the port, and prints the autoscaler's growing log. It ends with the connection.
"""

from __future__ import annotations

import importlib
import sys

__all__ = ["main"]

_SHOWN_LINES = 20
_FOLLOW = f"tail -n {_SHOWN_LINES} -F /tmp/ray/session_latest/logs/monitor.log"
"""`-F` waits until the file exists: without an autoscaler there is none."""


def main(path: str, local_port: int, head_port: int) -> None:
    """Forward the port. Blocks until the connection is lost.

    Raises what Ray's launcher raises, such as for a missing head.
    """
    sdk = importlib.import_module("ray.autoscaler.sdk")
    sdk.run_on_cluster(path, cmd=_FOLLOW, port_forward=(local_port, head_port))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
