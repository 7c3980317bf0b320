"""tf_keras under the name keras, for cells that do not work with Keras 3."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

__all__ = ["HOROVOD", "adapt", "arrange"]


HOROVOD = "Horovod's Keras API"
_WHY = "what it uses"
_MISSING = (
    "this cell needs tf_keras, the Keras 2 of this TensorFlow, because {why} does not "
    "work with Keras 3. Install it on the workers with `pip install tf_keras`. If "
    "TensorFlow is tensorflow-cpu, use `pip install --no-deps tf_keras`, because pip "
    "otherwise installs the full tensorflow too."
)
_TOO_LATE = (
    "tf_keras cannot replace Keras 3 here, because this process has already imported "
    "Keras 3 ({names}). Before the cell, import neither keras nor, unless "
    "TF_USE_LEGACY_KERAS=1 is set, tensorflow."
)


def arrange(why: str = _WHY) -> None:
    """Make `import keras`, `from tensorflow import keras` and `tf.keras` all return tf_keras. Repeatable.

    `why`: the feature that does not work with Keras 3, for the messages. Imports tensorflow.
    Raises RuntimeError when tf_keras is not installed (with the package to install), and when Keras 3 is
    already imported in this process.
    """
    if any(isinstance(finder, _Alias) for finder in sys.meta_path):
        return
    modern = [name for name, module in sys.modules.items() if _is_keras(name) and not _is_legacy(module)]
    if modern:
        raise RuntimeError(_TOO_LATE.format(names=", ".join(sorted(modern)[:3])))
    if "tf_keras" not in sys.modules and importlib.util.find_spec("tf_keras") is None:
        raise RuntimeError(_MISSING.format(why=why))
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    # TensorFlow reads the variable now, and imports the optimizers of tf_keras itself.
    importlib.import_module("tensorflow")
    importlib.import_module("tf_keras")
    for name, module in list(sys.modules.items()):
        if name == "tf_keras" or name.startswith("tf_keras."):
            sys.modules[name[3:]] = module
    sys.meta_path.insert(0, _Alias())
    if why == HOROVOD:
        adapt()


class _Alias:
    """A finder of `keras.X` as `tf_keras.X`.

    Without it, a submodule imported later would be a second copy.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("keras."):
            return None
        try:
            module = importlib.import_module("tf_" + fullname)
        except ModuleNotFoundError as error:
            if error.name != "tf_" + fullname:
                raise
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: in this cell keras is tf_keras, which lacks it", name=fullname
            ) from None
        return importlib.machinery.ModuleSpec(fullname, _Found(module))  # type: ignore[arg-type]


class _Found:
    """A loader that returns a module that is imported under another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__
        self._loader = module.__loader__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the alias into the module. This restores the original values.
        module.__spec__ = self._spec
        module.__loader__ = self._loader


def _is_keras(name: str) -> bool:
    return name == "keras" or name.startswith("keras.")


def _is_legacy(module: ModuleType) -> bool:
    return getattr(module, "__name__", "").partition(".")[0] == "tf_keras"


def adapt() -> None:
    """Import Horovod's Keras API and patch its callbacks.

    Without Horovod, the cell's own import raises the error. The callbacks correct the momentum when they
    change the learning rate. An optimizer that stores its momentum as a plain number has it compiled in. The
    callbacks cannot correct that momentum, and would fail.
    """
    try:
        from horovod._keras import callbacks
    except ImportError:
        return
    adjust = callbacks.LearningRateScheduleCallbackImpl._adjust_learning_rate

    def adjusted(self: Any, epoch: float) -> None:
        momentum = getattr(self.model.optimizer, "momentum", None)
        if self.momentum_correction and isinstance(momentum, (int, float)):
            self.momentum_correction = False
            if momentum:
                print(
                    f"jupyter_dist: {type(self).__name__} changes the learning rate without momentum "
                    "correction, because this optimizer does not support it. Use an optimizer of "
                    "keras.optimizers.legacy",
                    file=sys.stderr,
                )
        adjust(self, epoch)

    callbacks.LearningRateScheduleCallbackImpl._adjust_learning_rate = adjusted
