"""Processes that a cell starts on a rank: they end when they should, and know what the cell defines.

`JUPYTER_DIST_POOLS=1000` has a rank make and end as many pools; the test suite has time for some.
"""

from __future__ import annotations

import json
import os

from launching import ended, launch_cell, logs, results, story

from jupyter_dist.job import State

POOLS = int(os.environ.get("JUPYTER_DIST_POOLS", "100"))

MANY_POOLS = f"""
import multiprocessing as mp, os, signal, threading

def same(x):
    return x

hung = []
for number in range({POOLS}):
    pool = mp.get_context("fork").Pool(2)
    if number % 2:  # else it is ended while its processes begin
        assert pool.map(same, range(4)) == [0, 1, 2, 3]
    ends = threading.Thread(target=pool.terminate)
    ends.start()
    ends.join(20)
    if ends.is_alive():
        hung.append(number)
        for process in pool._pool:
            process.kill()
        ends.join()
        break
signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, hung
"""


def test_no_pool_hangs() -> None:
    """A forked process that had a rank's signals did not always end: 36 of 600 pools hung."""
    folder = launch_cell("local", MANY_POOLS, 1)
    assert ended(folder, 110).state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == [(True, [])]
    assert "Terminated" not in "\n".join(logs(folder, 0))


FORKS = """
import os, signal, sys, threading
import jupyter_dist as dist

def fork(how):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    how()

def own_signal():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    inner = fork(lambda: (os.kill(os.getpid(), signal.SIGTERM), os._exit(1)))
    os._exit(inner)

def in_thread():
    thread = threading.Thread(target=lambda: seen.append(fork(wait_to_be_ended)))
    thread.start()
    thread.join()

def wait_to_be_ended():
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(1)

def logs():
    dist.log(loss=0.5, step=3)
    os._exit(0)

class Passes(BaseException):
    pass

def goes_on():
    raise Passes

seen = [fork(logs), fork(lambda: 1 / 0), fork(lambda: sys.exit(5)), fork(wait_to_be_ended), fork(own_signal)]
in_thread()
try:
    seen.append(fork(goes_on))
except Passes:
    print("a fork comes to the end of the cell")
blocked = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
seen, blocked
"""


def test_what_a_rank_forks_is_not_the_rank() -> None:
    folder = launch_cell("local", FORKS, 1)
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == [([0, 1, 5, -15, 7, -15, 0], False)]
    rank = folder.rank(0, 0)
    kinds = [json.loads(line)["kind"] for line in rank.events.read_text().splitlines()]
    assert sorted(kinds) == ["cell", "metric", "result", "started"]
    assert not rank.error.exists()
    log = "\n".join(logs(folder, 0))
    assert log.count("ZeroDivisionError: division by zero") == 1
    assert "a fork comes to the end of the cell" in log
