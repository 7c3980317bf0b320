"""The messages of a session's supervisor, as a rank reads them."""

from __future__ import annotations

import subprocess
import sys

from jupyter_dist.conformance.deadlines import PATIENCE_S

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
