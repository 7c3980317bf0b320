"""Lightning, accelerate and transformers train one model over all ranks, as they do under torchrun."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import api, foreign_names
from ..api.torch_devices import shares_gpu
from ..gpus import by_local_rank
from ..output import events
from ..patching import wrap

__all__ = ["patch_accelerate", "patch_lightning", "patch_transformers"]

_OF_SEVERAL = "cluster_environment"
"""The attribute of Lightning's strategies for several processes."""


def patch_accelerate(state: ModuleType) -> None:
    """Make ranks without an accelerator share a model over gloo. Otherwise each would train its own.

    `state` is accelerate.state. The Trainer of transformers uses it.
    """
    if "cpu" not in inspect.unwrap(state.PartialState.__init__).__code__.co_varnames:
        raise TypeError("PartialState has no parameter `cpu`")
    wrap(state.PartialState, "__init__", _partial_state)


def _partial_state(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, cpu: bool = False, **kwargs: Any) -> None:
        import torch

        several = api.world_size() > 1
        if not cpu and not by_local_rank.has_several():  # accelerate picks a GPU by the local rank
            by_local_rank.see_all("CUDA was used before accelerate. Make the Accelerator first")
        if several and not cpu and shares_gpu(torch, api.local_world_size()):
            raise RuntimeError(
                "accelerate needs a GPU for each rank, and ranks share one here. Start the cell with "
                "--gpus-per-worker 1, or with --gpus-per-worker 0 to train on the CPU"
            )
        original(self, cpu or (several and not _has_accelerator()), **kwargs)

    return __init__


def patch_transformers(trainer: ModuleType) -> None:
    """Make all ranks shuffle alike, each for its own part of the rows, independent of later seeds.

    accelerate's sampler uses torch's initial seed when training begins. A Trainer has set that seed to
    `args.seed`. But a Trainer of an earlier cell is made before a rank gets random numbers of its own.
    Without this function, some rows were trained twice, and others never. `trainer` is transformers.trainer.
    https://github.com/huggingface/accelerate/blob/main/src/accelerate/data_loader.py
    """
    config = getattr(sys.modules.get("accelerate.utils"), "DataLoaderConfiguration", None)
    if config is not None and "data_seed" not in config.__dataclass_fields__:
        raise TypeError("accelerate's DataLoaderConfiguration has no field `data_seed`")
    wrap(trainer.Trainer, "create_accelerator_and_postprocess", _one_order)


def _one_order(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_accelerator_and_postprocess(self: Any, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        try:
            config = self.accelerator.dataloader_config
            if config.data_seed is None:
                config.data_seed = self.args.seed
        except AttributeError as error:
            raise foreign_names.unfit("transformers.trainer", error) from error

    return create_accelerator_and_postprocess


def _has_accelerator() -> bool:
    import torch

    known = getattr(torch, "accelerator", None)  # new in torch 2.6
    return bool(torch.cuda.is_available() if known is None else known.is_available())


def patch_lightning(connector: ModuleType) -> None:
    """Make every Trainer or Fabric use the run's ranks as its devices and nodes.

    `connector` is the module that converts their arguments to a strategy. By default Lightning looks for
    torchrun or Slurm, and otherwise counts this rank's devices. Then each rank would train its own model.
    """
    environment = _environment(connector.LightningEnvironment)
    owner = getattr(connector, "_AcceleratorConnector", None) or connector._Connector
    wrap(owner, "_check_device_config_and_set_final_flags", lambda original: _flags(original, environment))
    wrap(owner, "_set_parallel_devices_and_init_accelerator", _devices)


def _environment(base: Any) -> Any:
    class RunEnvironment(base):  # type: ignore[misc]
        """The ranks of the run. The base class provides the address, and starts no processes."""

        def __init__(self, per_node: int) -> None:
            super().__init__()
            self._per_node = per_node

        def local_rank(self) -> int:
            return api.local_rank() % self._per_node

        def world_size(self) -> int:
            return api.world_size()

        def set_world_size(self, size: int) -> None:
            pass

        def global_rank(self) -> int:
            return api.rank()

        def set_global_rank(self, rank: int) -> None:
            super().set_global_rank(api.rank())

        def teardown(self) -> None:
            # The base class would remove WORLD_SIZE from the environment, and the next fit would train alone.
            pass

    return RunEnvironment


def _flags(original: Callable[..., Any], environment: Any) -> Callable[..., Any]:
    def _check_device_config_and_set_final_flags(self: Any, devices: Any, num_nodes: Any, **more: Any) -> Any:
        self._jupyter_dist_copies = 1
        if not _spans(self, devices, num_nodes):
            return original(self, devices=devices, num_nodes=num_nodes, **more)
        world, here = api.world_size(), api.local_world_size()
        if world % here:
            here = 1  # the hosts differ in size: each rank counts as a host of its own
        self._cluster_environment_flag = environment(here)
        if isinstance(self._strategy_flag, str):
            # The ranks already exist, so Lightning must not fork or spawn any.
            for suffix in ("_spawn", "_fork", "_notebook"):
                self._strategy_flag = self._strategy_flag.replace(suffix, "")
        elif hasattr(self._strategy_flag, "_start_method"):
            self._strategy_flag._start_method = "popen"  # the start method of "ddp" by name
        if "JUPYTER_DIST_GPUS" in os.environ or here == 1:
            # This rank sees only its own GPUs. Lightning expects them after those of the host's earlier
            # ranks.
            self._jupyter_dist_copies = here
            devices = 1
        else:
            devices = here
        return original(self, devices=devices, num_nodes=world // here, **more)

    return _check_device_config_and_set_final_flags


def _devices(original: Callable[..., Any]) -> Callable[..., Any]:
    def _set_parallel_devices_and_init_accelerator(self: Any, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        self._parallel_devices = [*self._parallel_devices] * self._jupyter_dist_copies

    return _set_parallel_devices_and_init_accelerator


def _spans(connector: Any, devices: Any, num_nodes: Any) -> bool:
    """Return whether to train over all ranks.

    Raises ValueError if the user requested another number of processes.
    """
    world = api.world_size()
    if world == 1 or connector._cluster_environment_flag is not None or connector._parallel_devices:
        return False
    strategy = connector._strategy_flag
    if strategy.startswith("single_") if isinstance(strategy, str) else not hasattr(strategy, _OF_SEVERAL):
        return False
    asked = _count(devices)
    if asked == num_nodes == 1 and strategy == "auto":
        events.tell(
            f"Lightning: with devices={devices!r} each of the {world} ranks trains for itself. "
            "Without it they train one model together"
        )
        return False
    if asked is not None and asked * num_nodes not in (1, world):
        raise ValueError(
            f"Lightning was asked for {asked * num_nodes} processes (devices={devices!r}, "
            f"num_nodes={num_nodes}), but this run has {world} ranks. Leave both out, or start "
            f"the cell with -np {asked * num_nodes}"
        )
    return True


def _count(devices: Any) -> int | None:
    """Return the number of requested devices.

    None means all devices, or a value that only Lightning supports.
    """
    if isinstance(devices, (list, tuple)):
        return len(devices)
    try:
        count = int(devices)
    except (TypeError, ValueError):
        return None
    return count if count > 0 else None
