"""The messages of a session's supervisor, as a rank reads them."""

from __future__ import annotations

import subprocess
import sys

from jupyter_dist.conformance.deadlines import PATIENCE_S

AS_IT_BEGINS_TO_WAIT = """
import signal, sys, threading, time
from jupyter_dist.worker.session.rank_loop import _Requests

requests, kill = _Requests(), signal.pthread_kill
main = threading.get_ident()
missed = []

def late(thread, signum):
    # The main thread has noted the signal right before it waits: as if another thread had got it.
    if not missed:
        missed.append(signum)
        thread = threading.get_ident()
        assert thread != main
    kill(thread, signum)

signal.pthread_kill = late
requests.begin("a")
threading.Timer(0.5, requests.signal, ("a", signal.SIGINT)).start()
try:
    time.sleep(10_000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
requests.end()
time.sleep(2.5)  # after its end, a cell gets no signal any more
"""

TOGETHER = """
import json, os, socket, threading
from jupyter_dist.worker.session import channel
from jupyter_dist.worker.session.rank_loop import _Inbox

here, there = socket.socketpair()
left = threading.Event()
inbox = _Inbox(channel.Channel(here), lambda of, signum: left.set())
messages = [{"do": "cell", "of": "a"}, {"do": "leave", "of": "a", "signal": 15}]
there.sendall(b"".join(json.dumps(each).encode() + b"\\n" for each in messages))
print(inbox.next()["do"], left.is_set(), flush=True)
os._exit(0)
"""


def test_a_signal_that_arrives_together_with_its_cell_is_not_left_behind() -> None:
    """Nothing would wake a reader for a message that was read with an earlier one."""
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "cell True\n"


def test_a_signal_that_arrives_while_the_cell_begins_to_wait_ends_the_wait() -> None:
    """Else a stop would end a session's rank after the grace time, with all its values."""
    done = subprocess.run(
        [sys.executable, "-c", AS_IT_BEGINS_TO_WAIT],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == "interrupted\n"
