"""Cells that the suite runs. They need only Python, because a backend's hosts may have nothing else."""

from __future__ import annotations

__all__ = [
    "ALONE",
    "COUNTS",
    "DETACHED",
    "EXITS",
    "FAILS",
    "FUNCTIONS",
    "GOOD",
    "HEAVY",
    "KILLED",
    "RESTARTS",
    "SAVES_WHEN_INTERRUPTED",
    "STOPS_IT",
    "STUBBORN",
    "TIES",
]

FUNCTIONS = """
SCALE = 10

def square(x):
    return x * x

def combine(rank, world):
    return SCALE * square(rank) + square(world) if rank else of_the_first(world)

def of_the_first(world):
    return combine(1, world) - SCALE
"""

GOOD = """
import ctypes, hashlib, multiprocessing, os, random, socket, subprocess, sys
import jupyter_dist as dist

rank = dist.rank()

def of_both(x):
    return square(x) + SCALE

class Picture:
    def _repr_png_(self):
        return random.Random(rank).randbytes(SHOWN_BYTES)

class Page:
    def __init__(self, text):
        self.text = text

    def _repr_html_(self):
        return "<b>" + self.text + "</b>"

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(of_both, (rank,))
print("from print", "in", "pieces")
ctypes.CDLL(None).puts(b"from C")
subprocess.run(["echo", "from a subprocess"], check=True)
print("on stderr", file=sys.stderr)
print("ünïcode 🚀 你好")
display(Picture())
handle = display(Page("at first"), display_id=True)
handle.update(Page("in the end"))
for number in range(LINES):
    print("line", number, "of rank", rank)
for step in range(STEPS):
    dist.log({"loss": rank + 1 / (step + 1), "größe": step}, step=step)
dist.log(hole=float("nan"), step=STEPS)
if rank == 0:
    weights = dist.model_dir() / "weights"
    weights.touch(mode=0o600)  # as the run's own files are
    weights.write_text("of rank 0")
sys.stdout.write("no newline at the end")
{
    "rank": rank,
    "world_size": dist.world_size(),
    "spawned": spawned,
    "combined": combine(rank, dist.world_size()),
    "env": {name: os.environ.get(name) for name in NAMES},
    "secret": hashlib.sha256(os.environ["CONFORMANCE_SECRET"].encode()).hexdigest(),
    "pid": os.getpid(),
    "host": socket.gethostname(),
    "stdin": sys.stdin.read(),
    "text": "ünïcode 🚀",
}
"""

# All ranks wait for each other. Rank 0 then has a connection to each other rank.
_MEETS = """
import os, socket, time
import jupyter_dist as dist

def meet():
    if dist.rank() == 0:
        with socket.create_server(("", PORT)) as server:
            others = [server.accept()[0] for _ in range(dist.world_size() - 1)]
        for other in others:
            other.sendall(b"!")
        return others
    while True:
        try:
            first = socket.create_connection((os.environ["MASTER_ADDR"], PORT), 10)
            break
        except OSError:
            time.sleep(0.01)
    first.settimeout(None)
    first.recv(1)
    return [first]
"""

# Rank 0 has a result that cannot be pickled, and ends at once. The others continue and send much data.
TIES = """
import pickle

class Block:
    # Travels beside the pickle, as an array does.
    def __init__(self, data):
        self.data = data
    def __reduce_ex__(self, protocol):
        return Block, (pickle.PickleBuffer(self.data),)
"""
HEAVY = f"""
{_MEETS}
import hashlib, zlib

digests = [hashlib.sha256(data).hexdigest() for data in (PLAIN, block.data)]
print("got", *digests)
connections = meet()
if dist.rank() == 0:
    result = zlib.compressobj()
else:
    connections[0].recv(1)  # its end is that of rank 0
    time.sleep(LATER_S)
    print("later")
    result = PLAIN[:RESULT_BYTES]
result
"""

ALONE = """
import os
import beside
import jupyter_dist as dist

(dist.rank(), dist.world_size(), os.getcwd(), os.path.isdir(WANTED), beside.ANSWER)
"""

# The last rank fails while rank 0 waits for it. The error of rank 0 is then not the root cause.
FAILS = f"""
{_MEETS}
import select

if dist.rank() == 0:
    print("waiting for the last rank")
    select.select(meet(), [], [])
    raise ConnectionResetError("connection reset by peer")
connections = meet()
if dist.rank() == LAST:
    print("about to fail")
    connections[0].close()
    raise ValueError("only here: ünïcode")
time.sleep(600)
"""

# The other ranks ignore SIGTERM, like a rank that hangs in C code.
KILLED = f"""
{_MEETS}
import signal

if dist.rank() != LAST:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
connections = meet()
if dist.rank() != LAST:
    time.sleep(600)
for number in range(LINES):
    print("line", number)
    dist.log(loss=number, step=number)
os.kill(os.getpid(), signal.SIGKILL)
"""

EXITS = """
import sys, time
import jupyter_dist as dist

if dist.rank() == LAST:
    sys.exit(3)
time.sleep(600)
"""

RESTARTS = """
import os, time
import jupyter_dist as dist

seen = dist.checkpoint_dir() / f"seen-by-{dist.rank()}"
print("attempt", dist.attempt())
if dist.attempt() == 0:
    if dist.rank() == LAST:
        seen.write_text("seen")
        os._exit(4)
    time.sleep(600)
(dist.attempt(), seen.read_text() if dist.rank() == LAST else "seen")
"""

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up")
time.sleep(600)
"""

SAVES_WHEN_INTERRUPTED = """
import time
times = 0
try:
    print("up")
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    times += 1
    time.sleep(1)
    print("saved")
f"interrupted {times} times"
"""

# A script that starts a run and ends.
DETACHED = """
import json, os, subprocess, sys, time
import jupyter_dist as dist

def waits_here():
    print("up")
    time.sleep(600)

def train():
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    print("child", subprocess.Popen(sleep, start_new_session=True).pid)
    if os.environ["CONFORMANCE_ASKS"] == "yes":
        print("answered", ascii(input("who? ")))
    try:
        waits_here()
    finally:
        print("saved")

if __name__ == "__main__":
    print(dist.run(train, detach=True, **json.load(sys.stdin)).id)
"""

STOPS_IT = """
import sys
import jupyter_dist as dist

run = dist.attach(sys.argv[1])
print(run.state)
run.stop()
run.wait(float(sys.argv[2]))
run.stop()
print(run.state)
"""

COUNTS = f"""
{_MEETS}
import subprocess, sys

sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep, start_new_session=True)
print("child", child.pid)
connections = meet()
print("up")
for number in range(LINES):
    print("line", number)
    dist.log(loss=number, step=number)
    time.sleep(0.02)
child.kill()
number
"""
