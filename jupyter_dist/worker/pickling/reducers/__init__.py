"""Reducers: functions that rebuild an object on a rank from its parts, instead of loading its internal state.

`KINDS` lists the classes. Each row's module has `reduce(obj, note)`. It returns a tuple like that of
`object.__reduce__`, or NotImplemented to pickle the object as usual, or it raises `Refused`. `note` accepts a
line for the user. The functions in a tuple are in the same module, and their names are part of a payload's
format. No library is imported to find a row: a class is found by its name and its bases' names.
"""

from __future__ import annotations

import importlib
import pickle
import struct
import weakref
from collections.abc import Callable
from typing import Any

from ... import foreign_names

__all__ = ["KINDS", "NOTES", "Note", "Refused", "reducer", "wrapped_by_horovod"]

Note = Callable[[str], None]
Reduce = Callable[[Any, Note], Any]

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
_FABRIC = ("lightning.fabric", "lightning_fabric")
_PREPARED = ("optimizer.AcceleratedOptimizer", "scheduler.AcceleratedScheduler")
_SPARK = (
    *("sql.dataframe.DataFrame", "sql.column.Column", "sql.group.GroupedData", "sql.session.SparkSession"),
    *("core.context.SparkContext", "context.SparkContext", "core.rdd.RDD", "rdd.RDD"),
    *("pandas.frame.DataFrame", "core.broadcast.Broadcast"),
)
_SPARK_CONNECT = ("dataframe.DataFrame", "column.Column", "group.GroupedData", "session.SparkSession")

_TORCH_GROUPS = (
    *("nn.parallel.distributed.DistributedDataParallel", "distributed.device_mesh.DeviceMesh"),
    "distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
    *("distributed.distributed_c10d.ProcessGroup", "utils.data.distributed.DistributedSampler"),
)

KINDS: dict[str, str] = {
    **{f"{home}.trainer.trainer.Trainer": "trainers" for home in _LIGHTNING},
    **{f"{home}.core.datamodule.LightningDataModule": "trainers" for home in _LIGHTNING},
    **{f"{home}.callbacks.progress.progress_bar.ProgressBar": "trainers" for home in _LIGHTNING},
    **{f"{home}.strategies.strategy.Strategy": "trainers" for home in _LIGHTNING + _FABRIC},
    **{f"{home}.fabric.Fabric": "trainers" for home in _FABRIC},
    **{f"{home}.wrappers._Fabric{of}": "trainers" for home in _FABRIC for of in ("Module", "Optimizer")},
    **{f"{home}.wrappers._FabricDataLoader": "trainers" for home in _FABRIC},
    "accelerate.accelerator.Accelerator": "trainers",
    **{f"accelerate.state.{of}State": "trainers" for of in ("Partial", "Accelerator", "Gradient")},
    **{f"accelerate.{name}": "trainers" for name in _PREPARED},
    "accelerate.data_loader.DataLoaderStateMixin": "trainers",
    "transformers.trainer.Trainer": "trainers",
    "transformers.training_args.TrainingArguments": "trainers",
    "_thread.lock": "locks",
    "_thread.RLock": "locks",
    "threading._RLock": "locks",
    "threading.Condition": "locks",
    "_thread._local": "locks",
    "_queue.SimpleQueue": "locks",
    "queue._PySimpleQueue": "locks",
    "_contextvars.ContextVar": "locks",
    "concurrent.futures._base.Future": "pools",
    "concurrent.futures._base.Executor": "pools",
    "threading.Thread": "pools",
    "subprocess.Popen": "pools",
    "multiprocessing.managers.BaseProxy": "pools",
    "multiprocessing.managers.BaseManager": "pools",
    "weakref.ReferenceType": "weak_references",
    "weakref.ProxyType": "weak_references",
    "weakref.CallableProxyType": "weak_references",
    "weakref.WeakKeyDictionary": "weak_references",
    "weakref.WeakValueDictionary": "weak_references",
    "_weakrefset.WeakSet": "weak_references",
    "typing.ParamSpec": "type_parameters",
    "typing.TypeVarTuple": "type_parameters",
    "typing.NewType": "type_parameters",
    "types.UnionType": "type_parameters",
    "typing.Union": "type_parameters",
    "typing.TypeAliasType": "type_parameters",
    "typing_extensions.TypeAliasType": "type_parameters",
    "annotationlib.ForwardRef": "type_parameters",
    "typing_extensions.ParamSpec": "type_parameters",
    "typing_extensions.TypeVarTuple": "type_parameters",
    "typing_extensions.NewType": "type_parameters",
    "builtins.BaseException": "exceptions",
    "builtins.property": "stdlib",
    "builtins.classmethod": "stdlib",
    "builtins.staticmethod": "stdlib",
    "functools.cached_property": "stdlib",
    "functools.partial": "stdlib",
    "functools.partialmethod": "stdlib",
    "contextlib._GeneratorContextManager": "stdlib",
    "builtins.memoryview": "stdlib",
    "builtins.mappingproxy": "stdlib",
    f"{struct.Struct.__module__}.Struct": "stdlib",
    "builtins.dict_keys": "stdlib",
    "builtins.dict_values": "stdlib",
    "builtins.dict_items": "stdlib",
    "logging.Handler": "stdlib",
    "numpy.lib.npyio.NpzFile": "stdlib",
    "torch.utils.tensorboard.writer.SummaryWriter": "output_writers",
    "tqdm.std.tqdm": "output_writers",
    "loguru._handler.Handler": "output_writers",
    "keras.src.backend.torch.layer.TorchLayer": "keras",  # a Module, too
    "torch.nn.modules.module.Module": "torch_compile",
    **{f"torch.{name}": "torch_groups" for name in _TORCH_GROUPS},
    "torch.optim.optimizer.Optimizer": "torch_training",
    "torch.utils.data.dataloader.DataLoader": "torch_training",
    "torch._ops.OpOverloadPacket": "torch_operators",
    "torch._ops.OpOverload": "torch_operators",
    "torch._library.custom_ops.CustomOpDef": "torch_operators",
    "keras.src.saving.keras_saveable.KerasSaveable": "keras",
    "keras.src.backend.common.variables.Variable": "keras",
    "keras.src.backend.common.keras_tensor.KerasTensor": "keras",
    "keras.src.ops.node.Node": "keras",
    "keras.src.utils.backend_utils.DynamicBackend": "keras",
    "keras.src.utils.tracking.Tracker": "keras",
    "keras.src.utils.tracking.TrackedList": "keras",
    "keras.src.utils.tracking.TrackedDict": "keras",
    "keras.src.utils.tracking.TrackedOrderedDict": "keras",
    "keras.src.utils.tracking.TrackedSet": "keras",
    "tensorflow.python.checkpoint.checkpoint.Checkpoint": "tensorflow",
    "tensorflow.python.ops.summary_ops_v2.SummaryWriter": "tensorflow",
    "tensorflow.python.data.ops.dataset_ops.DatasetV2": "tensorflow",
    "tensorflow.python.data.ops.iterator_ops.IteratorBase": "tensorflow",
    "tensorflow.python.distribute.distribute_lib.StrategyBase": "tensorflow",
    "tensorflow.python.framework.ops._EagerTensorBase": "tensorflow",
    "tensorflow.python.ops.variables.Variable": "tensorflow",
    "tensorflow.python.eager.polymorphic_function.polymorphic_function.Function": "tensorflow",
    "ray.data.dataset.Dataset": "ray_data",
    "ray.ObjectRef": "ray_data",
    "ray.actor.ActorHandle": "ray_data",
    "ray.util.client.common.ClientStub": "ray_data",
    **{f"pyspark.{name}": "spark_frames" for name in _SPARK},
    **{f"pyspark.sql.connect.{name}": "spark_frames" for name in _SPARK_CONNECT},
}
"""`module.Class` → the module in this package that reduces the class and its subclasses."""

NOTES = "_jupyter_dist_notes"
"""The attribute that marks the kernel's wrapper of a constructor. It refers to the wrapper itself.

The wrapper records how objects are made. Another wrapper around it may have copied its attributes.
"""


class Refused(pickle.PicklingError):
    """The object would change its meaning on a rank. `cure` is the user's next step."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(message)
        self.cure = cure


def wrapped_by_horovod() -> Refused:
    """Return the refusal of an optimizer that Horovod has wrapped in the notebook."""
    return Refused(
        "an optimizer that Horovod has wrapped belongs to the process that wrapped it",
        "Keep the plain optimizer. Inside the cell, call hvd.init() and hvd.DistributedOptimizer(optimizer).",
    )


_found: weakref.WeakKeyDictionary[type, Reduce | None] = weakref.WeakKeyDictionary()


def reducer(kind: type) -> Reduce | None:
    """Return the reducer of a class, or None for nearly all classes. Repeated calls are cheap."""
    if kind not in _found:
        _found[kind] = _refusing(kind) or _reduce_of(kind)
    return _found[kind]


def _place_of(kind: type) -> tuple[str, str] | None:
    """Return the row's module for a class, and the library of the class in the row."""
    for base in kind.__mro__:
        home = KINDS.get(f"{base.__module__}.{base.__qualname__}")
        if home is not None:
            return home, base.__module__.partition(".")[0]
    return None


def _reduce_of(kind: type) -> Reduce | None:
    place = _place_of(kind)
    return None if place is None else importlib.import_module(f".{place[0]}", __package__).reduce


_HERE = "worker/pickling/reducers"


def _refusing(kind: type) -> Reduce | None:
    """Return a reducer that refuses all objects, if the class's library lacks a private name that we need.

    A renamed class of `KINDS` is found by its module. Otherwise its objects would silently be pickled as
    usual.
    """
    modules = {base.__module__ for base in kind.__mro__}
    lost = [found for found in _lost(f"{_HERE}/__init__") if found[0].module in modules]
    place = _place_of(kind)
    if place is not None:
        home, library = place
        others = {name.partition(".")[0] for name, other in KINDS.items() if other == home} - {library}
        users = [f"{_HERE}/{home}"]
        if home == "trainers":
            users += [f"{_HERE}/trainer_kinds", "capture/trainer_calls"]
        lost += [found for user in users for found in _lost(user) if found[0].library not in others]
    if not lost:
        return None
    row, names = lost[0]

    def reduce(obj: Any, note: Note) -> Any:
        raise Refused(foreign_names.why(row, names), foreign_names.cure(row))

    return reduce


def _lost(user: str) -> list[tuple[foreign_names.Row, list[str]]]:
    return foreign_names.lost(user, consequence=foreign_names.Missing.REFUSE)
