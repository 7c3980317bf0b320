"""The exit from a collective of TensorFlow that waits for another rank, and new ones after a failed cell.

TensorFlow lets another thread abort all collectives of a process. If the process then enables them again, it
gets new ones and keeps its variables. In a session, TensorFlow does not watch its workers: its coordination
service would end the processes of all workers when one of them dies. The session's supervisor watches them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .. import foreign_names
from ..import_hooks import call
from ..output import events
from ..patching import wrap
from ..tensorflow import strategies
from ..tf_config import task
from .instances import instances

__all__ = ["close", "leave", "watch"]

_CONTEXT = "tensorflow.python.eager.context"
_STRATEGY = "tensorflow.python.distribute.collective_all_reduce_strategy"
_CURE = (
    "Call dist.strategy() again, build the model again in its scope, and copy the weights: "
    "new.set_weights(model.get_weights())."
)
_NOTE = (
    "The collectives of TensorFlow were ended, because a cell has failed. Variables keep their values. "
    + _CURE
)
_USES = (
    "run",
    "gather",
    "distribute_datasets_from_function",
    "experimental_distribute_dataset",
    "experimental_distribute_values_from_function",
)
"""Methods of a strategy with which ranks begin to communicate. Reading a variable enters `scope`."""
_KEYS = 1000
"""How many group keys a strategy may use."""
_enabled: tuple[Any, Any] | None = None
"""TensorFlow's context with collectives, and the definition of its server."""


def watch() -> None:
    """Note from now on which collectives TensorFlow enables."""
    call(_STRATEGY, _patch)


def _patch() -> None:
    with contextlib.suppress(ValueError):  # TensorFlow itself reports a TF_CONFIG that is not valid
        if task().count("ps"):
            return
    lacking = foreign_names.lost("worker/session/tensorflow_collectives", module=sys.modules[_STRATEGY])
    for row, names in lacking:
        events.tell(foreign_names.note(row, names))
    if lacking:
        return  # a rank that waits is killed, as one in a collective of NCCL
    context = sys.modules[_CONTEXT]
    wrap(context.Context, "enable_collective_ops", _noting)
    context.context().configure_coordination_service(service_type="")
    sys.modules[_STRATEGY].CollectiveAllReduceExtended._enable_check_health = False
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a rank that starts a little later is not dead


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    def enable(self: Any, server_def: Any) -> None:
        global _enabled
        # Another strategy of the same ranks uses the collectives that are there. New ones would drop the
        # requests of ranks that were faster.
        if _enabled is None or _enabled[1].cluster != server_def.cluster:
            original(self, server_def)
            _enabled = self, server_def
        # Each strategy counts its collectives from the same number. So the next one gets groups of its own.
        kind = sys.modules[_STRATEGY].CollectiveAllReduceStrategy
        kind._collective_key_base += _KEYS

    return enable


def leave() -> None:
    """Make every collective of TensorFlow in this process raise. Another thread than theirs calls this."""
    enabled = _enabled  # the main thread may be closing the collectives
    if enabled is not None:
        errors = sys.modules["tensorflow"].errors
        enabled[0].abort_collective_ops(errors.CANCELLED, "the cell was stopped, or another rank has failed")


def close() -> str | None:
    """End the collectives of this process. The next strategy of all ranks gets new ones.

    Returns the note for the user; None if there were no collectives.
    """
    global _enabled
    if _enabled is None:
        return None
    leave()
    context, server_def = _enabled
    _enabled = None
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True  # it warns of tensors that it keeps
    try:
        context.enable_collective_ops(server_def)
    finally:
        logger.disabled = before
    sys.modules[_STRATEGY].CollectiveAllReduceStrategy._collective_key_base = 0  # as in a fresh rank
    strategies.forget()
    _end_strategies()
    return _NOTE


def _end_strategies() -> None:
    """Let all strategies that exist raise. Their ranks have counted different collectives, and would hang."""
    for each in instances(sys.modules[_STRATEGY].CollectiveAllReduceStrategy):
        for name in _USES:
            setattr(each, name, _refuse)
        each.reduce = functools.partial(_reduce, each)
        with contextlib.suppress(AttributeError):  # one whose constructor has failed
            each.extended._create_variable = _refuse


def _reduce(strategy: Any, _operation: Any, value: Any, axis: Any = None) -> Any:
    """Return this rank's value of a variable: reading one that each replica has of its own reduces it.

    An example is the moving mean of Keras 2's BatchNormalization.
    """
    if isinstance(value, sys.modules["tensorflow"].Variable):
        return strategy.experimental_local_results(value)[0].read_value()
    return _refuse()


def _refuse(*_arguments: Any, **_options: Any) -> NoReturn:
    raise RuntimeError(
        "this strategy belongs to collectives of TensorFlow that were ended, because a cell has failed. "
        + _CURE
    )
