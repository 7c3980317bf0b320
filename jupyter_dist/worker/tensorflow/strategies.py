"""Choice and creation of the tf.distribute strategy that fits this rank."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..output import events
from ..tf_config import Task, task
from . import server_rank

__all__ = ["KINDS", "Devices", "choose", "divide_cpu", "forget", "kind_of", "make", "spans_ranks"]

KINDS = {
    "one_device": "OneDeviceStrategy",
    "mirrored": "MirroredStrategy",
    "multi_worker_mirrored": "MultiWorkerMirroredStrategy",
    "parameter_server": "ParameterServerStrategy",
    "central_storage": "CentralStorageStrategy",
    "tpu": "TPUStrategy",
}
_ALSO = {"collective_all_reduce": "multi_worker_mirrored"}
_NO_TPU = (
    "TPUStrategy needs a TPU, and this rank finds none: TPU_NAME is not set and there is "
    "no /dev/accel0. Run the cell on a TPU machine, or name one with "
    "dist.strategy('tpu', tpu=…)."
)
_TOO_LATE = (
    "{count} CPU devices were asked for, but TensorFlow can no longer divide its CPU, "
    "because it has already run something in this process, such as a dataset of an earlier cell. "
    "Call dist.strategy() before anything else of TensorFlow, or divide the CPU in the notebook with "
    "tf.config.set_logical_device_configuration, which ranks repeat."
)

_made: dict[str, Any] = {}


@dataclass(frozen=True)
class Devices:
    """The devices of this rank for training. `cpus`: logical CPU devices of TensorFlow."""

    gpus: int = 0
    cpus: int = 1
    tpu: bool = False


def kind_of(name: Any) -> str:
    """Return the kind for a user's name. TensorFlow's class names and classes also work.

    Raises ValueError with a list of the names.
    """
    text = getattr(name, "__name__", name)
    if isinstance(text, str):
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", text.rpartition(".")[2].strip()).lower()
        plain = re.sub(r"_?strategy(_?(extended_?)?v\d)?$", "", plain)
        for kind in (*KINDS, *_ALSO):
            if plain.replace("_", "") == kind.replace("_", ""):
                return _ALSO.get(kind, kind)
    raise ValueError(
        f"there is no strategy {name!r}. The strategies are {', '.join(map(repr, KINDS))}. "
        "Without a name, dist.strategy() chooses the one that fits"
    )


def spans_ranks(kind: str) -> bool:
    """Return whether several ranks train one model with this kind."""
    return kind in ("multi_worker_mirrored", "parameter_server")


def choose(task: Task, place: Devices, world_size: int) -> tuple[str, str]:
    """Return the kind that fits, and the reason. Pure."""
    if task.type != "evaluator":
        if task.count("ps"):
            return "parameter_server", f"TF_CONFIG names {task.names}"
        if task.trainers > 1:
            return "multi_worker_mirrored", f"TF_CONFIG names {task.names}"
    alone = ""
    if task.type == "evaluator":
        alone = "the evaluator works alone and "
    elif not task.cluster and world_size > 1:
        alone = "TF_CONFIG is not set, so each rank trains for itself, and "
    if place.tpu:
        return "tpu", f"{alone or 'this rank '}has a TPU"
    if place.gpus > 1:
        return "mirrored", f"{alone or 'this rank '}has {place.gpus} GPUs"
    if place.gpus:
        return "one_device", f"{alone or 'this rank '}has 1 GPU"
    if place.cpus > 1:
        return "mirrored", f"{alone or 'this rank '}has {place.cpus} logical CPUs"
    return "one_device", f"{alone or 'this rank is alone and '}has no GPU"


def make(name: Any, options: Mapping[str, Any], world_size: int) -> Any:
    """Return the strategy, after printing a line with its name and the reason.

    On a rank that only serves, the function never returns.
    Raises ValueError for a name or a TF_CONFIG that does not fit, RuntimeError if there is no TPU.
    """
    wanted = None if name is None else kind_of(name)
    tf = _tensorflow()
    here = task()
    place = _place(tf)
    kind, why = choose(here, place, world_size) if wanted is None else (wanted, "it was asked for")
    if kind in _made and not options:
        return _made[kind]
    _MAKERS[kind](tf, options, here, place, why)
    return _made[kind]


def forget() -> None:
    """Make the next call of `make` return a new strategy of several ranks."""
    for kind in filter(spans_ranks, KINDS):
        _made.pop(kind, None)


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ModuleNotFoundError(
            "dist.strategy() needs TensorFlow on every rank: pip install tensorflow", name="tensorflow"
        ) from None
    return tensorflow


def _place(tf: Any) -> Devices:
    gpus = 0
    if os.environ.get("JUPYTER_DIST_GPUS", "") != "0":
        gpus = len(tf.config.list_physical_devices("GPU"))
    cpu = tf.config.list_physical_devices("CPU")[0]
    cpus = tf.config.get_logical_device_configuration(cpu) or [cpu]
    return Devices(gpus, len(cpus), _has_tpu())


def _has_tpu() -> bool:
    # TensorFlow itself would look for a metadata server, for minutes if there is none.
    return bool(os.environ.get("TPU_NAME")) or Path("/dev/accel0").exists()


def _keep(kind: str, strategy: Any, why: str) -> None:
    _made[kind] = strategy
    strategy.scope()  # models of the notebook move to the first scope, even if it is not entered
    _say(f"{KINDS[kind]}, because {why}{_replicas(strategy)}")


def _replicas(strategy: Any) -> str:
    count = strategy.num_replicas_in_sync
    return f"; {count} replicas" if count > 1 else ""


def _say(text: str) -> None:
    events.tell(f"dist.strategy: {text}")


def _keras() -> str:
    """Return what was arranged for `fit`, as text, for several ranks that train together."""
    legacy = getattr(sys.modules.get("keras"), "__name__", "") == "tf_keras"
    return "; keras is tf_keras in this cell" if legacy else ""


def _one_device(tf: Any, options: Mapping[str, Any], task: Task, place: Devices, why: str) -> None:
    device = options.get("device") or ("/gpu:0" if place.gpus else "/cpu:0")
    _keep("one_device", tf.distribute.OneDeviceStrategy(device), f"{why}: {device}")


def _mirrored(tf: Any, options: Mapping[str, Any], task: Task, place: Devices, why: str) -> None:
    if not options and not place.gpus and place.cpus > 1:
        options = {"devices": [f"CPU:{index}" for index in range(place.cpus)]}
    divide_cpu(_cpus_of(options.get("devices")))
    _keep("mirrored", tf.distribute.MirroredStrategy(**options), why)


def _central_storage(tf: Any, options: Mapping[str, Any], task: Task, place: Devices, why: str) -> None:
    divide_cpu(_cpus_of(options.get("compute_devices")))
    make = tf.distribute.experimental.CentralStorageStrategy
    _keep("central_storage", make(**options), why)


def _cpus_of(devices: Any) -> int:
    """Return how many logical CPUs `devices` names, such as 2 for `["CPU:0", "CPU:1"]`."""
    found = [re.fullmatch(r"/?(?:device:)?CPU:(\d+)", str(name), re.IGNORECASE) for name in devices or ()]
    return max((int(match[1]) + 1 for match in found if match), default=1)


def divide_cpu(count: int) -> None:
    """Make at least `count` logical CPUs. Repeatable.

    Raises RuntimeError if TensorFlow has already started.
    """
    tf = _tensorflow()
    cpu = tf.config.list_physical_devices("CPU")[0]
    if count <= len(tf.config.get_logical_device_configuration(cpu) or [cpu]):
        return
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:
        raise RuntimeError(_TOO_LATE.format(count=count)) from None


def _multi_worker_mirrored(tf: Any, options: Mapping[str, Any], task: Task, place: Devices, why: str) -> None:
    if task.count("ps"):
        raise ValueError(
            "MultiWorkerMirroredStrategy cannot use parameter servers, but TF_CONFIG names "
            f"{task.names}. Remove --ps, or use dist.strategy('parameter_server')"
        )
    if not task.cluster:
        why += ", but TF_CONFIG is not set: this rank trains alone"
    strategy = tf.distribute.MultiWorkerMirroredStrategy(**options)
    _keep("multi_worker_mirrored", strategy, why + _keras())


def _parameter_server(tf: Any, options: Mapping[str, Any], task: Task, place: Devices, why: str) -> None:
    if not task.count("ps"):
        told = f"TF_CONFIG names {task.names}" if task.cluster else "TF_CONFIG is not set"
        raise ValueError(
            f"ParameterServerStrategy needs ranks that are parameter servers, but {told}. Start "
            "the cell with --ps, as in -np 4 --chief --ps 1"
        )
    if task.type == "evaluator":
        raise ValueError("the evaluator is not part of a ParameterServerStrategy. Use dist.strategy() there")
    given, task = task, task.coordinated()
    # Otherwise a rank that starts a little later than the others is treated as dead.
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    os.environ["TF_CONFIG"] = task.to_config()
    if task is not given:
        why += ", no chief: worker 0 coordinates"
    if task.serves:
        _say(f"ParameterServerStrategy, because {why}; this rank serves it as {task.type} {task.index}")
        _serve(tf, task)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver, **options)
    strategy.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    _keep("parameter_server", strategy, why + "; this rank coordinates" + _keras())


def _serve(tf: Any, task: Task) -> None:
    config = tf.compat.v1.ConfigProto()
    # With fewer threads than workers, an operation that waits for another one may starve it.
    config.inter_op_parallelism_threads = max(os.cpu_count() or 1, task.count("worker") + 1)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(task.cluster),
        job_name=task.type,
        task_index=task.index,
        protocol="grpc",
        config=config,
        start=True,
    )
    _made["server"] = server  # the server stops if no object refers to it
    if os.environ.get("JUPYTER_DIST_RUN") is None:
        server.join()
    server_rank.serve()


def _tpu(tf: Any, options: Mapping[str, Any], task: Task, place: Devices, why: str) -> None:
    options = dict(options)
    name = options.pop("tpu", None)
    if name is None:
        if not place.tpu:
            raise RuntimeError(_NO_TPU)
        name = os.environ.get("TPU_NAME") or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise RuntimeError(f"the TPU {name!r} cannot be used: {error}") from error
    _keep("tpu", tf.distribute.TPUStrategy(resolver, **options), f"{why}: {name}")


_MAKERS: Mapping[str, Callable[[Any, Mapping[str, Any], Task, Devices, str], None]] = {
    "one_device": _one_device,
    "mirrored": _mirrored,
    "multi_worker_mirrored": _multi_worker_mirrored,
    "parameter_server": _parameter_server,
    "central_storage": _central_storage,
    "tpu": _tpu,
}
