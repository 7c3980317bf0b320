"""The functions that a cell calls on a rank.

A cell imports them with `import jupyter_dist as dist`, then calls `dist.rank()`, `dist.log(loss=…)`, …. Every
function also works outside a run, as the only rank of a world of one. So the same code runs in the notebook
itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import steps
from ..data import sharding
from ..output import events
from ..output.progress_meter import Meter
from ..output.scalars import number, step_number
from . import cell_state as _state
from . import file_barrier as _barrier
from . import trial_pause as _pause
from .folders import checkpoint_dir, input, model_dir
from .torch_devices import has_gpu, shares_gpu, torch_for

if TYPE_CHECKING:
    import tensorflow as tf
    import torch

    from ..output.logged_media import Medium

__all__ = [
    "attempt",
    "barrier",
    "checkpoint_dir",
    "device",
    "init",
    "input",
    "local_rank",
    "local_world_size",
    "log",
    "model_dir",
    "progress",
    "rank",
    "shard",
    "strategy",
    "world_size",
]


T = TypeVar("T")

_STEPS = 1 << 63
_NUMBERS = (bool, int, float)


def rank() -> int:
    """Return this process's index in the run, from 0. Outside a run: 0."""
    return int(os.environ.get("RANK", 0))


def world_size() -> int:
    """Return the number of ranks in the run. Outside a run: 1."""
    return int(os.environ.get("WORLD_SIZE", 1))


def local_rank() -> int:
    """Return this process's index among the ranks on its host, from 0. Outside a run: 0."""
    return int(os.environ.get("LOCAL_RANK", 0))


def local_world_size() -> int:
    """Return the number of ranks on this host. Outside a run: 1."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def attempt() -> int:
    """Return how often the run has been restarted: 0 the first time. Outside a run: 0."""
    return int(os.environ.get("JUPYTER_DIST_ATTEMPT", 0))


def log(values: Mapping[str, Any] | None = None, /, *, step: int | None = None, **scalars: Any) -> None:
    """Record metrics of this rank: `log(loss=0.3, step=10)` or `log({"val/loss": 0.3}, step=10)`.

    A value is an int, a float, a bool or a 0-d numpy, torch or TensorFlow value. NaN and infinities are kept.
    If `step` is None, the step is that of this rank's last call plus one, at first 0. The metrics are in the
    run folder when the call returns: a rank that is killed afterwards loses none.

    The function also logs pictures, texts, tables and histograms: `log(image=figure, step=10)`, `text=…`,
    `table=…`, `histogram=…`. Use a dict for several of them: `image={"input": x, "output": y}`. Under any
    other name, a figure, a PIL image, a data frame or an array that looks like a picture is logged by its
    type. Up to 100 MB of them are kept for each rank.

    Outside a run the values are checked and nothing is recorded. On a full disk the training continues. The
    log of the rank then gets a line, and the run a note with the number of lost metrics.

    Raises:
    - TypeError, with the value and its type.
    - ValueError for a value that is not a picture, and for a step of more than 64 bits.
    """
    if values is not None:
        scalars = _merged(values, scalars)
    others: list[Medium] = []
    for value in scalars.values():
        # numpy's float64 is also a float, but its repr is not a number. So only exact types pass here.
        kind = type(value)
        if kind is not float and kind is not int:
            scalars, others = _with_media(scalars)
            break
    if step is None:
        step = _state.step + 1
    elif type(step) is not int:
        step = step_number(step)
    if not -_STEPS <= step < _STEPS:
        raise ValueError(f"step is {step}; it must fit in 64 bits")
    writer = events.writer()
    written = writer is not None and bool(scalars) and writer.metric(scalars, step)
    if others:
        _write_media(others, step)
    _state.step = step
    steps.mark(steps.Source.LOG)
    if _state.pause_metric is not None and written and _state.pause_metric in scalars:
        _pause.logged()


def _with_media(values: dict[str, Any]) -> tuple[dict[str, Any], list[Medium]]:
    if all(type(value) in _NUMBERS or getattr(value, "shape", None) == () for value in values.values()):
        return {name: number(name, value) for name, value in values.items()}, []
    from ..output import logged_media

    return logged_media.split(values)


def _write_media(others: list[Medium], step: int) -> None:
    from ..output import media

    writer = media.of_rank()
    if writer is not None:
        for name, kind, data in others:
            writer.media(name, step, kind, data)


def _merged(values: Mapping[str, Any], scalars: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"log() needs a dict of metrics or keywords, not a {type(values).__name__}. Write log(loss=0.3)"
        )
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"the name of a metric is a str, not {name!r} ({type(name).__name__})")
    return {**values, **scalars}


class _Progress(Generic[T]):
    def __init__(self, iterable: Iterable[T], total: float | None, desc: str) -> None:
        self._iterable = iterable
        self._total = total
        self._desc = desc

    def __iter__(self) -> Iterator[T]:
        meter = Meter(_length(self._iterable) if self._total is None else self._total, self._desc)
        n = 0
        try:
            for item in self._iterable:
                before = steps.marks()
                yield item
                n += 1
                meter.update(n)
                if steps.marks() == before:  # otherwise an inner loop has counted its items
                    steps.mark(steps.Source.PROGRESS)
        finally:
            meter.close()

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]


def progress(iterable: Iterable[T], total: int | None = None, desc: str = "") -> Iterable[T]:
    """Iterate over `iterable` and report the progress of this rank.

    The count is the number of items that the loop has finished. `total` defaults to `len(iterable)` if it has
    a length. The function reports the start, the count at which the loop ends (also by `break` or an
    exception), and at most about ten counts a second between. Loops may be nested. A loop may run again if
    `iterable` may be iterated again. Outside a run the function only iterates.

    Raises TypeError if `iterable` cannot be iterated over, and if `total` is not a number.
    """
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        raise TypeError(f"progress() needs something to iterate over, not a {type(iterable).__name__}")
    # JSON has no numbers of numpy or torch, such as the count `(labels == 1).sum()`.
    whole = None if total is None else number("total", total)
    return _Progress(iterable, whole, "" if desc is None else str(desc))


def _length(iterable: Any) -> int | None:
    try:
        return len(iterable)
    except (TypeError, NotImplementedError):
        # The `__len__` of tf.data and torch raises an error if the length is unknown.
        return None


def device() -> torch.device:
    """Return the torch device of this rank: its first GPU, or the CPU if the rank has no GPU.

    A rank sees only its own share of the GPUs, so the device is `cuda:0` on each rank. Outside a run: the
    first GPU, if there is one.

    Raises ModuleNotFoundError when PyTorch is not installed.
    """
    torch = torch_for("device")
    if not has_gpu(torch):
        return torch.device("cpu")
    if "JUPYTER_DIST_GPUS" in os.environ:
        return torch.device("cuda", 0)
    # Under a launcher that is not part of jupyter-dist, every rank sees all GPUs.
    from ..gpus import by_local_rank

    return torch.device("cuda", by_local_rank.own(torch.cuda.device_count()))


def init(communicator: str | None = None, timeout_s: float | None = None) -> None:
    """Open the default process group of torch.distributed. Returns at once if the group is already open.

    Args:
    - `communicator`: torch's name of its backend, such as "gloo". The default is "nccl" if every rank has a
      GPU of its own, otherwise "gloo". NCCL refuses ranks that share a GPU.
    - `timeout_s`: how long a collective waits for the other ranks, in seconds (default: torch's). Collectives
      of NCCL have no such limit in a session.

    The function also makes `device()` the current CUDA device. jupyter-dist closes the group when the cell
    has succeeded. Outside a run, the group has only this process.

    Raises ModuleNotFoundError when PyTorch is not installed, RuntimeError when a group with another
    communicator is open.
    Blocks until every rank has called it.
    """
    torch = torch_for("init")
    from datetime import timedelta

    import torch.distributed as group

    if not group.is_available():
        raise RuntimeError("dist.init() needs a PyTorch that was built with torch.distributed")
    place = device()
    chosen = os.environ.get("JUPYTER_DIST_COMMUNICATOR")  # the value of --communicator
    alone = place.type == "cuda" and not shares_gpu(torch, local_world_size())
    wanted = communicator or chosen or ("nccl" if alone else "gloo")
    if group.is_initialized():
        if communicator is not None and group.get_backend() != communicator:
            raise RuntimeError(
                f"torch.distributed is already open with {group.get_backend()!r}; "
                f"it cannot be opened again with {communicator!r}"
            )
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    options: dict[str, Any] = {} if timeout_s is None else {"timeout": timedelta(seconds=timeout_s)}
    if wanted == "nccl" and _state.of_session:
        from ..session.nccl_groups import bound

        options |= bound(group, place)
    if "WORLD_SIZE" not in os.environ:
        options["store"] = group.HashStore()
    group.init_process_group(wanted, rank=rank(), world_size=world_size(), **options)
    _state.opened_group = True


def strategy(kind: str | None = None, **options: Any) -> tf.distribute.Strategy:
    """Return the tf.distribute strategy that fits this rank.

    A printed line names the strategy and the reason. Every rank has TF_CONFIG on backends that support
    TensorFlow's roles. TF_CONFIG decides:
    - With parameter servers (`--ps`): ParameterServerStrategy on the chief, with its ClusterCoordinator as
      `strategy.coordinator`. On workers and parameter servers the call serves and does not return. The run
      ends them when the other ranks are done, and their result is None. So all ranks run the same cell, and
      only the chief runs the code below the call. Without a chief, worker 0 is the chief.
    - With several workers and no parameter servers: MultiWorkerMirroredStrategy, which waits for all workers.
    - Otherwise, and on an evaluator, the devices of this rank decide: TPUStrategy, MirroredStrategy on
      several GPUs (or logical CPUs), OneDeviceStrategy on one GPU or the CPU.

    Args:
    - `kind` chooses a strategy: "one_device", "mirrored", "multi_worker_mirrored", "parameter_server",
      "central_storage" or "tpu". TensorFlow's class names also work.
    - `options` are passed to the class. `devices=["CPU:0", "CPU:1"]` for "mirrored" also divides the CPU into
      that many devices.

    Call the function before any other function of TensorFlow. A second call with the same kind and no options
    returns the same strategy.

    Raises ModuleNotFoundError when TensorFlow is not installed, ValueError for an unknown name or a kind that
    does not fit TF_CONFIG, RuntimeError when there is no TPU.
    """
    from ..tensorflow import strategies

    return strategies.make(kind, options, world_size())


def shard(data: Any, even: bool = False, partitions: int | bool | None = None) -> Any:
    """Return this rank's share of `data`. Every item goes to exactly one rank.

    - list, tuple and other sequences, numpy arrays, torch tensors, pandas DataFrame and Series:
      `data[rank::world_size]` along the first axis, of the same type (a view if slicing returns a view).
    - torch map-style Dataset: a `Subset`.
    - torch IterableDataset: an IterableDataset of every world_size-th item.
    - Anything else with `__len__` and `__getitem__`: a sequence that reads its items when they are requested.
    - An object with a `shard` method (tf.data.Dataset, Hugging Face datasets):
      `data.shard(world_size, rank)`.
    - A Hugging Face IterableDataset with too few files: every world_size-th item.
    - A Ray Dataset: a `ray.data.DataIterator` that streams this rank's part. All ranks read one
      `streaming_split`, each the same number of rows: up to world_size - 1 rows are left out. The ranks
      iterate over it together. If one rank leaves early, the other ranks wait. If ranks make several datasets
      themselves, all ranks must call this for the same ones in the same order.
    - A Spark DataFrame: a `pyarrow.Table` of neighbouring rows, partition after partition.
    - An iterator: an iterator over every world_size-th item.

    `even=True` leaves out up to world_size - 1 items at the end, so that all ranks get equally many.
    Otherwise collectives in a training loop wait for a batch that one rank does not have. Every rank must
    have the same data in the same order.

    `partitions` is for a Spark DataFrame. The result is a list of tables, for example one for each model:

    - `partitions=True`: the DataFrame's own partitions, as after `frame.repartition(100, "shop")`. Empty
      partitions are left out.
    - `partitions=100`: all rows divided into 100 parts of equal size. 10 ranks have 10 parts each.

    Raises TypeError for a dict, a set, a DataLoader, a string, a number or None. With `even`, raises
    TypeError if a data set does not have a length. With `partitions`, raises TypeError for other data, and
    ValueError for a number below 1.
    """
    return sharding.share(data, rank(), world_size(), even, partitions)


def barrier(timeout_s: float | None = None) -> None:
    """Wait until every rank has called this function. Outside a run it returns at once.

    The barrier uses torch.distributed if a process group is open, otherwise files in the run folder.

    Raises TimeoutError after `timeout_s` seconds. With files, raises RuntimeError instead of waiting forever
    if a rank has ended before the barrier.
    """
    group = _open_group()
    run = os.environ.get("JUPYTER_DIST_RUN")
    if group is None:
        if world_size() == 1:
            return
        if run is None:
            raise RuntimeError("dist.barrier() finds no run folder for this process. Call dist.init() first")
        _barrier.meet(run, attempt(), rank(), world_size(), timeout_s)
    elif timeout_s is not None and group.get_backend() == "gloo":
        _timed_barrier(group, timeout_s)
    elif timeout_s is not None and run is not None:
        # NCCL cannot abandon a barrier without ending the process. So wait for the GPU, then meet in files.
        if group.get_backend() == "nccl":
            sys.modules["torch"].cuda.synchronize(device())
        _barrier.meet(run, attempt(), rank(), world_size(), timeout_s)
    elif group.get_backend() == "nccl":
        group.barrier(device_ids=[device().index])
    else:
        group.barrier()


def _timed_barrier(group: Any, timeout_s: float) -> None:
    from datetime import timedelta

    start = time.monotonic()
    try:
        group.monitored_barrier(timeout=timedelta(seconds=timeout_s), wait_all_ranks=True)
    except RuntimeError as error:
        if time.monotonic() - start < timeout_s:
            raise
        raise TimeoutError(f"rank {rank()} waited {timeout_s:g} s at a barrier: {error}") from error


def _open_group() -> Any:
    """Return torch.distributed if its default group is open, otherwise None. Imports nothing."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        return group
    return None


def _finish(ok: bool) -> None:
    """Close the process group at the end of a cell, if `init` opened it and the cell succeeded.

    After a failure the group stays open: closing it can wait for ranks that no longer answer.
    """
    group = _open_group()
    if _state.opened_group and ok and group is not None:
        group.destroy_process_group()
    _state.opened_group = False
