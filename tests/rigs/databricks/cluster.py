"""A cluster of the emulated workspace: a real Spark, which runs programs.

    python cluster.py local[2]      # on a host of the rig

On stdin come lines of JSON: {"run": 7, "program": PATH}, {"cancel": 7} or {"end": true}. On stdout go others:
{"ready": true}, and {"run": 7, "error": null or text}. The end of stdin ends it all. Like a cluster there, it
runs each program in the session that it has, under a job group by which the program is cancelled.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

_LOCK = threading.Lock()
_GOING: set[int] = set()
"""The runs whose programs have not ended."""


def _say(told: dict[str, Any]) -> None:
    with _LOCK:
        os.write(_TOLD, json.dumps(told).encode() + b"\n")


def _run(context: Any, number: int, program: str) -> None:
    error = None
    context.setJobGroup(str(number), "a job run", interruptOnCancel=True)
    try:
        text = Path(program).read_text()
        exec(compile(text, program, "exec"), {"__name__": "__main__", "__file__": program})
    except BaseException as raised:
        traceback.print_exc()
        error = f"{type(raised).__name__}: {raised}"
    _GOING.discard(number)
    _say({"run": number, "error": error})


def _cancel(context: Any, number: int) -> None:
    """Until it has ended: a program that has only begun has no job yet that could be cancelled."""
    while number in _GOING:
        context.cancelJobGroup(str(number))
        time.sleep(0.2)


def main(master: str) -> None:
    from pyspark import InheritableThread
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.sql.catalogImplementation": "in-memory",
    }.items():
        builder = builder.config(name, value)
    context = builder.getOrCreate().sparkContext
    # The first job of a Spark takes many times as long as the next ones.
    context.parallelize([0], 1).barrier().mapPartitions(list).collect()
    _say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if "end" in asked:
            break
        if "cancel" in asked:
            threading.Thread(target=_cancel, args=(context, asked["cancel"]), daemon=True).start()
        else:
            _GOING.add(asked["run"])
            InheritableThread(
                target=_run, args=(context, asked["run"], asked["program"]), daemon=True
            ).start()
    os._exit(0)


if __name__ == "__main__":
    # What programs print goes to the log, as to a driver's log there.
    _TOLD = os.dup(1)
    os.dup2(2, 1)
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # It lives for a minute: what makes long programs fast would be most of its start.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    main(sys.argv[1])
