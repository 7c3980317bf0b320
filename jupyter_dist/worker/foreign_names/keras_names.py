"""Private names of Keras 3 and TensorFlow.

All of `keras.src` is private, also names without an underscore.
"""

from __future__ import annotations

from .private_name import Missing, Probe, Row

__all__ = ["ROWS"]

_SHIMS = "Training over several ranks with Keras 3"
_LEGACY = (
    'put import os; os.environ["TF_USE_LEGACY_KERAS"] = "1" at the top of the notebook, before tensorflow is '
    "imported, with tf_keras installed"
)
_LATE = "Sending a Keras model or optimizer of the notebook"
_INSIDE = "make it inside the cell"
_SENT = ("worker/pickling/reducers/keras",)
_LATE_USER = ("worker/pickling/deferred_variables",)
_TRAINERS = ("worker/keras/__init__", "worker/keras/multi_worker", "worker/keras/parameter_servers")
_COORDINATED = ("worker/keras/__init__", "worker/keras/parameter_servers")
_HOROVODS = ("worker/keras/__init__", "worker/horovod/keras3_optimizer")


def _shim(module: str, names: tuple[str, ...], users: tuple[str, ...]) -> Row:
    """Return a row for names in the source of a module that a shim patches.

    Keras is not imported to find them.
    """
    return Row(f"keras.src.{module}", names, users, Missing.REFUSE, _SHIMS, Probe.WRITTEN, cure=_LEGACY)


def _sent(module: str, *names: str, users: tuple[str, ...] = _SENT, probe: Probe = Probe.WRITTEN) -> Row:
    return Row(module, names, users, Missing.REFUSE, _LATE, probe, cure=_INSIDE)


KERAS3: tuple[Row, ...] = (
    _shim("backend.common.stateless_scope", ("in_stateless_scope",), _COORDINATED),
    _shim("backend.common.variables", ("assign_add", "assign_sub", "_convert_to_tensor"), _COORDINATED),
    _shim("backend.tensorflow.core", ("Variable",), (*_COORDINATED, "worker/keras/callbacks")),
    _shim(
        "backend.tensorflow.trainer",
        (
            "TensorFlowTrainer",
            "TFEpochIterator",
            "reduce_per_replica",
            "_collective_all_reduce_multi_worker",
            "_maybe_symbolic_build",
            "_make_function",
        ),
        _TRAINERS,
    ),
    _shim(
        "callbacks",
        ("BackupAndRestore", "CSVLogger", "CallbackList", "ModelCheckpoint", "TensorBoard"),
        ("worker/keras/__init__", "worker/keras/callbacks"),
    ),
    _shim(
        "layers.normalization.batch_normalization",
        ("BatchNormalization", "_moments"),
        ("worker/keras/__init__", "worker/keras/multi_worker", "worker/horovod/keras3"),
    ),
    _shim(
        "optimizers.base_optimizer",
        ("BaseOptimizer", "variables", "apply", "_backend_apply_gradients", "_clip_gradients"),
        (*_HOROVODS, *_SENT),
    ),
    _shim("optimizers.loss_scale_optimizer", ("LossScaleOptimizer",), _HOROVODS),
    _shim(
        "trainers.trainer",
        ("_get_metrics_result_or_logs", "model_supports_jit", "_symbolic_build"),
        _TRAINERS + _HOROVODS,
    ),
)
"""Private names of Keras 3 that we patch or call. `keras.missing()` checks all of them."""

ROWS: tuple[Row, ...] = (
    *KERAS3,
    _sent("keras.src.optimizers.base_optimizer", "_trainable_variables", users=_HOROVODS + _LATE_USER),
    _sent(
        "keras.src.optimizers.base_optimizer",
        *("_trainable_variables_indices", "_var_key"),
        users=_LATE_USER + _SENT,
    ),
    _sent("keras.src.backend.tensorflow.optimizer", "_distribution_strategy", users=_LATE_USER + _SENT),
    _sent(
        "keras.src.backend.tensorflow.trainer",
        "_distribute_strategy",
        users=(*_LATE_USER, *_SENT, "worker/keras/multi_worker", "worker/keras/parameter_servers"),
    ),
    _sent(
        "keras.src.backend.common.variables",
        *("_value", "_initialize", "_deferred_initialize", "_aggregation"),
        users=(*_LATE_USER, *_SENT, "worker/keras/parameter_servers"),
    ),
    Row(
        "keras.src.backend.tensorflow.trainer",
        ("_distributed_dataset",),
        ("worker/keras/parameter_servers",),
        Missing.REFUSE,
        _SHIMS,
        Probe.WRITTEN,
        cure=_LEGACY,
    ),
    _sent("keras.src.backend.tensorflow.trainer", "_eval_epoch_iterator"),
    _sent("keras.src.ops.operation", "_inbound_nodes", "_outbound_nodes"),
    _sent("keras.src.ops.function", "_nodes", "_nodes_by_depth", "_operations", "_operations_by_depth"),
    _sent("keras.src.ops.function", "make_node_key", probe=Probe.ATTRIBUTE),
    _sent("keras.src.ops.node", "_keras_history"),
    _sent("keras.src.utils.backend_utils", "_backend"),
    _sent("keras.src.layers.layer", "_tracker"),
    _sent("keras.src.layers.preprocessing.text_vectorization", "_standardize", "_split"),
    _sent("keras.src.optimizers.multi_optimizer", "_var_to_optimizer_idx"),
    _sent("tensorflow.python.trackable.data_structures", "_DictWrapper"),
    _sent(
        "tensorflow.python.trackable.base",
        *("_self_unconditional_checkpoint_dependencies", "_self_unconditional_dependency_names"),
    ),
    Row(
        "keras.src.optimizers.adam",
        ("_momentums",),
        ("worker/horovod/keras3_optimizer",),
        Missing.REFUSE,
        "Changing the learning rate with momentum correction",
        Probe.WRITTEN,
    ),
    Row(
        "keras._tf_keras",
        (),
        ("capture/keras_checks",),
        Missing.OFF,
        "Detecting a Keras of the notebook under its second name",
        Probe.MODULE,
    ),
    Row(
        "tensorflow.python.framework.ops",
        ("_EagerTensorBase",),
        ("worker/pickling/reducers/__init__", "worker/pickling/reducers/tensorflow"),
        Missing.OFF,
        "Connecting the workers before a tensor of the notebook starts TensorFlow",
    ),
    Row(
        "tensorflow.python.eager.polymorphic_function.polymorphic_function",
        (
            *("_name", "_autograph", "_jit_compile", "_reduce_retracing"),
            *("_experimental_autograph_options", "_python_function"),
        ),
        ("worker/pickling/reducers/tensorflow",),
        Missing.REFUSE,
        "Sending a tf.function of the notebook",
        Probe.WRITTEN,
        cure="decorate the function inside the cell",
    ),
    Row(
        "tensorflow.python.eager.context",
        (
            *("_context", "_soft_device_placement", "_intra_op_parallelism_threads"),
            *("_inter_op_parallelism_threads", "_optimizer_jit", "_virtual_device_map"),
        ),
        ("worker/settings/libraries/tensorflow",),
        Missing.OFF,
        "Copying TensorFlow's settings from the notebook",
        Probe.WRITTEN,
    ),
    Row(
        "tensorflow.python.eager.context",
        ("_context", "_seed", "_rng"),
        ("capture/kernel_seeds",),
        Missing.OFF,
        "Copying TensorFlow's seed from the notebook",
        Probe.WRITTEN,
    ),
)
