"""The settings of TensorFlow and Keras."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .setting import Setting, pair

__all__ = ["TENSORFLOW"]

_PHYSICAL = "/physical_device:"


def _eager_context(name: str) -> Callable[[Any], Any]:
    """Return a reader of TensorFlow's context. The public functions would look for the GPUs."""

    def read(_: Any) -> Any:
        module = sys.modules.get("tensorflow.python.eager.context")
        return getattr(getattr(module, "_context", None), name, None)

    return read


def _tf_deterministic(tensorflow: Any) -> bool | None:
    config = sys.modules["tensorflow.python.framework.config"]
    return config.is_op_determinism_enabled() or None


def _logical_devices(tensorflow: Any) -> dict[str, list[list[Any]]] | None:
    """Return the logical devices of each physical device that a cell has divided, such as `CPU:0`."""
    divided = _eager_context("_virtual_device_map")(tensorflow) or {}
    return {
        device.name.removeprefix(_PHYSICAL): [list(one) for one in logical]
        for device, logical in divided.items()
    } or None


def _divide_devices(tensorflow: Any, divided: dict[str, list[list[Any]]]) -> None:
    config = tensorflow.config
    there = {device.name.removeprefix(_PHYSICAL): device for device in config.list_physical_devices()}
    for name in divided.keys() & there.keys():
        made = [config.LogicalDeviceConfiguration(*one) for one in divided[name]]
        config.set_logical_device_configuration(there[name], made)
    if missing := divided.keys() - there.keys():
        raise RuntimeError(f"this rank has no {', '.join(sorted(missing))}")


def _policy(keras: Any) -> str | None:
    mixed = keras.mixed_precision
    policy = mixed.global_policy() if hasattr(mixed, "global_policy") else mixed.dtype_policy()
    return None if policy.name == "float32" else str(policy.name)


def _refuse_backend(keras: Any, name: str) -> None:
    raise RuntimeError(f"Keras has started with {keras.backend.backend()!r}, not with {name!r}")


def _switch(thing: str) -> Setting:
    """Return a setting that Keras 3 enables, disables and reports by functions. It is on by default."""

    def write(keras: Any, on: bool) -> None:
        getattr(keras.config, f"{'enable' if on else 'disable'}_{thing}")()

    return Setting(thing, lambda keras: None if _is_on(keras, thing) else False, write)


def _is_on(keras: Any, thing: str) -> bool:
    return bool(getattr(keras.config, f"is_{thing}_enabled")())


_KERAS = (
    Setting(
        "backend",
        lambda keras: None if keras.backend.backend() == "tensorflow" else keras.backend.backend(),
        _refuse_backend,  # the backend is chosen before the import
    ),
    pair("backend.floatx", "backend.set_floatx", "float32"),
    pair("backend.epsilon", "backend.set_epsilon", 1e-7),
    pair("backend.image_data_format", "backend.set_image_data_format", "channels_last"),
    Setting("dtype policy", _policy, lambda keras, name: keras.mixed_precision.set_global_policy(name)),
    _switch("traceback_filtering"),
    _switch("interactive_logging"),
)


TENSORFLOW: dict[str, tuple[Setting, ...]] = {
    "tensorflow": (
        pair("config.functions_run_eagerly", "config.run_functions_eagerly", False),
        pair(
            "config.experimental.tensor_float_32_execution_enabled",
            "config.experimental.enable_tensor_float_32_execution",
            True,
        ),
        Setting(
            "op determinism", _tf_deterministic, lambda tf, _: tf.config.experimental.enable_op_determinism()
        ),
        Setting(
            "soft device placement",
            _eager_context("_soft_device_placement"),
            lambda tf, on: tf.config.set_soft_device_placement(on),
        ),
        Setting(
            "intra op threads",
            _eager_context("_intra_op_parallelism_threads"),
            lambda tf, count: tf.config.threading.set_intra_op_parallelism_threads(count),
        ),
        Setting(
            "inter op threads",
            _eager_context("_inter_op_parallelism_threads"),
            lambda tf, count: tf.config.threading.set_inter_op_parallelism_threads(count),
        ),
        Setting("logical devices", _logical_devices, _divide_devices),
        Setting(
            "jit",
            lambda tf: _eager_context("_optimizer_jit")(tf) or None,
            lambda tf, how: tf.config.optimizer.set_jit(how),
        ),
    ),
    "keras": _KERAS,
    "tf_keras": _KERAS,
}
