"""Steps of torch optimizers, waits for a DataLoader, and waits in collectives and in DDP."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import foreign_names
from ..output import events
from ..patching import wrap, wrap_copies
from . import Part, Source, add_meter, load, mark, timed, trains_here

__all__ = ["patch_collectives", "patch_ddp", "patch_loader", "patch_optimizer"]

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
    _bind_torch()
    if getattr(module, "_jupyter_dist_steps", False):
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
        if not _torch.compiler.is_compiling():
            self._pending = True

    def end(self, optimizer: Any, args: Any, options: Any) -> None:
        if not self._pending or _torch.compiler.is_compiling():
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
    _bind_torch()
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
    _bind_torch()
    for name in _COLLECTIVES:
        if hasattr(module, name):
            wrap_copies(module, name, lambda original: timed(original, Part.COLLECTIVES, _compiling))


def patch_ddp(module: ModuleType) -> None:
    """Measure the waits of DistributedDataParallel. `module`: torch.nn.parallel.distributed.

    DDP measures the communication of its backward pass itself. What overlaps with computation is no wait.
    """
    _bind_torch()
    if _lacks_names(module):
        return
    add_meter(_ddp.read)
    wrap(module.DistributedDataParallel, "__init__", _ddp.init)
    # Ranks also wait here for the buffers of rank 0, before the forward pass.
    wrap(
        module.DistributedDataParallel,
        "_sync_buffers",
        lambda original: timed(original, Part.COLLECTIVES, _compiling),
    )


class _DdpMeter:
    """Seconds in which all DDP modules of this rank have waited."""

    def __init__(self) -> None:
        self._loggers: dict[int, tuple[Any, float]] = {}
        """By module: torch's record of its times, and the seconds in it that were read."""
        self._left_s: float | None = None
        """The seconds of modules that are gone since the last call of `read`."""

    def init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(module: Any, /, *args: Any, **options: Any) -> None:
            original(module, *args, **options)
            with contextlib.suppress(Exception):  # training continues without these times
                self._add(module)

        return __init__

    def _add(self, module: Any) -> None:
        logger = module.logger
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            # On GPUs each measurement waits for the GPU, so torch's own sample of the steps is enough.
            module._set_ddp_runtime_logging_sample_rate(1)
        self._loggers[id(module)] = logger, 0.0
        # A model often dies with the function that made it, before the last event is written.
        weakref.finalize(module, self._leave, id(module)).atexit = False

    def read(self) -> float | None:
        """Return the seconds since the last call; None if there was no module."""
        more, self._left_s = self._left_s, None
        for key in list(self._loggers):
            more = (more or 0.0) + self._more(key)
        return more

    def _leave(self, key: int) -> None:
        self._left_s = (self._left_s or 0.0) + self._more(key)
        del self._loggers[key]

    def _more(self, key: int) -> float:
        logger, before = self._loggers[key]
        found = logger._get_ddp_logging_data().ints_map
        average_ns = found.get("avg_backward_comm_time", 0)
        average_ns -= found.get("avg_backward_compute_comm_overlap_time", 0)
        total_s: float = max(0, average_ns) * found.get("iteration", 0) / 1e9
        self._loggers[key] = logger, total_s
        return max(0.0, total_s - before)


_ddp = _DdpMeter()


def _bind_torch() -> None:
    global _torch
    _torch = sys.modules["torch"]  # its import may not have ended


def _compiling() -> bool:
    """Return whether torch.compile reads this code. It replaces the call by a constant."""
    return _torch.compiler.is_compiling()  # type: ignore[no-any-return]


def _lacks_names(module: ModuleType) -> bool:
    """Return whether private names of a module are missing. The run then gets a note."""
    for row, names in foreign_names.lost("worker/steps/torch", module=module):
        if row.module in (module.__name__, _LOGGING.get(module.__name__)):
            writer = events.writer()
            if writer is not None:
                writer.note(foreign_names.note(row, names))
            return True
    return False
