"""Hooks in torch that observe a training, and the hints on its steps: `own-model`, `weights` and others."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..host.machine import cores
from ..patching import unwrap, wrap
from ..steps.torch import bind_torch, is_compiling
from . import files, foreign, mentions_ranks, report, safely, world_size
from .losses import Backward
from .torch_data import Batches

__all__ = ["patch"]

_COMPARED = (1, 10)
"""The steps of an optimizer after which ranks compare weights and gradients."""
_ALONE, _ALONE_WITH_GROUP = 10, 100
"""The steps without an exchange after which a rank counts as alone. Local SGD averages once in many steps."""
_LARGEST = 50_000_000
"""The most parameters of which a sum is made."""


def patch(torch: ModuleType) -> None:
    """Observe batches, losses, steps and saved files. `torch`: the package, after its import."""
    from torch.optim import optimizer  # torch 1.13 removes the attribute, and this import finds the module

    if not hasattr(optimizer, "register_optimizer_step_post_hook"):
        return  # torch 1.13. A note of steps/torch.py says so.
    bind_torch()
    batches, losses, steps = _fresh(torch)
    steps.hook = optimizer.register_optimizer_step_post_hook(steps.take)

    plain = torch.Tensor

    def backward(original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(self: Any, *args: Any, **options: Any) -> Any:
            # A subclass, such as a DTensor, may ask other ranks for its value. A loss is one number.
            if type(self) is plain and not args and not is_compiling():
                if losses.looks:
                    losses.take(self)
                if batches.follows:
                    batches.backward(self)
                if steps.over:
                    steps.remove_hook()
            return original(self, *args, **options)

        return backward

    wrap(torch.Tensor, "backward", backward)
    if foreign("worker/hints/torch_training", "same-data", "set-epoch", "own-model", "weights"):
        _patch_data(torch.utils.data, batches)
    if torch.distributed.is_available():
        _patch_ddp(torch, batches, steps)
        _count_messages(torch, steps)
    files.patch_torch(torch)


_observers: tuple[Batches, Backward, _Steps] | None = None


def _fresh(torch: ModuleType) -> tuple[Batches, Backward, _Steps]:
    """Return this process's observers, without what they have seen in the last cell of a session.

    `wrap` replaces each function once, so all cells of a session need the same objects.
    """
    global _observers
    precise = frozenset({torch.float32, torch.float64, torch.bfloat16})
    if _observers is None:
        batches = Batches()
        _observers = batches, Backward(precise), _Steps(batches)
        return _observers
    batches, losses, steps = _observers
    batches.on_follow(False)
    if steps.hook is not None:
        steps.remove_hook()
    batches.__init__()  # type: ignore[misc]  # the replaced functions have references to the objects
    losses.__init__(precise)  # type: ignore[misc]
    steps.__init__(batches)  # type: ignore[misc]
    return _observers


def _patch_data(data: ModuleType, batches: Batches) -> None:
    def opened(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(self: Any) -> Any:
            iterator = original(self)
            batches.opened(self, iterator)
            return iterator

        return __iter__

    def fetched(original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(self: Any) -> Any:
            batch = original(self)
            batches.fetched(self, batch)
            return batch

        return __next__

    def sampled(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(self: Any) -> Any:
            batches.sampled(self)
            return original(self)

        return __iter__

    # After the first batches, most trainings need no hook. It costs microseconds in each step.
    def follow(on: bool) -> None:
        (wrap if on else unwrap)(data.dataloader._BaseDataLoaderIter, "__next__", fetched)

    batches.on_follow = follow
    follow(batches.follows)
    wrap(data.DataLoader, "__iter__", opened)
    wrap(data.DistributedSampler, "__iter__", sampled)


def _patch_ddp(torch: ModuleType, batches: Batches, steps: _Steps) -> None:
    learns = torch.is_grad_enabled

    def forward(original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(self: Any, *inputs: Any, **named: Any) -> Any:
            if not is_compiling() and self.training and learns():
                batches.forward(self, inputs, named)
            return original(self, *inputs, **named)

        return forward

    def made(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            steps.wrapped.add(self)

        return __init__

    parallel = torch.nn.parallel.DistributedDataParallel
    wrap(parallel, "__init__", made)
    batches.on_end = lambda: unwrap(parallel, "forward", forward)
    if batches.looks:
        wrap(parallel, "forward", forward)


def _count_messages(torch: ModuleType, steps: _Steps) -> None:
    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            steps.messages += 1
            return original(*args, **options)

        return call

    for name in ("send", "recv", "recv_anysource"):
        wrap(torch._C._distributed_c10d.ProcessGroup, name, counted)


class _Steps:
    """The steps of the first optimizer of a rank."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._first: weakref.ref[Any] | None = None
        self._steps = 0
        self.wrapped: weakref.WeakSet[Any] = weakref.WeakSet()
        """The modules in DistributedDataParallel."""
        self._exchanges: int | None = None
        """The exchanges until the end of the first step."""
        self.messages = 0
        """Messages to and from single ranks, which torch does not count as collectives."""
        self.hook: Any = None
        """torch's handle of the hook."""
        self.over = False
        """Whether the hook can be removed. torch does not allow that while it calls the hook."""

    def take(self, optimizer: Any, args: Any, options: Any) -> None:
        """Look at one step. The signature is that of torch's hooks."""
        if self._steps >= _ALONE_WITH_GROUP or is_compiling():
            return
        if self._first is None:
            self._first = weakref.ref(optimizer)
        if self._first() is optimizer:
            self._steps += 1
            if self._steps in (*_COMPARED, _ALONE, _ALONE_WITH_GROUP) and world_size() > 1:
                self._report(optimizer)
            self.over = self._steps >= _ALONE_WITH_GROUP

    @safely("own-model")
    def remove_hook(self) -> None:
        """Stop looking at steps."""
        self.hook.remove()
        self.over = False

    @safely("own-model")
    def _report(self, optimizer: Any) -> None:
        torch = sys.modules["torch"]
        groups = optimizer.param_groups
        parameters = [p for group in groups for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        if self._steps == 1:
            _look_at_threads(torch, parameters)
        exchanges, group_size = _exchanges(torch, self.messages)
        if self._steps == 1:
            self._exchanges = exchanges
        horovod = sys.modules.get("horovod.torch")
        hvd_size = horovod.size() if horovod is not None and horovod.is_initialized() else 0
        if max(group_size, hvd_size) == 1:
            report("world-size", of="torch.distributed" if group_size else "Horovod")
            return
        if any(type(p) not in (torch.Tensor, torch.nn.Parameter) for p in parameters):
            return  # a part of a parameter that the ranks share out
        shapes = [tuple(p.shape) for p in parameters]
        same = _digest([type(optimizer).__name__, _settings(groups), shapes])
        facts: dict[str, Any] = {"step": self._steps, "same": same}
        alone = hvd_size < 2 and exchanges == 0
        if (
            exchanges
            and exchanges == self._exchanges
            and self._steps == _ALONE_WITH_GROUP
            and self._are_wrapped(parameters)
        ):
            report("own-model", meant=True, wrapped=True, **facts)
        if alone and self._steps == (_ALONE_WITH_GROUP if group_size > 1 else _ALONE):
            meant = group_size > 1 or self._batches.are_shared_out() or not mentions_ranks()
            report("own-model", meant=meant, **facts)
        if not alone and self._steps in _COMPARED:
            sums = _sums(torch, parameters)
            if sums is not None:
                last = self._steps == _COMPARED[-1]
                report("weights", last=last, weights=sums[0], gradients=sums[1], **facts)

    def _are_wrapped(self, parameters: list[Any]) -> bool:
        """Return whether a DistributedDataParallel of all ranks has one of these parameters."""
        known = set(map(id, parameters))
        modules = [module for module in self.wrapped if module.process_group.size() == world_size()]
        return any(id(parameter) in known for module in modules for parameter in module.parameters())


def _settings(groups: list[dict[str, Any]]) -> list[Any]:
    """Return the settings of an optimizer that are plain numbers, such as its learning rate."""
    plain = (bool, int, float, str, tuple)
    return [
        sorted((key, value) for key, value in group.items() if isinstance(value, plain)) for group in groups
    ]


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


def _sums(torch: Any, parameters: list[Any]) -> tuple[str, str] | None:
    """Return sums of the weights and of the gradients. None if a device would have to be waited for."""
    if any(p.device.type != "cpu" or p.grad.layout is not torch.strided for p in parameters):
        return None
    if sum(p.numel() for p in parameters) > _LARGEST:
        return None
    with torch.no_grad():
        # A sum of many float32 depends on the number of threads, which is the same on all ranks of a machine.
        weights = [float(p.sum(dtype=torch.float64)) for p in parameters]
        gradients = [float(p.grad.sum(dtype=torch.float64)) for p in parameters]
    return _digest(weights), _digest(gradients) if any(gradients) else ""


def _exchanges(torch: Any, messages: int) -> tuple[int | None, int]:
    """Return the number of collectives and messages so far, and the size of the default group or 0.

    The number is None if ranks may exchange gradients in a way that is not seen here.
    """
    distributed = torch.distributed
    if any(name in sys.modules for name in ("mpi4py.MPI", "deepspeed", "bagua", "byteps", "hivemind")):
        return None, 0
    if not distributed.is_available() or not distributed.is_initialized():
        return None if _uses_rpc() else 0, 0
    groups = list(distributed.distributed_c10d._world.pg_names)
    try:
        number = messages + sum(group._get_sequence_number_for_group() for group in groups)
    except RuntimeError:  # this communicator does not count
        number = None
    return None if _uses_rpc() else number, distributed.get_world_size()


def _uses_rpc() -> bool:
    rpc = sys.modules.get("torch.distributed.rpc")
    try:
        return rpc is not None and bool(rpc.get_worker_info())
    except RuntimeError:
        return False


def _look_at_threads(torch: Any, parameters: list[Any]) -> None:
    threads, ranks = torch.get_num_threads(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if threads > 1 and threads * ranks > cores() and parameters[0].device.type == "cpu":
        report("cpu-threads", threads=threads, ranks=ranks, cores=cores(), **_own_cores())


def _own_cores() -> dict[str, Any]:
    """Return which cores this rank may use. A launcher can bind the ranks of a machine to different cores."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    mask = sum(1 << core for core in os.sched_getaffinity(0))
    return {"host": socket.gethostname(), "mask": f"{mask:x}"}
