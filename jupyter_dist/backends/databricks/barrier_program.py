"""What a job runs on a cluster: one barrier task per host, each of which runs the host's program.

This file is sent as it stands, with a call of `serve` below it (`program_text`): it needs nothing but Spark.
Barrier tasks start together or not at all; when one ends, Spark ends the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["program_text", "serve"]


def program_text(settings: dict[str, Any]) -> str:
    """The text of the program. It holds the run's key, and belongs where only the user reads it."""
    return f"{Path(__file__).read_text('utf-8')}\n\nserve(json.loads({json.dumps(settings)!r}))\n"


def serve(settings: dict[str, Any]) -> None:
    """Have the hosts run; returns when all of them are released.

    `settings`: `hosts` (their number), `folder` (the run's on the Volume), `attempt`, `argv` and `env` (of a
    host's program), `wait_s` (for free task slots). Raises RuntimeError, whose text the job's page shows.
    """
    import time

    from pyspark.sql import SparkSession

    context = SparkSession.builder.getOrCreate().sparkContext
    hosts, waits_until = int(settings["hosts"]), time.monotonic() + float(settings["wait_s"])

    def free_slots() -> int:
        """Spark itself is silent for ten minutes where there are too few. Not part of its Python API."""
        try:
            scala = context._jsc.sc()
            profile = scala.resourceProfileManager().defaultResourceProfile()
            return int(scala.maxNumConcurrentTasks(profile))
        except Exception:
            return hosts

    while free_slots() < hosts:
        if time.monotonic() >= waits_until:
            raise RuntimeError(
                f"the cluster has task slots for {free_slots()} of {hosts} hosts. Use fewer ranks "
                "(-np), or a cluster with more workers"
            )
        print(f"{free_slots()} task slots for {hosts} hosts: waiting for more", flush=True)
        time.sleep(5)

    # All that the task needs is inside of it: Spark sends it to where this module is not.
    def host(_: Any) -> Any:
        import os
        import socket
        import subprocess
        import sys

        from pyspark import BarrierTaskContext

        task = BarrierTaskContext.get()
        node = task.partitionId()
        try:
            os.mkdir(f"{settings['folder']}/begun-{settings['attempt']}-{node}")
        except FileExistsError:
            # Spark starts a barrier stage again, which its host's agent and ranks have not outlived.
            raise RuntimeError("a host of the run was lost") from None
        except OSError as error:
            raise RuntimeError(
                f"the cluster cannot access {settings['folder']!r} ({error.strerror}). It needs Unity "
                "Catalog and dedicated access. Its user needs the right to read and write the Volume"
            ) from None
        # However this task ends, the pipe ends with it, and then the host's program.
        watch = (
            "import os, signal, sys, threading\n"
            "def watch(lifeline=int(sys.argv[1])):\n"
            "    os.read(lifeline, 1)\n"
            "    os.kill(os.getpid(), signal.SIGTERM)\n"
            "threading.Thread(target=watch, daemon=True).start()\n"
        )
        lifeline, held = os.pipe()
        started = subprocess.Popen(
            [sys.executable, *settings["argv"][1:-1], watch + settings["argv"][-1], str(lifeline)],
            env={**os.environ, **settings["env"], "JUPYTER_DIST_MAILBOX_NODE": str(node)},
            stdin=subprocess.DEVNULL,
            pass_fds=[lifeline],
            start_new_session=True,
        )
        os.close(lifeline)
        try:
            code = started.wait()
        finally:
            os.close(held)
        yield node, socket.gethostname(), code

    print(f"{hosts} hosts, one barrier task each", flush=True)
    ended = context.parallelize(range(hosts), hosts).barrier().mapPartitions(host).collect()
    for node, name, code in ended:
        print(f"host {node} ({name}) has ended with {code}", flush=True)
    alone = [f"{name} ({code})" for _, name, code in ended if code]
    if alone:
        raise RuntimeError(f"hosts have ended without being released: {', '.join(alone)}")
