"""Which modules a warm template imports, given what the notebook has imported. Imports none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["NO_THREADS", "expand"]

NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""With these in the environment numpy starts no threads at its import, nor does pandas where there is
pyarrow, whose jemalloc would start one (https://jemalloc.net/jemalloc.3.html, background_thread)."""

# What each library imports lazily once training starts. Taken together these are most of the
# time between a fork and the first step; importing them starts no thread.
_LATER: dict[str, tuple[str, ...]] = {
    # DistributedDataParallel, DataLoader samplers and every optimizer's step reach for torch._dynamo.
    "torch": (
        "torch._dynamo",
        "torch.distributed",
        "torch.utils.data.distributed",
        "torch.utils.serialization",
        "torch.profiler._cupti_monitor",
    ),
    "tensorflow": (
        "tensorflow.python.data.ops.concatenate_op",
        "tensorflow.python.data.ops.flat_map_op",
        "tensorflow.python.data.ops.from_tensors_op",
        "tensorflow.python.data.ops.range_op",
        "tensorflow.python.data.ops.zip_op",
    ),
    "lightning": ("lightning.pytorch",),
    "pytorch_lightning": (),
    "transformers": ("transformers.trainer",),
    "keras": (),
    "tf_keras": (),
    "numpy": ("numpy.random",),
    "scipy": (),
    "pandas": (),
    "sklearn": (),
    "torchvision": (),
    "torchaudio": (),
    "torchmetrics": (),
    "accelerate": (),
    "datasets": (),
    "safetensors": (),
    "tokenizers": (),
    "tensorboard": (),
    "tensorboardX": (),
    "matplotlib": (),
    "PIL": (),
    "tqdm": (),
}
# These import torch themselves, and training with them goes through it.
_ON_TORCH = {
    "accelerate",
    "lightning",
    "pytorch_lightning",
    "torchaudio",
    "torchmetrics",
    "torchvision",
    "transformers",
}


def expand(modules: Sequence[str], *, legacy_keras: bool = False) -> list[str]:
    """The modules a template should import for a notebook that imported `modules`.

    Libraries that are known to be safe to import before a fork, with what they import lazily
    in training; each of their submodules that the notebook imported itself. Everything else,
    the user's own modules above all, is left to the rank, which must see the newest file.
    Ordered, without duplicates, the same for the same set of names. Names may not exist in the
    installed version: the template passes over an ImportError.

    `legacy_keras`: the template is for cells that need tf_keras under the name keras, and its
    environment holds TF_USE_LEGACY_KERAS=1; Keras 3 must then not be imported.
    """
    wanted = set(modules)
    roots = {name.partition(".")[0] for name in wanted}
    if roots & _ON_TORCH:
        roots.add("torch")
    if legacy_keras:
        wanted = {name for name in wanted if not _is_keras(name)}
        roots -= {"keras"}
        roots |= {"tensorflow", "tf_keras"}
    names: list[str] = []
    for root in _LATER:
        if root in roots:
            names += [root, *_LATER[root], *sorted(n for n in wanted if n.startswith(root + "."))]
    return _unique(names)


def _is_keras(name: str) -> bool:
    # `tensorflow.keras…` is an alias that the rank resolves, to whichever Keras it needs.
    return name == "keras" or name.startswith(("keras.", "tensorflow.keras"))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
