"""Steps of torch optimizers, waits for a DataLoader, and waits in collectives and in DDP."""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import foreign_names
from ..output import events
from ..patching import wrap, wrap_copies
from . import Part, Source, add_meter, load, mark, timed, trains_here

__all__ = [
    "bind_torch",
    "is_compiling",
    "patch_collectives",
    "patch_ddp",
    "patch_loader",
    "patch_optimizer",
]

_COLLECTIVES = (
    *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce"),
    *("all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather"),
    *("gather_object", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_single"),
    *("reduce_scatter_tensor", "scatter", "scatter_object_list"),
)
_LOGGING = {"torch.nn.parallel.distributed": "torch._C._distributed_c10d"}
"""The module whose names are needed beside those of another."""
_torch: Any = None
"""The module torch, for the hot path: an `import` in a function costs more."""
_OTHERS_BEFORE_A_CHANGE = 8
"""Steps of other optimizers after which one of them is counted instead."""


def patch_optimizer(module: ModuleType) -> None:
    """Count the steps of torch's optimizers. `module`: torch.optim.optimizer.

    If several optimizers take turns, as in a GAN, the steps of the first one count.
    """
    bind_torch()
    if getattr(module, "_jupyter_dist_steps", False):
        return
    if not hasattr(module, "register_optimizer_step_pre_hook"):
        writer = events.writer()
        if writer is not None:
            writer.note(
                f"torch {_torch.__version__} does not report an optimizer's steps. So the run's profile has "
                "only the steps of dist.log and dist.progress, and the training is not searched for mistakes."
            )
            module._jupyter_dist_steps = True  # type: ignore[attr-defined]  # one note for all cells of a session
        return
    steps = _OptimizerSteps()
    module.register_optimizer_step_pre_hook(steps.begin)
    module.register_optimizer_step_post_hook(steps.end)
    module._jupyter_dist_steps = True  # type: ignore[attr-defined]


class _OptimizerSteps:
    def __init__(self) -> None:
        self._counted = 0
        """The id of the optimizer whose steps count."""
        self._others = 0
        self._pending = False
        """Whether a step has begun. Horovod's optimizer calls the step of another class within its own."""

    def begin(self, optimizer: Any, args: Any, options: Any) -> None:
        if not is_compiling():
            self._pending = True

    def end(self, optimizer: Any, args: Any, options: Any) -> None:
        if not self._pending or is_compiling():
            return
        self._pending = False
        if id(optimizer) != self._counted:
            self._others += 1
            if self._counted and self._others <= _OTHERS_BEFORE_A_CHANGE:
                return
            self._counted = id(optimizer)
            trains_here()
        self._others = 0
        mark(Source.OPTIMIZER)


def patch_loader(module: ModuleType) -> None:
    """Time the batches of each DataLoader. `module`: torch.utils.data.dataloader."""
    bind_torch()
    wrap(module.DataLoader, "__iter__", lambda original: timed(original, Part.DATA))
    if _lacks_names(module):
        return
    wrap(module._BaseDataLoaderIter, "__next__", _next)


def _next(original: Callable[..., Any]) -> Callable[..., Any]:
    batch_of = timed(original, Part.DATA)
    trains = _torch.is_grad_enabled

    def __next__(self: Any) -> Any:
        batch = batch_of(self)
        if trains():  # otherwise the batch is one of an evaluation
            load(id(self), batch)
        return batch

    return __next__


def patch_collectives(module: ModuleType) -> None:
    """Time the collectives that Python code calls. `module`: torch.distributed.distributed_c10d."""
    bind_torch()
    for name in _COLLECTIVES:
        if hasattr(module, name):
            wrap_copies(module, name, lambda original: timed(original, Part.COLLECTIVES, is_compiling))


def patch_ddp(module: ModuleType) -> None:
    """Measure the waits of DistributedDataParallel. `module`: torch.nn.parallel.distributed.

    DDP measures the communication of its backward pass itself. What overlaps with computation is no wait.
    """
    bind_torch()
    if _lacks_names(module):
        return
    add_meter(_ddp.read)
    wrap(module.DistributedDataParallel, "__init__", _ddp.init)
    # Ranks also wait here for the buffers of rank 0, before the forward pass.
    wrap(
        module.DistributedDataParallel,
        "_sync_buffers",
        lambda original: timed(original, Part.COLLECTIVES, is_compiling),
    )


_FIRST = 10
"""The first steps of a DDP module, which torch always measures."""
_RARE = 7
"""In quick trainings torch measures one step of so many. A measurement costs 10 µs."""
_QUICK = 50
"""Steps a second of a quick training."""


class _Logged:
    """One DDP module: torch's record of its times, and what was read of it."""

    def __init__(self, module: Any) -> None:
        self.module, self.logger = weakref.ref(module), module.logger
        self.on_cpu = all(parameter.device.type == "cpu" for parameter in module.parameters())
        self.rate = 100
        """torch measures one step of so many. The number is torch's own default."""
        self.read_at = time.perf_counter()
        self.step = self.measured = 0
        """The last step that was measured, and the number of those that were."""
        self.waited_s = 0.0
        """The seconds in all measured steps."""

    def measure(self, rate: int) -> None:
        """Let torch measure one step of `rate`. On GPUs a measurement waits for the GPU: the rate stays."""
        module = self.module()
        if self.on_cpu and module is not None and rate != self.rate:
            module._set_ddp_runtime_logging_sample_rate(rate)
            self.rate = rate

    def more_s(self) -> float:
        """Return the seconds in the steps since the last call, estimated from the measured ones."""
        found = self.logger._get_ddp_logging_data().ints_map
        step, before, now = found.get("iteration", 0), self.step, time.perf_counter()
        first = min(step, _FIRST) - min(before, _FIRST)
        more = first + max(0, step // self.rate - max(before, _FIRST) // self.rate)
        if step <= before or not more:
            return 0.0
        average_ns = found.get("avg_backward_comm_time", 0)
        average_ns -= found.get("avg_backward_compute_comm_overlap_time", 0)
        measured = self.measured + more
        waited_s = max(0, average_ns) * measured / 1e9
        seconds: float = (waited_s - self.waited_s) / more * (step - before)
        self.measure(_RARE if step - before > _QUICK * (now - self.read_at) else 1)
        self.step, self.measured, self.waited_s, self.read_at = step, measured, waited_s, now
        return max(0.0, seconds)


class _DdpMeter:
    """Seconds in which all DDP modules of this rank have waited."""

    def __init__(self) -> None:
        self._modules: dict[int, _Logged] = {}
        self._left_s: float | None = None
        """The seconds of modules that are gone since the last call of `read`."""

    def init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(module: Any, /, *args: Any, **options: Any) -> None:
            original(module, *args, **options)
            with contextlib.suppress(Exception):  # training continues without these times
                self._add(module)

        return __init__

    def _add(self, module: Any) -> None:
        logged = self._modules[id(module)] = _Logged(module)
        logged.measure(1)
        # A model often dies with the function that made it, before the last event is written.
        weakref.finalize(module, self._leave, id(module)).atexit = False

    def read(self) -> float | None:
        """Return the seconds since the last call; None if there was no module."""
        more, self._left_s = self._left_s, None
        for logged in list(self._modules.values()):
            more = (more or 0.0) + logged.more_s()
        return more

    def _leave(self, key: int) -> None:
        self._left_s = (self._left_s or 0.0) + self._modules.pop(key).more_s()


_ddp = _DdpMeter()


def bind_torch() -> None:
    """Look torch up for `is_compiling`."""
    global _torch
    _torch = sys.modules["torch"]  # its import may not have ended


def is_compiling() -> bool:
    """Return whether torch.compile reads this code. It replaces the call by a constant.

    torch before 2.1 has no such function. There, torch.compile reads our code, too.
    """
    try:
        return _torch.compiler.is_compiling()  # type: ignore[no-any-return]
    except AttributeError:
        return False


def _lacks_names(module: ModuleType) -> bool:
    """Return whether private names of a module are missing. The run then gets a note."""
    for row, names in foreign_names.lost("worker/steps/torch", module=module):
        if row.module in (module.__name__, _LOGGING.get(module.__name__)):
            writer = events.writer()
            if writer is not None:
                writer.note(foreign_names.note(row, names))
            return True
    return False
