"""The backend process: a child process of the supervisor for a backend that declares `apart`.

    python -m jupyter_dist.supervise.backend_process.server FOLDER

It reads calls from its standard input and answers on its standard output, one JSON object a line:

    {"id": 3, "call": "poll", "arguments": {"handle": {…}, "cursor": null}}
    {"id": 3, "value": {…}}    or    {"id": 3, "failure": {…}}

Each call has a thread of its own, so that `stop` does not wait for a slow `poll`. The output of the client
library is in supervisor.log. When the supervisor's end of the pipe closes, the backend process kills its
process group and ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ... import backends
from ...backends.interface import Backend
from ...folder import RunFolder
from ...job import Job, Poll
from ...worker.boot import set_name
from ...worker.line_file import write_all
from ..backend_calls import Failure, failure_of, perform
from ..status_writer import log_stream

__all__ = ["main"]


class _Carrier:
    def __init__(self, folder: RunFolder, answers: int) -> None:
        self._folder, self._answers = folder, answers
        self._writing = threading.Lock()
        self._failed: Failure | None = None
        self._backend: Backend | None = None
        self._job = Job.from_json(json.loads(folder.job.read_bytes()))
        folder.id = self._job.id  # a session's folder has the session's name, which others also use
        try:
            self._backend = backends.load(self._job.backend)
        except BaseException as error:
            self._failed = failure_of(error)

    def answer(self, message: dict[str, Any]) -> None:
        try:
            if self._backend is None:
                assert self._failed is not None
                answer: dict[str, Any] = {"failure": self._failed.to_json()}
            else:
                value = perform(self._backend, self._job, self._folder, message["call"], message["arguments"])
                answer = {"value": value.to_json() if isinstance(value, Poll) else value}
            text = json.dumps({"id": message["id"], **answer})
        except BaseException as error:
            text = json.dumps({"id": message["id"], "failure": failure_of(error).to_json()})
        with self._writing:
            write_all(self._answers, text.encode() + b"\n")


def _end() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # this also kills the processes of a client library
    os._exit(0)


def main(argv: list[str]) -> None:
    """Answer calls until the supervisor's end of the pipe is closed. Never returns."""
    set_name("jdist carrier")
    calls, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    sys.stdout = sys.stderr = log_stream(2)  # the prints of a library stay in order with its errors
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    try:
        carrier = _Carrier(RunFolder(Path(argv[0])), answers)
        with open(calls, "rb") as lines:
            for line in lines:
                message = json.loads(line)
                # Nobody joins the thread: a call that never returns ends with this process.
                threading.Thread(target=carrier.answer, args=(message,), daemon=True).start()
    finally:
        _end()


if __name__ == "__main__":
    main(sys.argv[1:])
