"""Automatic metrics of Keras, Lightning, Hugging Face and SummaryWriter, and bars of Keras, tqdm and Rich.

Also the hooks that measure where the time of training steps goes.

No line of user code is needed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from .. import api, foreign_names
from ..import_hooks import AfterImport
from ..output import events
from ..output.scalars import loose, step_number

__all__ = ["guarded", "install", "prepare", "quiet", "quietly", "record"]

# Each module maps to our module that patches it, and the patching function. The hook runs right after the
# module was executed for the first time. So choose modules whose classes are then complete.
_CURVES = {
    "keras": (".keras", "patch"),
    "tf_keras": (".keras", "patch"),
    "lightning.pytorch": (".lightning", "patch"),
    "pytorch_lightning": (".lightning", "patch"),
    "transformers.trainer": (".transformers", "patch_trainer"),
    "transformers.integrations.integration_utils": (".transformers", "patch_tensorboard"),
    "torch.utils.tensorboard.writer": (".tensorboard", "patch"),
    "tensorboardX.writer": (".tensorboard", "patch"),
    "tensorboard.plugins.scalar.summary_v2": (".tensorboard", "patch_tensorflow"),
    "tqdm.std": (".tqdm", "patch"),
    "tqdm.notebook": (".tqdm", "patch_notebook"),
    "rich.progress": (".rich", "patch"),
}
"""A hook that fails becomes a note, because it does not change what is trained."""

_TOOLS = {
    "multiprocessing.spawn": ("..rank.main_snapshot", "patch"),
    "pdb": ("..debugger.pdb_prompts", "patch"),
    "torch.distributed.distributed_c10d": ("..rank.collectives", "patch"),
    "torch.utils.hooks": ("..pickling.reducers.torch_training", "patch"),
    "horovod.torch.mpi_ops": ("..horovod.submissions", "patch"),
    "tensorflow.python.distribute.collective_all_reduce_strategy": ("..tensorflow.graph_calls", "patch"),
}
"""A hook that fails becomes a note. Code that needs the hook then raises an error of its own."""

_STEPS = {
    "torch.optim.optimizer": ("..steps.torch", "patch_optimizer"),
    "torch.utils.data.dataloader": ("..steps.torch", "patch_loader"),
    "torch.distributed.distributed_c10d": ("..steps.torch", "patch_collectives"),
    "torch.nn.parallel.distributed": ("..steps.torch", "patch_ddp"),
    "horovod.torch.mpi_ops": ("..steps.horovod", "patch"),
    "tensorflow.python.data.ops.iterator_ops": ("..steps.tensorflow", "patch"),
}
"""A hook that fails becomes a note. The times of the steps are then incomplete."""

_HINTS = {
    "ray.train._internal.session": ("..trainers.ray_train", "patch_old"),
    "torch": ("..hints.torch_training", "patch"),
    "joblib": ("..hints.files", "patch_joblib"),
    "keras": ("..hints.keras_training", "patch"),
    "tf_keras": ("..hints.keras_training", "patch"),
}
"""A hook that fails becomes a note. Training continues without hints on mistakes."""

_TRAINING = {
    "horovod.common.basics": ("..horovod.rendezvous", "patch"),
    "horovod.runner.elastic.worker": ("..horovod.rendezvous", "patch_notifications"),
    "horovod.tensorflow": ("..horovod.keras3", "patch"),
    "horovod._keras": ("..horovod.keras3_optimizer", "patch"),
    "horovod._keras.callbacks": ("..horovod.keras3_optimizer", "patch_callbacks"),
    "horovod.tensorflow.keras": ("..horovod.keras3_optimizer", "patch_package"),
    "horovod.keras": ("..horovod.keras3_optimizer", "patch_package"),
    "tensorflow.python.training.server_lib": ("..tensorflow.server_rank", "patch"),
    "ray.train.v2._internal.execution.train_fn_utils": ("..trainers.ray_train", "patch"),
    "ray.train.v2.torch.train_loop_utils": ("..trainers.ray_train", "patch_torch"),
    "ray.train.torch": ("..trainers.ray_train", "patch_torch"),
    "accelerate.state": ("..trainers.lightning_and_accelerate", "patch_accelerate"),
    "transformers.trainer": ("..trainers.lightning_and_accelerate", "patch_transformers"),
    "lightning.fabric.connector": ("..trainers.lightning_and_accelerate", "patch_lightning"),
    "lightning.pytorch.trainer.connectors.accelerator_connector": (
        "..trainers.lightning_and_accelerate",
        "patch_lightning",
    ),
    "lightning_fabric.connector": ("..trainers.lightning_and_accelerate", "patch_lightning"),
    "pytorch_lightning.trainer.connectors.accelerator_connector": (
        "..trainers.lightning_and_accelerate",
        "patch_lightning",
    ),
}
"""A hook that fails refuses the import.

Without the hook, ranks would train something else, such as a model each.
"""

_STRATEGIES = {
    "keras.src.backend.tensorflow.core": ("..keras.parameter_servers", "patch_variable"),
    "keras.src.backend.tensorflow.trainer": ("..keras", "patch_trainer"),
    "keras.src.callbacks": ("..keras.callbacks", "patch"),
    "keras.src.layers.normalization.batch_normalization": ("..keras.multi_worker", "patch_normalization"),
    "tensorflow.python.distribute.distribute_lib": ("..pickling.deferred_variables", "patch"),
    "tensorflow.python.distribute.collective_all_reduce_strategy": (
        "..pickling.deferred_variables",
        "patch_collective",
    ),
}
"""A hook that fails refuses strategies that span ranks. Most cells with Keras make none, and need no hook."""

_OF_NO_RUN = (_TOOLS, _STEPS)
"""Hooks that read nothing of a run when they patch. A template can patch for its ranks."""

_TABLES = (_TRAINING, _STRATEGIES, _TOOLS, _STEPS, _CURVES, _HINTS)

_HOROVOD = ("horovod.common.basics",)
_HOROVOD_KERAS = ("horovod._keras", "horovod._keras.callbacks")
_LIGHTNING = "trainer.connectors.accelerator_connector"
_PACKAGES = {
    "accelerate": ("accelerate.state",),
    "horovod.torch": _HOROVOD,
    "horovod.tensorflow": _HOROVOD,
    "horovod.tensorflow.keras": _HOROVOD_KERAS,
    "horovod.keras": _HOROVOD_KERAS,
    "lightning.fabric": ("lightning.fabric.connector",),
    "lightning.pytorch": (f"lightning.pytorch.{_LIGHTNING}",),
    "lightning_fabric": ("lightning_fabric.connector",),
    "pytorch_lightning": (f"pytorch_lightning.{_LIGHTNING}",),
    "rich": ("rich.progress",),
    "tensorboardX": ("tensorboardX.writer",),
    "torch.utils.tensorboard": ("torch.utils.tensorboard.writer",),
    "tqdm": ("tqdm.std",),
    "transformers": ("transformers.trainer", "transformers.integrations.integration_utils"),
}
"""The packages that users import, and their modules with hooks.

A module that has moved would never be hooked. Ray Train is not in the list: without its hook, its calls raise
an error on the ranks.
"""

_mute = threading.local()
_complained: set[str] = set()
_hooked: set[str] = set()
_patched: dict[tuple[str, str], ModuleType] = {}
"""The modules that hooks of `_OF_NO_RUN` have patched, by name and our module. `install` skips them."""


def install() -> None:
    """Install the hooks that write metrics of the frameworks to this rank's events. Repeatable.

    Imports no framework. A module that is already imported (a warm start) is patched now, any other when it
    is imported. If a hook that only affects metrics fails, the user gets one note.
    Raises ForeignNameMissing if an imported module that decides what is trained cannot be patched.
    """
    _finder.install(functools.partial(_run_hook, is_import=False))


def prepare() -> None:
    """Prepare a process whose forks call `install`. Repeatable.

    This imports our modules for the frameworks that are imported, and calls the hooks that read nothing of a
    run. It leaves out hooks that would report something: each rank calls them itself.
    """
    for table in _TABLES:
        for name, (home, function) in table.items():
            module = sys.modules.get(name)
            if module is None:
                continue
            hooks = importlib.import_module(home, __package__)
            with contextlib.suppress(Exception):  # each rank tries again, and reports the error
                is_whole = not foreign_names.lost(_user(home), module=module)
                of_no_run = any(table is one for one in _OF_NO_RUN)
                if is_whole and of_no_run and _patched.get((name, home)) is not module:
                    getattr(hooks, function)(module)
                    _patched[name, home] = module


def record(values: Mapping[Any, Any], step: Any) -> None:
    """Record the values of a framework that are numbers, except within `quiet()`."""
    writer = events.writer()
    if writer is None or _depth():
        return
    numbers = loose(values)
    if numbers:
        writer.metric(numbers, None if step is None else step_number(step))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Disable `record` while a framework passes recorded values to its own loggers.

    Otherwise TensorBoard would record the metrics of Lightning, Keras and Hugging Face a second time.
    """
    _mute.depth = _depth() + 1
    try:
        yield
    finally:
        _mute.depth -= 1


def quietly(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, called within `quiet()`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with quiet():
            return original(*args, **kwargs)

    return call


def _depth() -> int:
    return int(getattr(_mute, "depth", 0))


def guarded(framework: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for code that draws curves and bars. Its first exception becomes a note.

    The function returns None after an exception. Code that decides what is trained must not use it.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # training continues without its curves
                _complain(framework, error)

        return call

    return decorate


def _complain(framework: str, error: Exception) -> None:
    why = f"{type(error).__name__}: {error}"
    _note(
        framework,
        f"jupyter-dist cannot log metrics of {framework} automatically here: {why}. Use dist.log() for them.",
    )


def _note(framework: str, text: str) -> None:
    if framework not in _complained:
        _complained.add(framework)
        writer = events.writer()
        if writer is not None:
            writer.note(text)


def _run_hook(name: str, module: ModuleType, is_import: bool = True) -> None:
    """`is_import`: the module was executed just now, also if it was imported before."""
    for needed in _PACKAGES.get(name, ()):
        if foreign_names.is_complete(needed):
            if needed not in _hooked:  # another import hook has hidden the import
                _patch(needed, sys.modules[needed], is_import)
        elif needed not in sys.modules and not foreign_names.is_there(needed):
            for table in _TABLES:
                if needed in table:
                    _fail(table, needed, ModuleNotFoundError(f"there is no module {needed}"))
    _patch(name, module, is_import)


def _patch(name: str, module: ModuleType, is_import: bool) -> None:
    _hooked.add(name)
    for table in _TABLES:
        if name not in table:
            continue
        home, function = table[name]
        if not is_import and _patched.get((name, home)) is module:
            continue
        try:
            foreign_names.require(_user(home), module=module)
            patch = getattr(importlib.import_module(home, __package__), function)
            patch(module)
            if any(table is one for one in _OF_NO_RUN):
                _patched[name, home] = module
        except Exception as error:
            _fail(table, name, error)


def _user(home: str) -> str:
    return importlib.util.resolve_name(home, __package__).partition(".")[2].replace(".", "/")


def _fail(table: Mapping[str, tuple[str, str]], name: str, error: Exception) -> None:
    if table is _CURVES:
        _complain(name, error)
        return
    if table is _STEPS:
        why = f"{type(error).__name__}: {error}"
        _note(f"{name} times", f"jupyter-dist cannot measure the times of steps in {name}: {why}.")
        return
    if table is _TOOLS or table is _HINTS:
        _note(name, f"jupyter-dist's support of {name} is off here: {type(error).__name__}: {error}.")
        return
    refusal = foreign_names.unfit(name, error)
    if table is _STRATEGIES:
        foreign_names.keep_back(name, refusal)
    elif name.startswith("horovod.") or api.world_size() > 1:
        # Horovod may set the number of ranks only later.
        raise refusal from error
    elif not isinstance(error, ModuleNotFoundError):  # a single rank trains the same without the hook
        events.tell(str(refusal))


# In the order of the tables: where modules are imported already, the hooks of a library's inner modules come
# before those of the package. `keras.Model.fit` wraps what the trainer's hook has made.
_finder = AfterImport(dict.fromkeys(name for table in (*_TABLES, _PACKAGES) for name in table), _run_hook)
