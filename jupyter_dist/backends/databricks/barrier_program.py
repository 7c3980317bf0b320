"""The program of a job run on a cluster: one barrier task per host, each of which runs the host's program.

This file is sent as it is, followed by a call of `serve` (`program_text`). It needs only Spark. Barrier tasks
start together or not at all. When one ends, Spark ends the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["program_text", "serve"]


def program_text(settings: dict[str, Any]) -> str:
    """Return the program's text. It contains the run's key, so only the user may be able to read it."""
    return f"{Path(__file__).read_text('utf-8')}\n\nserve(json.loads({json.dumps(settings)!r}))\n"


def serve(settings: dict[str, Any]) -> None:
    """Run the hosts. Returns when all of them are released.

    `settings`: `hosts` (their number), `folder` (the run's on the Volume), `attempt`, `argv` and `env` (of a
    host's program), `wait_s` (for free task slots). Raises RuntimeError, whose text the job's page shows.
    """
    import time

    from pyspark.sql import SparkSession

    context = SparkSession.builder.getOrCreate().sparkContext
    hosts, waits_until = int(settings["hosts"]), time.monotonic() + float(settings["wait_s"])

    def free_slots() -> int:
        """Return the free slots, by a private API. Spark itself reports a lack only after ten minutes."""
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

    # The task imports everything inside the function: Spark sends it to hosts without this module.
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
            # Spark has restarted the barrier stage. The host's agent and ranks ended with the first one.
            raise RuntimeError("a host of the run was lost") from None
        except OSError as error:
            raise RuntimeError(
                f"the cluster cannot access {settings['folder']!r} ({error.strerror}). It needs Unity "
                "Catalog and dedicated access. Its user needs the right to read and write the Volume"
            ) from None
        # When this task ends for any reason, the pipe closes, and the host's program then ends too.
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
