"""The classes of trainers that a rank rebuilds, with facts about each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TRAINERS", "Kind", "kind_of"]


@dataclass(frozen=True)
class Kind:
    """A class of a library whose objects a rank rebuilds, with all its subclasses."""

    module: str
    name: str
    title: str
    within: tuple[str, ...] = ()
    """Prefixes of the modules whose objects belong to the trainer itself and are compared."""
    aside: frozenset[str] = frozenset()
    """Paths in the trainer that are ignored."""
    callbacks: str = ""
    """The path of the trainer's list of callbacks."""
    settable: frozenset[str] = frozenset()
    """Attributes that users set and that mean the same on a rank, besides those with plain values."""
    places: frozenset[str] = frozenset()
    """The same for attributes of inner objects, by their paths."""
    altered: tuple[str, ...] = ()
    """Prefixes of the modules of arguments that the constructor changes."""
    shared: bool = False
    """Whether all objects of the class share one state, which the first call makes."""


_LIGHTNING = ("lightning.", "pytorch_lightning.", "lightning_fabric.")
_PLACES = frozenset(
    {
        *("fit_loop.max_epochs", "fit_loop.min_epochs"),
        *("fit_loop.epoch_loop.max_steps", "fit_loop.epoch_loop.min_steps"),
    }
)
_PARTS = ("strategies.", "accelerators.", "plugins.")


def _lightning(module: str, name: str, title: str, callbacks: str) -> Kind:
    own, fabric = module.split(".trainer.")[0], "lightning_fabric"
    if module.startswith("lightning."):
        own, fabric = ".".join(module.split(".")[:2]), "lightning.fabric"
    homes = {own, fabric} if name == "Trainer" else {fabric}
    altered = tuple(sorted(f"{home}.{part}" for home in homes for part in _PARTS))
    settable = frozenset({"_loggers"}) if name == "Trainer" else frozenset()
    places = _PLACES if name == "Trainer" else frozenset()
    return Kind(module, name, title, _LIGHTNING, frozenset(), callbacks, settable, places, altered)


_SETTABLE_HF = frozenset(
    {
        *("train_dataset", "eval_dataset", "data_collator", "processing_class", "tokenizer", "label_names"),
        *("compute_metrics", "compute_loss_func", "preprocess_logits_for_metrics", "label_smoother"),
        *("optimizer", "lr_scheduler", "optimizer_cls_and_kwargs", "model_init"),
    }
)
# A Trainer that was asked for a loader keeps these values. Training starts by computing them again.
_ASIDE_HF = frozenset({"_signature_columns", "accelerator._dataloaders"})

TRAINERS = (
    _lightning("lightning.pytorch.trainer.trainer", "Trainer", "Lightning's Trainer", "callbacks"),
    _lightning("pytorch_lightning.trainer.trainer", "Trainer", "Lightning's Trainer", "callbacks"),
    _lightning("lightning.fabric.fabric", "Fabric", "Lightning's Fabric", "_callbacks"),
    _lightning("lightning_fabric.fabric", "Fabric", "Lightning's Fabric", "_callbacks"),
    Kind(
        *("transformers.trainer", "Trainer", "a Trainer of transformers"),
        within=("transformers.trainer", "transformers.data.data_collator.", "accelerate."),
        aside=_ASIDE_HF,
        callbacks="callback_handler.callbacks",
        settable=_SETTABLE_HF,
    ),
    Kind(
        *("accelerate.accelerator", "Accelerator", "an Accelerator"),
        within=("accelerate.",),
        settable=frozenset({"_custom_objects"}),
        altered=("accelerate.utils.dataclasses",),
    ),
    Kind("accelerate.state", "PartialState", "a PartialState", shared=True),
)


def kind_of(cls: type) -> Kind:
    """Return the kind of a subclass of one of `TRAINERS`."""
    names = {(base.__module__, base.__qualname__) for base in cls.__mro__}
    return next(kind for kind in TRAINERS if (kind.module, kind.name) in names)
