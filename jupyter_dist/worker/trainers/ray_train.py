"""Training functions for Ray Train's trainers, run unchanged on the ranks of a run.

Such a function asks `ray.train` for its rank, and reports metrics and checkpoints. It also lets `ray.train`
wrap a model and a loader. These calls raise in a process that Ray Train did not start. Ray Train answers them
from one object for each process, and documents that the object may be replaced:
https://github.com/ray-project/ray/blob/master/python/ray/train/v2/_internal/execution/train_fn_utils.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import api
from ..autolog import guarded, record
from ..output import events
from ..patching import wrap
from . import ray_train_checkpoints

__all__ = ["patch", "patch_old", "patch_torch"]


def patch(utils: ModuleType) -> None:
    """Make this rank answer for Ray Train. `utils` is ray.train.v2._internal.execution.train_fn_utils."""
    # A trainer without workers of its own calls this, `ScalingConfig(num_workers=0)`.
    wrap(utils.LocalTrainFnUtils, "report", _report)
    utils.set_train_fn_utils(
        _class(utils.LocalTrainFnUtils)(
            os.environ.get("JUPYTER_DIST_RUN_ID", ""),
            world_size=api.world_size(),
            world_rank=api.rank(),
            local_rank=api.local_rank(),
            local_world_size=api.local_world_size(),
            node_rank=int(os.environ.get("GROUP_RANK", 0)),
        )
    )


def patch_torch(module: ModuleType) -> None:
    """Open the process group before functions that need it, as TorchTrainer does before calling the function.

    `module` is ray.train.torch, or the module that defines its functions.
    """
    for name in ("prepare_model", "prepare_data_loader"):
        wrap(module, name, _in_group)


def patch_old(session: ModuleType) -> None:
    """Warn that Ray Train's first version, which a variable enables, does not see the run.

    Its calls return values for a single process, so each rank would train its own model. `session` is
    ray.train._internal.session.
    """
    if api.world_size() > 1 and os.environ.get("RAY_TRAIN_V2_ENABLED", "1").lower() in ("0", "false"):
        events.tell(
            "ray.train does not see this run's ranks, because RAY_TRAIN_V2_ENABLED is 0. Each "
            "rank trains for itself. Remove that variable"
        )


def _in_group(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if api.world_size() > 1:
            api.init()
        return original(*args, **kwargs)

    return call


def _report(original: Callable[..., Any]) -> Callable[..., Any]:
    def report(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        _record(self, metrics)
        return original(self, metrics, *args, **kwargs)

    return report


@guarded("Ray Train")
def _record(utils: Any, metrics: Any) -> None:
    utils._jupyter_dist_reports = step = getattr(utils, "_jupyter_dist_reports", -1) + 1
    record(metrics or {}, step)


def _class(base: Any) -> Any:
    class RunTrainFnUtils(base):  # type: ignore[misc]
        """The answers to calls of `ray.train` in a training function on a rank."""

        _last_checkpoint: Any
        _jupyter_dist_reports: int

        def report(
            self, metrics: Any, checkpoint: Any = None, checkpoint_dir_name: str | None = None, **more: Any
        ) -> None:
            # The base class's method is not used, because it prints the metrics. Ray Train does not print
            # them.
            _record(self, metrics)
            self._last_metrics = metrics
            if checkpoint is not None:
                kept = ray_train_checkpoints.keep(checkpoint, self._jupyter_dist_reports, checkpoint_dir_name)
                self._last_checkpoint = type(checkpoint)(str(kept))
            ray_train_checkpoints.reported(self._jupyter_dist_reports)

        def get_checkpoint(self) -> Any:
            if self._last_checkpoint is None:
                found = ray_train_checkpoints.newest()
                if found is not None:
                    from ray.train import Checkpoint

                    # Curves continue at the step at which the previous attempt ended.
                    self._jupyter_dist_reports, path = found
                    self._last_checkpoint = Checkpoint(str(path))
            return self._last_checkpoint

        def get_dataset_shard(self, dataset_info: Any) -> Any:
            raise RuntimeError(
                f"ray.train.get_dataset_shard({dataset_info.dataset_name!r}) finds no datasets, "
                "because this run has no Ray trainer. Use the dataset of an earlier cell by its "
                "name, as dist.shard(dataset)"
            )

        def barrier(self) -> None:
            api.barrier()

        def broadcast_from_rank_zero(self, data: Any) -> Any:
            if api.world_size() == 1:
                return data
            api.init()
            import torch.distributed

            held = [data]
            torch.distributed.broadcast_object_list(held)
            return held[0]

    return RunTrainFnUtils
