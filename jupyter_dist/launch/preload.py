"""Names of the modules that a template imports for a notebook. This module itself imports none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["NO_THREADS", "expand"]

NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""With these variables numpy and pandas start no threads at import.

Without them pandas would start a thread if pyarrow is installed, through pyarrow's jemalloc
(https://jemalloc.net/jemalloc.3.html, background_thread)."""

# Each library imports these modules lazily when training starts. Their imports are most of the time
# between a fork and the first step, and they start no thread.
_LATER: dict[str, tuple[str, ...]] = {
    # DistributedDataParallel, DataLoader samplers and each optimizer's step import torch._dynamo.
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
# These libraries import torch, and they train with torch.
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
    """Return the modules that a template should import for a notebook that imported `modules`.

    The result has the libraries that are safe to import before a fork, with the lazy imports of their
    training. It also has the submodules of these libraries that the notebook imported.
    The rank imports all other modules, such as the user's own, because it must see the newest file.
    The names are ordered and unique, and the same for the same set of names. A name may not exist in the
    installed version: the template ignores an ImportError.

    `legacy_keras`: the template is for cells that need tf_keras under the name keras. Its environment has
    TF_USE_LEGACY_KERAS=1, and it must not import Keras 3.
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
    # The rank resolves the alias `tensorflow.keras…` to the Keras version that it needs.
    return name == "keras" or name.startswith(("keras.", "tensorflow.keras"))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
