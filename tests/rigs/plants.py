# ruff: noqa: E501  # a table, a line for each failure
"""Failures that are planted in cells, and the first line that the card says of each.

`python -m tests.rigs.plants` prints them as the table of docs/failures.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PLANTS", "Plant", "table"]

_TORCH = """
import atexit, ctypes, os, queue, signal, sys, threading, time, urllib.request
from datetime import timedelta
import torch, torch.distributed as d
from torch import nn
import jupyter_dist as dist
torch.set_num_threads(1)
r = dist.rank()
x = torch.ones(4)
"""
_LOOP = """
dist.init()
for i in range(5):
    {plant}
    d.all_reduce(x)
"""
_DDP = """
dist.init()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(5, 2))
for i in range(5):
    {plant}
    model(torch.ones(3, 5)).sum().backward()
"""
_DATA = """
dist.init()
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, row):
        if r == 1 and row == 13: {plant}
        return torch.ones(2)
for batch in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1, prefetch_factor=1):
    d.all_reduce(batch.sum())
"""
_HOROVOD = """
import os, sys, time
import torch
import horovod.torch as hvd
torch.set_num_threads(1)
hvd.init()
r = hvd.rank()
x = torch.ones(4)
for i in range(5):
    {plant}
    hvd.allreduce(x, name=f"step.{{i}}")
"""
_KERAS = """
import os, time
import numpy as np
import tensorflow as tf
import jupyter_dist as dist
r = dist.rank()
class Plant(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if r == 1 and batch == 3: {plant}
with dist.strategy().scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense({units})])
    model.compile("sgd", "mse")
{before}
data = {data}.batch(4)
model.fit(data, epochs=2, verbose=0, callbacks=[Plant()])
"""
_ROWS = "tf.data.Dataset.from_tensor_slices((tf.ones(({rows}, 4)), tf.ones(({rows}, 1))))"
_GENERATOR = """
def rows():
    for row in range(64):
        if r == 1 and row == 20: time.sleep(600)
        yield np.ones(4), np.ones(1)
off = tf.data.Options()
off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
"""
_GENERATED = "tf.data.Dataset.from_generator(rows, output_types=(float, float), output_shapes=(4, 1)).with_options(off)"
_FUNCTION = """
import time
import tensorflow as tf
import jupyter_dist as dist
strategy = dist.strategy()
@tf.function
def step(x): return strategy.reduce("SUM", strategy.run(tf.identity, (x,)), axis=None)
for i in range(5):
    if dist.rank() == 1 and i == 3: time.sleep(600)
    step(tf.ones(4))
"""
_MPI = """
import time
from mpi4py import MPI
comm = MPI.COMM_WORLD
for i in range(5):
    {plant}
    comm.allreduce(1)
"""


@dataclass(frozen=True)
class Plant:
    """One failure. `…` in `first` stands for any text."""

    name: str
    planted: str
    """What is planted, for a reader."""
    code: str
    first: str
    """The card's first line."""
    hint: str = ""
    """A part of the card's advice."""
    place: str = ""
    """A part of a place that the card names."""
    hangs: bool = False
    """The run is stopped after a while."""
    backend: str = "local"
    np: int = 3
    everywhere: bool = False
    """Whether it is planted on other backends as well."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The libraries that the code imports."""
        return tuple(name for name in ("torch", "horovod", "tensorflow", "mpi4py") if f" {name}" in self.code)

    def says(self, line: str) -> bool:
        """Return whether a line is the expected first line."""
        return re.fullmatch(".*".join(map(re.escape, self.first.split("…"))), line) is not None


def _torch(name: str, planted: str, code: str, first: str, **more: object) -> Plant:
    return Plant(name, planted, _TORCH + code, first, **more)  # type: ignore[arg-type]


def _loop(name: str, plant: str, first: str, **more: object) -> Plant:
    when = plant if plant.startswith("if ") else f"if r == 1 and i == 3: {plant}"
    return _torch(name, f"`{plant}` before an all_reduce", _LOOP.format(plant=when), first, **more)


def _ddp(name: str, planted: str, plant: str, first: str, **more: object) -> Plant:
    return _torch(name, planted, _DDP.format(plant=plant), first, **more)


def _horovod(name: str, plant: str, first: str, **more: object) -> Plant:
    when = plant if plant.startswith("if ") else f"if r == 1 and i == 3: {plant}"
    planted = f"Horovod: `{plant}` before an allreduce"
    return Plant(name, planted, _HOROVOD.format(plant=when), first, backend="horovod", **more)  # type: ignore[arg-type]


def _keras(name: str, planted: str, first: str, plant: str = "pass", **more: object) -> Plant:
    values = {"plant": plant, "units": more.pop("units", "1"), "before": more.pop("before", "")}
    values["data"] = str(more.pop("data", _ROWS)).format(rows=more.pop("rows", "32"))
    return Plant(name, f"Keras: {planted}", _KERAS.format(**values), first, np=2, **more)  # type: ignore[arg-type]


_ELSEWHERE = "look at where rank 1 was"
_ORDER = "every rank must call the same collectives in the same order"
_ALIKE = "tensors of the same shape and type"
_LESS = "dist.shard(data, even=True)"

PLANTS = (
    # What one rank does to itself.
    _loop("raises", "raise ValueError('bad batch 7')", "rank 1 failed first (…): ValueError: bad batch 7", place="In[1]", everywhere=True),
    _loop("segfault", "ctypes.string_at(0)", "rank 1 failed first (… SIGSEGV): ended by SIGSEGV", place="string_at", everywhere=True),
    _loop("killed", "os.kill(os.getpid(), 9)", "rank 1 failed first (… SIGKILL): ended by SIGKILL", everywhere=True),
    _loop("exit-code", "sys.exit(3)", "rank 1 failed first (… exit code 3): ended with exit code 3", place="sys.exit(3)"),
    _loop("exit-text", "sys.exit('no labels in part 7')", "rank 1 failed first (… exit code 1): SystemExit: no labels in part 7", place="sys.exit"),
    _loop("exit-0", "os._exit(0)", "rank 1 exited in its cell: ranks 0,2 failed in all_reduce #4 of float32[4]", hint="os._exit()"),
    _loop("no-gpu", "x.cuda()", "rank 1 failed first (…): AssertionError: Torch not compiled with CUDA enabled", hint="dist.device()"),
    _loop("memory", "torch.empty(10**14)", "rank 1 failed first (…): RuntimeError: …you tried to allocate 400000000000000 bytes…", place="torch.empty"),
    _loop("matrix", "nn.Linear(3, 2)(x)", "rank 1 failed first (…): RuntimeError: … shapes cannot be multiplied (1x4 and 3x2)", place="nn.Linear"),
    _loop("no-folder", "if r == 0 and i == 3: torch.save(x, '/no/such/folder/model.pt')", "rank 0 failed first (…): RuntimeError: Parent directory /no/such/folder does not exist.", place="torch.save"),
    _loop("bad-object", "if i == 3: d.broadcast_object_list([lambda: 1 if r == 0 else None], 0)", "rank 0 failed first (…): …pickle…", hint="cannot be pickled"),
    _loop("refused", "urllib.request.urlopen('http://127.0.0.1:9/')", "rank 1 failed first (…): URLError: <urlopen error [Errno 111] Connection refused>", place="urlopen", everywhere=True),
    _torch("loader-raises", "A worker process of a DataLoader raises", _DATA.format(plant="raise ValueError('corrupt image 13')"), "rank 1 failed first (…): ValueError: Caught ValueError in DataLoader worker process 0. ValueError: corrupt image 13", place="DataLoader"),
    _torch("loader-killed", "A worker process of a DataLoader is killed", _DATA.format(plant="os.kill(os.getpid(), 9)"), "rank 1 failed first (…): RuntimeError: DataLoader worker (pid…) …", hint="a worker process of the DataLoader was killed", place="In[1]"),
    # What ranks do not agree on.
    _loop("ends-early", "break", "rank 1 ended normally after #3: ranks 0,2 failed in all_reduce #4 of float32[4]", hint=_LESS, everywhere=True),
    _loop("exits-early", "sys.exit(0)", "rank 1 ended normally after #3: ranks 0,2 failed in all_reduce #4 of float32[4]", hint=_LESS),
    _loop("sleeps", "time.sleep(600)", "rank 1 did not reach all_reduce #4 of float32[4]: ranks 0,2 wait in it, and rank 1 has finished #3", hint=_ELSEWHERE, place="time.sleep(600)", hangs=True, everywhere=True),
    _loop("loops", "[0 for _ in iter(int, 1)]", "rank 1 did not reach all_reduce #4 of float32[4]: ranks 0,2 wait in it, and rank 1 has finished #3", hint=_ELSEWHERE, place="iter(int, 1)", hangs=True),
    _loop("locked", "lock = threading.Lock(); lock.acquire(); lock.acquire()", "rank 1 did not reach all_reduce #4 of float32[4]: ranks 0,2 wait in it, and rank 1 has finished #3", hint="another rank or thread has the lock", place="lock.acquire()", hangs=True),
    _loop("queue", "queue.Queue().get()", "rank 1 did not reach all_reduce #4 of float32[4]: ranks 0,2 wait in it, and rank 1 has finished #3", hint=_ELSEWHERE, place="queue.Queue().get()", hangs=True),
    _loop("paused", "os.kill(os.getpid(), signal.SIGSTOP)", "rank 1 did not reach all_reduce #4 of float32[4]: ranks 0,2 wait in it", hint=_ELSEWHERE, hangs=True),
    _torch("thread", "A thread that should fill a queue has died", "\ndist.init()\nbatches = queue.Queue()\ndef fill():\n    for i in range(5):\n        if r == 1 and i == 3: raise OSError('disk gone')\n        batches.put(x)\nthreading.Thread(target=fill).start()\nfor i in range(5): d.all_reduce(batches.get())", "rank 1 did not reach all_reduce #4 of float32[4]: ranks 0,2 wait in it, and rank 1 has finished #3", hint="ended with OSError: disk gone", place="batches.get()", hangs=True),
    _torch("loader-hangs", "A worker process of a DataLoader hangs", _DATA.format(plant="time.sleep(600)"), "rank 1 did not reach all_reduce #4 of float32[]: ranks 0,2 wait in it, and rank 1 has finished #3", hint=_ELSEWHERE, place="DataLoader", hangs=True),
    _loop("type", "x = x.double()", "the ranks differ at collective #4: …rank 1 called all_reduce of float64[4]…", hint=_ALIKE, everywhere=True),
    _loop("shape", "x = torch.ones(2, 3)", "the ranks differ at collective #4: ranks 0,2 called all_reduce of float32[4], rank 1 called all_reduce of float32[2, 3]", hint=_ALIKE, hangs=True),
    _loop("larger", "x = torch.ones(400)", "the ranks differ at collective #4: rank 1 called all_reduce of float32[400], rank 0 expected less data in its all_reduce", hint=_ALIKE, place="rank 0 was at In[1]", np=2),
    _loop("other-call", "d.broadcast(x, 0); continue", "the ranks differ at collective #4: ranks 0,2 called all_reduce of float32[4], rank 1 called broadcast with root 0 of float32[4]", hint=_ORDER, hangs=True, everywhere=True),
    _loop("one-more", "if r == 0 and i == 3: d.all_reduce(torch.ones(1))", "rank 0 called one collective more than the others: all_reduce #4 of float32[1]", hint=_ORDER, hangs=True),
    _loop("root", "if i == 3: d.broadcast(x, r)", "the ranks differ at collective #4: rank 0 called broadcast with root 0 of float32[4], rank 1 called broadcast with root 1 of float32[4], rank 2 called broadcast with root 2 of float32[4]", hint="the same src or dst", hangs=True),
    _torch("barrier", "A barrier that only rank 0 calls", "\ndist.init()\nd.all_reduce(x)\nif r == 0:\n    d.barrier()", "ranks 1-2 ended normally after #1: rank 0 failed in barrier #2", hint="every rank must call it"),
    _torch("our-barrier", "`dist.barrier()` without a process group, which only rank 0 calls", "\nif r == 0:\n    dist.barrier()\ntime.sleep(600)", "ranks 1-2 did not reach dist.barrier(): rank 0 waits in it", hint="look at where ranks 1-2 were", place="time.sleep(600)", hangs=True),
    _torch("monitored", "A rank that does not reach monitored_barrier", "\ndist.init()\nif r == 1: time.sleep(600)\nd.monitored_barrier(timeout=timedelta(seconds=1))", "rank 1 did not reach monitored_barrier: ranks 0,2 waited in it until its timeout", hint=_ELSEWHERE),
    _torch("timeout", "A process group with a timeout, and a rank that sleeps", "\nd.init_process_group('gloo', timeout=timedelta(seconds=2))\nd.all_reduce(x)\nif r == 1: time.sleep(600)\nd.all_reduce(x)", "rank 1 did not reach all_reduce #2 of float32[4]: ranks 0,2 failed in it, and rank 1 has finished #1", hint=_ELSEWHERE, place="time.sleep(600)"),
    _torch("no-init", "A rank that does not open its process group", "\nif r == 1: time.sleep(600)\ndist.init()", "rank 1 did not reach init_process_group of 3 ranks: ranks 0,2 wait in it", hint=_ELSEWHERE, place="time.sleep(600)", hangs=True, everywhere=True),
    _torch("ends-without-init", "A rank that ends without opening its process group", "\nif r != 1: dist.init()", "rank 1 ended normally before the others: ranks 0,2 wait in init_process_group of 3 ranks", hint="every rank must call it", hangs=True),
    _torch("world-size", "A wrong WORLD_SIZE", "\nos.environ['WORLD_SIZE'] = '4'\nd.init_process_group('gloo')", "all ranks wait in init_process_group of 4 ranks: …", hint="the run has 3 ranks", hangs=True),
    _torch("recv", "A recv without a send", "\ndist.init()\nif r == 0: d.recv(x, 1)\nd.barrier()", "the ranks wait for each other: rank 1 waits in barrier #1, rank 0 waits in recv from rank 1 of float32[4]", hint="each recv needs a send", hangs=True),
    _torch("ring", "Each rank receives before it sends", "\ndist.init()\nd.recv(x, (r - 1) % 3)\nd.send(x, (r + 1) % 3)", "the ranks wait for each other: rank 1 waits in recv from rank 0 of float32[4], …", hint="each recv needs a send", hangs=True, everywhere=True),
    _torch("wrong-peer", "A send to the wrong rank", "\ndist.init()\nif r == 1: d.send(x, 2)\nif r == 0: d.recv(x, 1)\nd.barrier()", "the ranks wait for each other: …rank 0 waits in recv from rank 1 of float32[4], rank 1 waits in send to rank 2 of float32[4]", hint="each recv needs a send", hangs=True),
    _torch("circle", "Two process groups in another order on each rank", "\ndist.init()\na, b = d.new_group([0, 1]), d.new_group([1, 2])\nif r == 0: d.all_reduce(x, group=a)\nif r == 1: d.all_reduce(x, group=b)\nd.barrier()\nif r == 1: d.all_reduce(x, group=a)\nif r == 2: d.all_reduce(x, group=b)", "the ranks wait for each other: rank 2 waits in barrier #1, …", hint=_ORDER, hangs=True),
    _ddp("ddp-uneven", "DistributedDataParallel, and a rank with fewer batches", "if r == 2 and i == 3: break", "rank 2 ended normally after #…: ranks 0-1 failed in all_reduce #… of float32[12]", hint=_LESS, everywhere=True),
    _ddp("ddp-extra", "DistributedDataParallel, and one more backward on rank 0", "if r == 0 and i == 3: model(torch.ones(1, 5)).sum().backward()\n    if i == 3: d.barrier()", "the ranks differ at collective #…: ranks 1-2 called barrier, rank 0 called all_reduce of float32[12]", hint=_ORDER, hangs=True),
    _torch("ddp-models", "DistributedDataParallel of models that differ", "\ndist.init()\nnn.parallel.DistributedDataParallel(nn.Linear(4, 2 + r // 2))", "rank 2 failed first (…): RuntimeError: [2]: params[0] in this process with sizes [3, 4] appears not to match sizes of the same param in process 0.", place="DistributedDataParallel"),
    _torch("fsdp-uneven", "FSDP, and a rank with fewer batches", "\nfrom torch.distributed.fsdp import fully_shard\ndist.init()\nmodel = nn.Linear(6, 6)\nfully_shard(model)\nfor i in range(2 if r == 2 else 4): model(torch.ones(2, 6)).sum().backward()", "rank 2 ended normally after #…: ranks 0-1 failed in all_gather #… of float32[…]", hint=_LESS),
    _horovod("horovod-ends-early", "break", 'rank 1 ended normally before the others: ranks 0,2 failed in allreduce "step.3" of float32[4]', hint="hvd.join()"),
    _horovod("horovod-sleeps", "time.sleep(600)", 'rank 1 did not reach allreduce "step.3" of float32[4]: ranks 0,2 wait in it', hint=_ELSEWHERE, place="time.sleep(600)", hangs=True),
    _horovod("horovod-shape", "x = torch.ones(5)", 'the ranks differ in allreduce "step.3": ranks 0,2 passed float32[4], rank 1 passed float32[5]', hint=_ALIKE),
    _horovod("horovod-type", "x = x.double()", 'the ranks differ in allreduce "step.3": ranks 0,2 passed float32[4], rank 1 passed float64[4]', hint=_ALIKE),
    _horovod("horovod-root", "if i == 3: hvd.broadcast(x, r % 2, name='weights')", 'the ranks differ in broadcast "weights": ranks 0,2 passed float32[4] with root 0, rank 1 passed float32[4] with root 1', hint="the same src or dst"),
    _horovod("horovod-other-call", "hvd.broadcast(x, 0, name='step.3'); continue", 'the ranks wait for each other: rank 0 waits in allreduce "step.3" of float32[4], rank 1 waits in broadcast "step.3" of float32[4]', hint=_ORDER, hangs=True),
    _horovod("horovod-skips", "continue", 'the ranks wait for each other: rank 0 waits in allreduce "step.3" of float32[4], rank 1 waits in allreduce "step.4" of float32[4]', hint=_ORDER, hangs=True),
    _horovod("horovod-killed", "os.kill(os.getpid(), 9)", "rank 1 failed first (… SIGKILL): ended by SIGKILL"),
    _keras("keras-raises", "a callback raises on worker 1", "rank 1 failed first (…): ValueError: in a callback", plant="raise ValueError('in a callback')", place="raise ValueError"),
    _keras("keras-sleeps", "worker 1 sleeps before `fit`", "rank 1 did not reach a collective of TensorFlow: rank 0 waits in it", before="if r == 1: time.sleep(600)", hint=_ELSEWHERE, place="time.sleep(600)", hangs=True),
    _keras("keras-input", "a generator of worker 1 sleeps", "rank 1 has no data for batch … of Keras: rank 0 waits in it", before=_GENERATOR, data=_GENERATED, hint="the tf.data input", place="the input of rank 1 was at In[1]", hangs=True),
    Plant("tf-function", "TensorFlow: `time.sleep(600)` before a tf.function of all workers", _FUNCTION, "rank 1 did not reach call 4 of step(): rank 0 waits in it", hint=_ELSEWHERE, place="time.sleep(600)", hangs=True, np=2),
    _keras("keras-uneven", "worker 1 has fewer batches", "rank 1 failed first (…): InternalError: …Collective instance … expected …", rows="(32 if r else 64)", hint="equally many batches"),
    _keras("keras-models", "models that differ", "rank 1 failed first (…): InvalidArgumentError: …Shape mismatch in the collective…", units="1 + r", hint="a model with the same shapes"),
    Plant("mpi-sleeps", "MPI: `time.sleep(600)` before an allreduce", _MPI.format(plant="if comm.rank == 1 and i == 3: time.sleep(600)"), "rank 1 did not reach allreduce: ranks 0,2 wait in it", hint=_ELSEWHERE, place="time.sleep(600)", hangs=True, backend="mpi"),
)  # fmt: skip


def table() -> str:
    """Return the plants as a table of Markdown."""
    rows = [f"| {plant.planted} | `{plant.first}` |" for plant in PLANTS]
    return "\n".join(["| Planted | First line of the card |", "|---|---|", *rows])


if __name__ == "__main__":
    print(table())
