"""Layers, models, optimizers, metrics and losses of Keras 3, attribute by attribute.

Keras pickles its objects by their configuration. That needs `get_config`, does not find classes of the
notebook, and omits attributes that were set later. This reducer pickles an object like any other Python
object. So its weights, its slots, the arguments of `compile` and shared objects are the same on the rank.
Only the parts that belong to one process are rebuilt: variables of TensorFlow, compiled functions, tables
keyed by `id`. With torch, a layer is also a module, whose parameters are the variables' values.
"""

from __future__ import annotations

import functools
import re
import sys
from collections import defaultdict
from typing import Any

from .. import deferred_variables
from . import Refused, wrapped_by_horovod

__all__ = ["reduce"]

_MADE_ANEW = {"build", "quantize", "_inbound_nodes", "_outbound_nodes", "_trainable_variables_indices"}
_MADE_ANEW |= {"_nodes", "_nodes_by_depth", "_operations", "_operations_by_depth", "_distribution_strategy"}
_FORGOTTEN = (
    "train_function",
    "test_function",
    "predict_function",
    "_eval_epoch_iterator",
    "_distribute_strategy",
)
_OF_HOROVOD = {"apply", "register_local_var", "_horovod", "_backend_apply_gradients", "_clip_gradients"}
_DEPENDENCIES = ("_self_unconditional_checkpoint_dependencies", "_self_unconditional_dependency_names")
_NUMBERED = re.compile(r"(.+?)(?:_(\d+))?", re.DOTALL)
_WITH_TABLES = ("index_lookup", "string_lookup", "integer_lookup", "text_vectorization")


def reduce(obj: Any, note: Any) -> Any:
    """Reduce an object, as the package's docstring defines."""
    kind, backend = type(obj), sys.modules["keras.src.backend"]
    if issubclass(kind, backend.Variable):
        return _reduce_variable(obj) if _with_tensorflow() else (_new, (kind,), vars(obj))
    if issubclass(kind, backend.KerasTensor):
        return _reduce_tensor(obj)
    if kind.__name__ == "Node":
        call = (obj.operation, obj.arguments.args, obj.arguments.kwargs)
        return _node, ([_spec(tensor) for tensor in obj.outputs],), call, None, None, _restore_node
    if kind.__name__ == "DynamicBackend":
        return kind, (obj._backend,)
    if kind.__name__ == "Tracker":
        state = {k: v for k, v in vars(obj).items() if k not in ("config", "stored_ids")}
        known = _tests()
        stores = {
            name: (None if name in known and _is_keras(test) else test, store)
            for name, (test, store) in obj.config.items()
        }
        return _new, (kind,), (stores, state), None, None, _restore_tracker
    for plain, restore in ((list, _restore_list), (dict, _restore_dict), (set, _restore_set)):
        if isinstance(obj, plain):
            return _new, (kind,), (plain(obj), vars(obj)["tracker"]), None, None, restore
    return _reduce_saveable(obj, note)


def _with_tensorflow() -> bool:
    """Return whether Keras computes with TensorFlow, and not with torch or JAX."""
    core = sys.modules.get("keras.src.backend.tensorflow.core")
    return core is not None and issubclass(sys.modules["keras.src.backend"].Variable, core.Variable)


def _is_keras(test: Any) -> bool:
    return str(getattr(test, "__module__", "")).startswith("keras.src.") and not test.__closure__


def _reduce_variable(variable: Any) -> Any:
    state = {k: v for k, v in vars(variable).items() if k != "_value" and not k.startswith("_self_")}
    return _new, (type(variable),), (state, _value(variable._value)), None, None, _restore_variable


def _value(made: Any) -> Any:
    if made is None:
        return None
    # A strategy's variable can be a sum over ranks, which only all ranks together could read.
    copies = getattr(made, "values", None)
    return (copies[0] if isinstance(copies, tuple) else made).numpy()


def _reduce_tensor(tensor: Any) -> Any:
    history = getattr(tensor, "_keras_history", None)
    if history is None or history.operation is None:
        return _tensor, (type(tensor), _spec(tensor))
    return _output, (history.operation._inbound_nodes[history.node_index], history.tensor_index)


def _spec(tensor: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(tensor).items() if k != "_keras_history"}


def _reduce_saveable(obj: Any, note: Any) -> Any:
    kind, values = type(obj), vars(obj)
    if kind.__module__.rpartition(".")[2] in _WITH_TABLES:
        return _reduce_with_tables(obj, kind, values)
    if "_var_to_optimizer_idx" in values:
        raise Refused("cannot pickle a MultiOptimizer", "Make it inside the cell.")
    if any(base.__module__ == "horovod._keras" for base in kind.__mro__) or "_allreduce_grads" in values:
        raise wrapped_by_horovod()
    strategy = values.get("_distribute_strategy")
    if strategy is not None:
        note(
            f"{values.get('name')!r} was made in the scope of {type(strategy).__name__}, which is "
            "not sent to the ranks. On a rank it uses the strategy of the cell, or none"
        )
    left = _MADE_ANEW | (_OF_HOROVOD if "_horovod" in values else set())
    state = {k: v for k, v in values.items() if k not in left}
    state |= dict.fromkeys(name for name in _FORGOTTEN if name in state)
    # Some attributes of Keras are dicts in TensorFlow's wrapper, which cannot be unpickled.
    state |= {k: dict(v) for k, v in state.items() if type(v).__name__ == "_DictWrapper"}
    for name in _DEPENDENCIES:
        if name in state:
            state[name] = _followed(state[name])
    # The calls are pickled first, from the inputs on. Following tensors back from the outputs would nest too
    # deeply.
    graph = _graph(obj) if "_nodes_by_depth" in values else None
    return _new, (kind,), (graph, state), None, None, _restore_saveable


def _reduce_with_tables(obj: Any, kind: Any, values: dict[str, Any]) -> Any:
    """Reduce a layer with a vocabulary. Keras' own pickling includes it.

    Keras pickles a function by its name, and a lambda without its globals. So functions travel beside it.
    """
    functions = {name: values[name] for name in ("_standardize", "_split") if callable(values.get(name))}
    if not functions:
        return NotImplemented
    bare = kind.__new__(kind)
    vars(bare).update(values | dict.fromkeys(functions))
    return *bare.__reduce__(), functions, None, None, _restore_functions


def _followed(dependencies: Any) -> Any:
    """Return the dependencies of TensorFlow's checkpoints, without those that are rebuilt."""

    def stays(name: str, value: Any) -> bool:
        return name not in _MADE_ANEW and type(value).__name__ != "_DictWrapper"

    if isinstance(dependencies, dict):
        return {name: value for name, value in dependencies.items() if stays(name, value)}
    return [reference for reference in dependencies if stays(reference.name, reference.ref)]


def _graph(function: Any) -> tuple[Any, ...]:
    by_depth = sorted(function._nodes_by_depth.items(), reverse=True)
    nodes = defaultdict(list, {depth: list(level) for depth, level in by_depth})
    levels = {depth: list(level) for depth, level in function._operations_by_depth.items()}
    return nodes, list(function._operations), defaultdict(list, levels)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _new(kind: Any) -> Any:
    made = kind.__new__(kind)
    if hasattr(kind, "symbolic_call"):  # an operation, to which nodes add themselves
        vars(made).update(_inbound_nodes=[], _outbound_nodes=[])
    return made


def _restore_variable(variable: Any, state: tuple[dict[str, Any], Any]) -> None:
    attributes, value = state
    vars(variable).update(attributes)
    if value is None:
        vars(variable)["_value"] = None
    else:
        deferred_variables.wait(variable, value)


def _tensor(kind: Any, spec: dict[str, Any]) -> Any:
    tensor = kind.__new__(kind)
    vars(tensor).update(spec)
    return tensor


def _node(specs: list[dict[str, Any]]) -> Any:
    # The tensors are made first: a called object may refer to its own output, as InputLayer does.
    from keras.src.backend import KerasTensor
    from keras.src.ops.node import Node

    node = Node.__new__(Node)
    node.outputs = [_tensor(KerasTensor, spec) for spec in specs]
    return node


def _restore_node(node: Any, call: tuple[Any, Any, Any]) -> None:
    type(node).__init__(node, *call, outputs=node.outputs)


def _output(node: Any, index: int) -> Any:
    return node.outputs[index]


def _restore_tracker(tracker: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    stores, attributes = state
    tests = _tests()
    vars(tracker).update(attributes)
    tracker.config = {name: (test or tests[name], store) for name, (test, store) in stores.items()}
    _count(tracker)


@functools.cache
def _tests() -> dict[str, Any]:
    """Return Keras' tests that assign an attribute to a store.

    So a hundred copies of them need not be sent.
    """
    import keras

    kinds = (keras.layers.Layer, keras.metrics.Metric)
    return {name: test for kind in kinds for name, (test, _) in kind(name="any")._tracker.config.items()}


def _count(tracker: Any) -> None:
    tracker.stored_ids = {name: {id(value) for value in store} for name, (_, store) in tracker.config.items()}


def _restore_list(obj: Any, state: tuple[list[Any], Any]) -> None:
    obj.tracker = None
    list.extend(obj, state[0])
    obj.tracker = state[1]


def _restore_dict(obj: Any, state: tuple[dict[Any, Any], Any]) -> None:
    obj.tracker = None
    for key, value in state[0].items():
        dict.__setitem__(obj, key, value)
    obj.tracker = state[1]


def _restore_set(obj: Any, state: tuple[set[Any], Any]) -> None:
    obj.tracker = None
    set.update(obj, state[0])
    obj.tracker = state[1]


def _restore_saveable(obj: Any, state: tuple[Any, dict[str, Any]]) -> None:
    graph, attributes = state
    values = vars(obj)
    values.update(attributes)
    if "name" in attributes:
        _reserve(attributes["name"])
    if "_tracker" in attributes:
        _count(attributes["_tracker"])
    if graph is not None:
        _restore_graph(obj, *graph)
    if _with_tensorflow():
        deferred_variables.add(obj)
    else:  # variables of torch and JAX are there already
        deferred_variables.key(obj)


def _restore_functions(layer: Any, functions: dict[str, Any]) -> None:
    vars(layer).update(functions)


def _restore_graph(function: Any, nodes: Any, operations: Any, operations_by_depth: Any) -> None:
    from keras.src.ops.function import make_node_key
    from keras.src.utils.tracking import DotNotTrackScope

    calls = [node for level in nodes.values() for node in level]
    keys = {make_node_key(node.operation, node.operation._inbound_nodes.index(node)) for node in calls}
    # The attributes are set as Keras sets them, so that checkpoints of TensorFlow follow them as usual.
    with DotNotTrackScope():
        function._nodes, function._nodes_by_depth = keys, nodes
        function._operations, function._operations_by_depth = operations, operations_by_depth


def _reserve(name: Any) -> None:
    """Reserve a layer's name, so that a layer made in the cell gets a different name."""
    from keras.src.utils import naming

    found = _NUMBERED.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        return
    uids = naming.global_state.get_global_attribute("object_name_uids")
    if uids is None:
        naming.uniquify("")
        uids = naming.global_state.get_global_attribute("object_name_uids")
    uids[found[1]] = max(uids[found[1]], int(found[2] or 0) + 1)
