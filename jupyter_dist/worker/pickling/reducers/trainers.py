"""Trainers of Lightning and Hugging Face: a rank repeats the call that made them.

Their contents (devices, process groups, the main process) are valid only in the process that made them. The
kernel records the call (`capture/trainer_calls.py`). Attributes that were set afterwards are set again on the
rank. If the result would be a different trainer, it is refused before anything starts.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

from ...output import events
from ..unpickling import later
from . import Refused
from .fingerprints import OURS, top
from .recorded_calls import Made, callbacks_of, changes, noted
from .trainer_kinds import Kind, kind_of

__all__ = ["reduce"]

_CURE = "Make it inside the cell, or in a function that the cell calls."
_BOUND = {
    *("distributed_state", "_setup_devices", "_n_gpu", "local_rank"),
    *("deepspeed_plugin", "hf_deepspeed_config", "fsdp_plugin_args", "xla_fsdp_config"),
}
"""Fields that TrainingArguments derive from their own process or from their other fields."""

_PREPARED = {
    "accelerate.optimizer.AcceleratedOptimizer": "accelerator.prepare()",
    "accelerate.scheduler.AcceleratedScheduler": "accelerator.prepare()",
    "accelerate.data_loader.DataLoaderStateMixin": "accelerator.prepare()",
    "lightning.fabric.wrappers._FabricModule": "fabric.setup()",
    "lightning.fabric.wrappers._FabricOptimizer": "fabric.setup()",
    "lightning.fabric.wrappers._FabricDataLoader": "fabric.setup_dataloaders()",
    "lightning_fabric.wrappers._FabricModule": "fabric.setup()",
    "lightning_fabric.wrappers._FabricOptimizer": "fabric.setup()",
    "lightning_fabric.wrappers._FabricDataLoader": "fabric.setup_dataloaders()",
}
_STATES = {"accelerate.state.AcceleratorState", "accelerate.state.GradientState"}
_ARGUMENTS = "transformers.training_args.TrainingArguments"
_STRATEGIES = {
    f"{home}.strategies.strategy.Strategy"
    for home in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")
}
_BACK_REFERENCES = {
    f"{home}.{name}": attribute
    for home in ("lightning.pytorch", "pytorch_lightning")
    for name, attribute in (
        ("core.datamodule.LightningDataModule", "trainer"),
        ("callbacks.progress.progress_bar.ProgressBar", "_trainer"),
    )
}


def reduce(obj: Any, note: Callable[[str], None]) -> Any:
    """Return the reduced object.

    Raises Refused if the rank would get a different object.
    """
    names = [f"{base.__module__}.{base.__qualname__}" for base in type(obj).__mro__]
    for name in names:
        if name in _BACK_REFERENCES:
            return _without(obj, _BACK_REFERENCES[name])
    if events.writer() is not None:
        return NotImplemented  # a rank's result, which is sent to the notebook
    for name in names:
        if name in _PREPARED:
            raise Refused(
                f"{_PREPARED[name]} has prepared it for the notebook's one process",
                f"Call {_PREPARED[name]} inside the cell, or in a function that the cell calls.",
            )
        if name in _STATES:
            raise Refused(
                f"{type(obj).__name__} is the state of the notebook's process",
                f"Write {type(obj).__name__}() inside the cell, or in a function that the cell calls.",
            )
        if name in _STRATEGIES:
            return _reduce_strategy(obj)
        if name == _ARGUMENTS:
            return _reduce_arguments(obj)
    return _reduce_made(obj, kind_of(type(obj)))


def _without(obj: Any, attribute: str) -> Any:
    """Reduce as usual, but without the trainer that last used the object.

    The next trainer sets itself there.
    """
    reduced = obj.__reduce_ex__(5)
    state = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
    if not isinstance(state, dict) or state.get(attribute) is None:
        return reduced
    return (*reduced[:2], {**state, attribute: None}, *reduced[3:])


def _reduce_strategy(strategy: Any) -> Any:
    if getattr(strategy, "_accelerator", None) is None:
        return NotImplemented
    raise Refused(
        f"a {type(strategy).__name__} that a trainer of the notebook has set up for its one process", _CURE
    )


def _reduce_arguments(arguments: Any) -> Any:
    fields = {field.name for field in dataclasses.fields(arguments) if field.init} - _BOUND
    own = {field.name for field in dataclasses.fields(arguments)} | _BOUND
    values = {name: getattr(arguments, name) for name in fields}
    config: Any = values.get("accelerator_config")
    steps = getattr(config, "gradient_accumulation_kwargs", None)
    if isinstance(steps, dict) and steps.get("num_steps") == 1:
        # A Trainer has written the value, and the next Trainer would reject it.
        values["accelerator_config"] = own_config = copy.copy(config)
        own_config.gradient_accumulation_kwargs = {k: v for k, v in steps.items() if k != "num_steps"}
    state = {
        "fields": values,
        "more": {name: value for name, value in vars(arguments).items() if name not in own},
    }
    return _blank, (type(arguments),), state, None, None, _set_arguments


def _reduce_made(obj: Any, kind: Kind) -> Any:
    made = noted(obj)
    if made is None:
        raise Refused(
            f"{kind.title} that was made before jupyter_dist was loaded, or is a copy, so its "
            "arguments are unknown",
            "Run the line that makes it again, because jupyter-dist now sees it. Or "
            f"{_CURE[0].lower()}{_CURE[1:]}",
        )
    if made.trouble:
        raise Refused(f"{kind.title} that cannot be made again on a rank: {made.trouble}", _CURE)
    if made.inside and not kind.shared:
        raise Refused(
            f"{kind.title} that another object has made for itself",
            "Read it from that object inside the cell, as in `accelerator = trainer.accelerator`.",
        )
    args, kwargs = made.call(obj)
    state: dict[str, Any] = {"order": made.order, "args": args, "kwargs": kwargs}
    if kind.shared:
        more = {name for name in vars(obj) if name not in made.names and not name.startswith(OURS)}
        state["set"] = {name: getattr(obj, name) for name in more}
    else:
        used = _use(obj)
        if used:
            raise Refused(
                f"{kind.title} that {used} in the notebook, and a rank cannot continue from there", _CURE
            )
        state["set"], state["places"] = _set_since(obj, kind, made)
        state["calls"] = ["launch"] if kind.name == "Fabric" and state["set"].pop("_launched", False) else []
        if getattr(obj, "model_init", None) is not None and obj.model is not None:
            state["weights"] = obj.model.state_dict()  # the constructor makes a model of its own
        steps = made.steps_now(obj)
        if steps is not None:
            state["steps"] = steps
        state["callbacks"] = (kind.callbacks, *_callbacks_since(obj, kind, made))
    return _blank, (type(obj),), state, None, None, _set_made


def _use(obj: Any) -> str:
    """Return how a trainer was used, if that left more in it than can be set again; empty otherwise."""
    state = getattr(obj, "state", None)
    if getattr(state, "fn", None) is not None or getattr(obj, "is_in_train", False):
        return "has run"
    if getattr(state, "global_step", 0) or getattr(state, "log_history", None):
        return "has run"
    if any(getattr(obj, name, None) for name in ("_models", "_optimizers", "_schedulers", "_dataloaders")):
        return "has prepared something"
    if getattr(obj, "trackers", None):
        return "has begun to track"
    return "has set up a model" if getattr(obj, "_models_setup", 0) else ""


def _set_since(obj: Any, kind: Kind, made: Made) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes that were set since the object was made, and those of inner objects."""
    now = vars(obj)
    found, deeper = {}, {}
    for place in changes(obj, kind, made):
        if place in kind.places:
            deeper[place] = operator.attrgetter(place)(obj)
            continue
        name = top(place)
        plain = place == name and _is_plain(now.get(name)) and made.was_plain(name)
        if name not in now or not (name not in made.names or name in kind.settable or plain):
            raise Refused(f"{kind.title} whose {place} has changed since it was made", _CURE)
        found[name] = now[name]
    return found, deeper


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, enum.Enum, type(None)))


def _callbacks_since(obj: Any, kind: Kind, made: Made) -> tuple[list[str], list[Any]]:
    """Return the classes of callbacks that were removed since the constructor, and the added callbacks."""
    now = callbacks_of(obj, kind.callbacks)
    kept = [had for had in made.callbacks if any(had.same.of(item) for item in now)]
    if not all(had.same.of(item) for had, item in zip(kept, now)):
        raise Refused(f"{kind.title} whose callbacks are in another order since it was made", _CURE)
    gone = [had.name for had in made.callbacks if had not in kept]
    return gone, list(now[len(kept) :])


# A pickle calls these functions on the rank. Their names are part of the format.


def _blank(cls: Any) -> Any:
    return cls.__new__(cls)


def _set_made(obj: Any, state: dict[str, Any]) -> None:
    # The call is delayed: its arguments may refer back to the object, and are then only partly loaded.
    later(state["order"], lambda: _make(obj, state))
    if "steps" in state:  # all Accelerators share the value, and each new one sets it
        later(sys.maxsize, lambda: setattr(obj, "gradient_accumulation_steps", state["steps"]))


def _set_arguments(arguments: Any, state: dict[str, Any]) -> None:
    later(0, lambda: _make_arguments(arguments, state["fields"], state["more"]))


def _make(obj: Any, state: dict[str, Any]) -> None:
    try:
        cls: Any = type(obj)
        cls.__init__(obj, *state["args"], **state["kwargs"])
        vars(obj).update(state.get("set", {}))
        for place, value in state.get("places", {}).items():
            *path, name = place.split(".")
            setattr(functools.reduce(getattr, path, obj), name, value)
        if "weights" in state:
            obj.model.load_state_dict(state["weights"])
        path, gone, come = state.get("callbacks", ("", [], []))
        if gone or come:
            callbacks = callbacks_of(obj, path)
            for name in gone:
                _take_away(callbacks, name)
            callbacks += come
        for name in state.get("calls", []):
            getattr(obj, name)()
    except Exception as error:
        _tell(error, type(obj).__name__)
        raise


def _take_away(callbacks: list[Any], name: str) -> None:
    """Remove one callback of the class. A progress bar has different classes in a notebook and on a rank."""
    for ends in (name, *(end for end in ("ProgressCallback", "ProgressBar") if name.endswith(end))):
        for callback in callbacks:
            if type(callback).__name__.endswith(ends):
                callbacks.remove(callback)
                return


def _make_arguments(arguments: Any, fields: dict[str, Any], more: dict[str, Any]) -> None:
    own = {"__init__", "__dataclass_params__"}
    plain: Any = next(cls for cls in type(arguments).__mro__ if own <= vars(cls).keys())
    try:
        plain.__init__(arguments, **fields)
    except Exception as error:
        _tell(error, type(arguments).__name__)
        raise
    # Some fields follow from others when the object is made, and may have been changed afterwards.
    vars(arguments).update(fields)
    for name, value in more.items():
        vars(arguments).setdefault(name, value)


def _tell(error: Exception, name: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(f"This rank has made the notebook's {name} again, with the same arguments.")
