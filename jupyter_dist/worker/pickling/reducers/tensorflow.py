"""TensorFlow's compiled functions, datasets and checkpoints.

Strategies, iterators and open file writers are refused.
"""

from __future__ import annotations

import re
from typing import Any

from .. import deferred_variables
from . import Refused

__all__ = ["own_words", "reduce"]

_OPERATION = re.compile(r"\s*\[Op:[^\]]*\].*", re.DOTALL)
"""The end of a message of TensorFlow: `[Op:DatasetToGraphV2] name: `."""
_OPTIONS = ("_name", "_autograph", "_jit_compile", "_reduce_retracing", "_experimental_autograph_options")


def reduce(obj: Any, note: Any) -> Any:
    """Reduce an object, as the package's docstring defines."""
    names = {base.__name__ for base in type(obj).__mro__}
    if "Variable" in names or "_EagerTensorBase" in names:
        made, args, *rest = obj.__reduce_ex__(5)
        return _late, (made, args), *rest
    if "DatasetV2" in names:
        return _reduce_dataset(obj)
    if "SummaryWriter" in names:
        return _reduce_file_writer(obj)
    if "Checkpoint" in names:
        made, args, *rest = obj.__reduce_ex__(5)
        return _checkpoint, (made, args), *rest
    if "StrategyBase" in names:
        import tensorflow as tf

        if obj is tf.distribute.get_strategy() and not tf.distribute.has_strategy():
            return _default_strategy, ()
        name = type(obj).__name__
        raise Refused(
            f"a strategy ({name}) belongs to the process that made it",
            f"Make it inside the cell: strategy = dist.strategy(), or tf.distribute.{name.rstrip('V12')}().",
        )
    if "Function" in names:
        # The rank traces the function again, because traces contain the variables of this process.
        options = {name: getattr(obj, name) for name in _OPTIONS}
        return _function, (obj._python_function, obj.input_signature, options)
    raise Refused(
        f"{type(obj).__name__} belongs to the process that made it",
        "Send the dataset itself, and iterate there.",
    )


def _reduce_file_writer(writer: Any) -> Any:
    if not hasattr(writer, "init"):
        return NotImplemented  # it writes nothing
    try:
        writer.init()  # without effect outside of graphs
    except RuntimeError:  # it is closed, as those of a TensorBoard callback are after a training
        return _closed_file_writer, ()
    raise Refused(
        "a file writer of tf.summary belongs to the process that opened it",
        "Call tf.summary.create_file_writer inside the cell.",
    )


def own_words(message: str) -> str:
    """Return a message of TensorFlow without the nodes and the operation that it names around its text."""
    text = message.rpartition("}}")[2] if message.startswith("{{") else message
    return _OPERATION.sub("", text).strip().rstrip(".")


def _reduce_dataset(dataset: Any) -> Any:
    import tensorflow as tf

    try:
        graph = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset),
            external_state_policy=2,  # the value of the policy FAIL
            strip_device_assignment=True,
        ).numpy()
    except tf.errors.OpError as error:
        raise Refused(
            f"this dataset cannot be sent: {own_words(error.message)}",
            "Write a function that makes it, and call that inside the cell.",
        ) from error
    options = dataset.options()
    return _dataset, (graph, dataset.element_spec, None if options == tf.data.Options() else options)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _late(make: Any, args: tuple[Any, ...]) -> Any:
    deferred_variables.start_tensorflow()
    return make(*args)


def _checkpoint(make: Any, args: tuple[Any, ...]) -> Any:
    import tensorflow as tf

    tf.train.Checkpoint()  # TensorFlow notes the time of the first one, and needs the time to save another
    return make(*args)


def _closed_file_writer() -> Any:
    import tensorflow as tf

    return tf.summary.create_noop_writer()


def _function(python_function: Any, signature: Any, options: dict[str, Any]) -> Any:
    import tensorflow as tf

    plain = {name.lstrip("_"): value for name, value in options.items()}
    name = plain.pop("name")
    made = tf.function(python_function, input_signature=signature, **plain)
    made._name = name
    return made


def _default_strategy() -> Any:
    import tensorflow as tf

    return tf.distribute.get_strategy()


def _dataset(graph: bytes, spec: Any, options: Any) -> Any:
    import tensorflow as tf

    deferred_variables.start_tensorflow()
    made = tf.data.experimental.from_variant(tf.raw_ops.DatasetFromGraph(graph_def=graph), spec)
    # Strategies read the options, for example how to shard. The graph does not contain them.
    return made if options is None else made.with_options(options)
