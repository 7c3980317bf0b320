"""Processes that a cell starts on a rank: they end when they should, and know what the cell defines."""

from __future__ import annotations

import enum
import json
import types
from typing import Any

import pytest

from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.worker.rank import main_snapshot
from tests.rigs.launching import ended, launch_cell, logs, results, story
from tests.rigs.stopwatch import Stopwatch, WaitFor

MANY_POOLS = """
import multiprocessing as mp, os, signal, threading

def same(x):
    return x

hung = []
for number in range(pools):
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


@pytest.mark.parametrize("pools", [100, 1000])
def test_no_pool_hangs(pools: int) -> None:
    """A forked process that had a rank's signals did not always end: 36 of 600 pools hung."""
    folder = launch_cell("local", MANY_POOLS, 1, names={"pools": pools})
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == [(True, [])]
    assert "Terminated" not in "\n".join(logs(folder, 0))


FORKS = """
import os, signal, sys, threading, time
from types import SimpleNamespace
import jupyter_dist as dist
from jupyter_dist.worker import boot

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

def stopped_while_it_forks():
    again = []

    def timer(seconds, *call):
        again.append(call)
        return SimpleNamespace(start=lambda: None)

    threads, boot.threading = boot.threading, SimpleNamespace(Timer=timer)
    boot._before_fork()
    os.kill(os.getpid(), signal.SIGTERM)
    boot._after_fork_in_parent()  # what it raises Python would ignore
    boot.threading = threads
    ((call, words),) = again
    try:
        call(*words)
        time.sleep(60)
    except SystemExit:
        return "stops"

stops = stopped_while_it_forks()
seen = [fork(logs), fork(lambda: 1 / 0), fork(lambda: sys.exit(5)), fork(wait_to_be_ended), fork(own_signal)]
in_thread()
try:
    seen.append(fork(goes_on))
except Passes:
    print("a fork comes to the end of the cell")
blocked = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())
seen, stops, blocked
"""


def test_what_a_rank_forks_is_not_the_rank() -> None:
    folder = launch_cell("local", FORKS, 1)
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == [([0, 1, 5, -15, 7, -15, 0], "stops", False)]
    rank = folder.rank(0, 0)
    kinds = [json.loads(line)["kind"] for line in rank.events.read_text().splitlines()]
    assert sorted(kinds) == ["cell", "metric", "result", "started"]
    assert not rank.error.exists()
    log = "\n".join(logs(folder, 0))
    assert log.count("ZeroDivisionError: division by zero") == 1
    assert "a fork comes to the end of the cell" in log


EARLIER = """
import dataclasses, functools, math, threading
import numpy as np

SCALE = 10
TABLE = {"two": 2}

@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    def scaled(self):
        return Point(self.x * SCALE)

class Base:
    kinds = {}
    def __init_subclass__(cls):
        Base.kinds[cls.__name__] = cls

class One(Base):
    pass

def twice(x):
    return math.floor(x * TABLE["two"])

def of_point(point):
    return point.scaled()
"""

SPAWNS = """
import concurrent.futures, multiprocessing as mp, os, pickle, sys
import jupyter_dist as dist

print("the cell's statements run")
TABLE["two"] = 3          # what the cell changes counts
offset = 2 ** 5 + len(sys.argv)
big = np.arange(400_000.0)
lock = mp.Lock()

class Data(Point):
    def shifted(self):
        return self.x + offset

@functools.lru_cache
def shifted(data):
    return data.shifted()

sharing = [big]
square = lambda x: x * x
steps = [square, lambda x: x + offset]

def facts(name):
    big[0] = 7
    main = sys.modules["__main__"]
    return {
        "name": __name__,
        "pickled": pickle.loads(pickle.dumps(facts)) is facts and pickle.loads(pickle.dumps(Data)) is Data,
        "is_main": main.facts is facts,
        "sum": float(big[1:].sum()),
        "shared": sharing[0] is big and float(sharing[0][0]),
        "steps": [step(3) for step in steps],
        "kinds": sorted(Base.kinds), "same": Base.kinds["One"] is One,
        "rank": dist.rank(),
        "name_of_process": name,
    }

def locked(x):
    dist.log(locked=x, step=x)
    with lock:
        return x

def only_in(pid):
    if os.getpid() != pid:
        raise OSError("not here")

class Bound:
    pid = os.getpid()
    def __reduce__(self):
        return only_in, (self.pid,)

bound = Bound()

def unbound():
    return bound

def fails(x):
    raise ValueError(x)

def says(queue):
    print("said by a process")
    queue.put(Data(4))
    os._exit(0)               # a stream that is written in blocks would be lost

def starts_another(x):
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.map(twice, [x])

if __name__ == "__main__":
    print("main runs")

def asked(context):
    seen = {}
    with context.Pool(2) as pool:
        seen["twice"] = pool.map(twice, [1, 2])
        seen["points"] = pool.map(of_point, [Point(1), Data(2)])
        seen["shifted"] = pool.apply(shifted, [Data(1)])
        seen["facts"] = pool.apply(facts, ["a"])
        try:
            pool.apply(fails, [3])
        except ValueError as error:
            seen["error"] = str(error), "raise ValueError(x)" in str(error.__cause__)
        for call, arguments in ((locked, [3]), (unbound, [])):
            try:
                pool.apply(call, arguments)
            except NameError as error:
                seen[call.__name__] = str(error)
    queue = context.SimpleQueue()
    process = context.Process(target=says, args=(queue,))
    process.start()
    seen["said"] = queue.get().shifted()
    process.join()
    return seen

spawn = mp.get_context("spawn")
seen = {method: asked(mp.get_context(method)) for method in ("spawn", "forkserver")}
with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
    seen["executor"] = list(pool.map(twice, [5])), pool.submit(starts_another, 2).result()
TABLE["two"] = 4
with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
    seen["later"] = pool.submit(twice, 5).result()
seen["big"] = float(big[0])
seen
"""


def test_a_process_that_is_spawned_knows_what_the_cells_define() -> None:
    cells: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(EARLIER, "<In[1]>", "exec"), cells)
    folder = launch_cell("local", SPAWNS, 1, names=cells)
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    (seen,) = results(folder, 1)
    facts = {
        **{"name": "__mp_main__", "pickled": True, "is_main": True, "rank": 0, "name_of_process": "a"},
        **{"sum": 399_999 * 200_000.0, "shared": 7.0, "steps": [9, 36], "kinds": ["One"], "same": True},
    }
    for method in ("spawn", "forkserver"):
        there = seen[method]
        assert there["facts"] == facts
        assert (there["twice"], there["shifted"], there["said"]) == ([3, 6], 34, 37), (
            "as the cell has changed it"
        )
        assert [vars(point) for point in there["points"]] == [{"x": 10}, {"x": 20}]
        assert there["error"] == ("3", True)
        assert there["locked"] == "name 'lock' is not defined", (
            "not another lock, which would hold off nobody"
        )
        assert there["unbound"] == "name 'bound' is not defined"
    metrics = [event.data for event in reader.events(folder) if event.kind == "metric"]
    assert [(data["step"], data["values"]) for data in metrics] == [(3, {"locked": 3})] * 2
    assert seen["executor"] == ([15], [6])
    assert seen["later"] == 20
    assert seen["big"] == 0, "an array is shared until it is written to"
    log = logs(folder, 0)
    assert "jupyter_dist: a process that was spawned lacks 'bound': OSError: not here" in log
    assert [log.count(line) for line in ("the cell's statements run", "main runs", "said by a process")] == [
        1,
        1,
        2,
    ]
    assert not list(folder.rank(0, 0).path.glob(".main")), "what was handed on is removed"


DATASETS = """
import torch

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor(float(index * index))
"""

TRAINS = """
import joblib
from torch.utils.data import ConcatDataset, DataLoader
import torch.multiprocessing

SHIFT = torch.tensor(1.5)

class Shifted(Squares):
    def __getitem__(self, index):
        return super().__getitem__(index) + SHIFT

def doubled(batch):
    return 2 * torch.stack(batch)

def loaded(method, workers):
    data = ConcatDataset([Squares(), Shifted()])
    loader = DataLoader(data, 4, num_workers=workers, multiprocessing_context=method, collate_fn=doubled)
    return float(sum(batch.sum() for batch in loader))

def train(index, out):
    out[index] = index + SHIFT

def plus(x):
    return x + OFFSET

OFFSET = 3
seen = [loaded("fork", 2), loaded("spawn", 2)]
out = torch.zeros(2).share_memory_()
torch.multiprocessing.spawn(train, (out,), nprocs=2)
seen.append(out.tolist())
seen.append(joblib.Parallel(2)(joblib.delayed(plus)(number) for number in range(2)))
seen
"""


@pytest.mark.parametrize(
    ("module", "base", "stays"),
    [
        ("accelerate.accelerator", object, True),
        ("lightning.pytorch.trainer.trainer", object, True),
        ("lightning.fabric.utilities.device_dtype_mixin", object, False),  # every LightningModule has it
        ("transformers.trainer", object, True),
        ("transformers.trainer_utils", object, False),
        ("transformers.training_args", enum.Enum, True),
        ("torch.distributed.fsdp.api", object, True),
        ("torch.distributed.fsdp.api", enum.Enum, False),
        ("numpy", object, False),
    ],
)
def test_what_connects_a_rank_is_not_made_again_in_its_processes(
    module: str, base: type, stays: bool
) -> None:
    of_the_library = types.new_class(
        "OfTheLibrary", (base,), exec_body=lambda space: space.update({"__module__": module})
    )
    of_the_cell = types.new_class("OfTheCell", (of_the_library,))
    assert [main_snapshot._is_the_ranks(kind) for kind in (of_the_library, of_the_cell)] == [stays, stays]


@pytest.mark.needs("torch", "joblib")
def test_what_torch_spawns_knows_it_as_well() -> None:
    cells: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(DATASETS, "<In[1]>", "exec"), cells)
    folder = launch_cell("local", TRAINS, 1, names=cells, cold=False)  # torch is there before the cell is
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    total = 2 * (140 + 140 + 8 * 1.5)
    assert results(folder, 1) == [[total, total, [1.5, 2.5], [3, 4]]]


STARTS_MUCH = """
import multiprocessing as mp, subprocess, time
import jupyter_dist as dist

def wait():
    print("started\\n", end="", flush=True)  # in one piece: seven write to one file
    time.sleep(600)

started = [subprocess.Popen(["sh", "-c", "trap '' TERM; echo started; sleep 600"])]
for method in ("fork", "spawn", "forkserver"):
    for daemon in (True, False):
        started.append(mp.get_context(method).Process(target=wait, daemon=daemon))
        started[-1].start()
time.sleep(600)
"""


def test_a_stopped_run_leaves_nothing_that_its_ranks_have_started(wait_for: WaitFor) -> None:
    folder = launch_cell("local", STARTS_MUCH, 2)
    wait_for(
        lambda: all(reader.output(folder, rank).count(b"started") == 7 for rank in (0, 1)),
        "all processes",
    )
    watch = Stopwatch()
    folder.request("stop")
    assert ended(folder).state is State.STOPPED, story(folder)
    assert watch.under(4), "nobody waits for processes that are not daemons until the rank is killed"
    assert set(logs(folder, 0)) == {"started"}
    # The fixture `no_leftovers` looks for what is left.
