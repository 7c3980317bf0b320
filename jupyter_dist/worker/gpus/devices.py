"""The GPUs that this process may use, with their UUIDs, found without initialising CUDA."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from ..program_output import program_output

__all__ = ["Gpu", "forget_none", "named", "order", "visible_gpus"]

_LIMIT_S = 20


@dataclass(frozen=True)
class Gpu:
    """One GPU, or a part of one (MIG)."""

    name: str
    """Its name in CUDA_VISIBLE_DEVICES: an index, or the user's own UUID.

    An index counts the GPUs that this process sees. A container beside it may count differently.
    """
    uuid: str | None
    """The UUID, which is the same for every process on the machine. None if nvidia-smi does not print it."""
    whole: str | None = None
    """For a part of a GPU: the UUID of the whole GPU."""


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs in CUDA_VISIBLE_DEVICES, or all GPUs that nvidia-smi finds if the variable is not set.

    The first call in a process starts nvidia-smi if it is installed, which is slow. Without nvidia-smi, for
    example with GPUs of another vendor, only the GPUs in CUDA_VISIBLE_DEVICES are found.
    """
    return _visible(os.environ.get("CUDA_VISIBLE_DEVICES"))


def forget_none() -> None:
    """Let the next call of `visible_gpus` look again if there was no GPU: nvidia-smi may have failed once."""
    if not visible_gpus():
        _visible.cache_clear()


def order(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the variable that makes CUDA count GPUs as nvidia-smi does, if the indices are nvidia-smi's.

    By default CUDA's first GPU is the fastest:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
    """
    if not gpus or any(name in os.environ for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")):
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def named(gpus: Iterable[Gpu]) -> str:
    """Return the names in short form: `GPU 3`, `GPUs 0-3, 7`, `GPU GPU-8a5f…`."""
    names = [gpu.name for gpu in gpus]
    spans: list[list[int]] = []
    for index in sorted(int(name) for name in names if name.isdecimal()):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    listed = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    listed += [name for name in names if not name.isdecimal()]
    return ("GPU " if len(names) == 1 else "GPUs ") + ", ".join(listed)


@cache
def _visible(chosen: str | None) -> tuple[Gpu, ...]:
    if chosen is None:
        return tuple(gpu for gpu in _listed() if gpu.whole is None)
    valid = []
    for part in map(str.strip, chosen.split(",")):
        # CUDA ignores every entry from the first invalid one on.
        if not part or part.startswith("-"):
            break
        valid.append(part)
    known = _listed() if valid else ()
    return tuple(_resolved(name, known) for name in valid)


def _resolved(name: str, known: Sequence[Gpu]) -> Gpu:
    """Find a GPU by the user's name for it: an index, a UUID, or the beginning of a UUID."""
    same = [gpu for gpu in known if gpu.name == name]
    begun = [gpu for gpu in known if gpu.uuid is not None and gpu.uuid.startswith(name)]
    if name.isdecimal():
        return Gpu(name, same[0].uuid if same else None)
    if len(begun) == 1:
        return Gpu(name, begun[0].uuid, begun[0].whole)
    old = re.fullmatch(r"MIG-(GPU-[\w-]+)/\d+/\d+", name)  # the name of a part with drivers before R470
    if old is not None:
        return Gpu(name, name, old[1])
    return Gpu(name, name if re.fullmatch(r"(GPU|MIG)-[\w-]{36}", name) else None)


def _listed() -> tuple[Gpu, ...]:
    """Return all GPUs that nvidia-smi finds. Each part has the UUID of its whole GPU."""
    if shutil.which("nvidia-smi") is None:
        return ()  # saves the start of a process
    try:
        done = program_output(["nvidia-smi", "-L"], _LIMIT_S)
    except OSError:
        return ()
    return () if done is None or done.code else _parsed(done.stdout)


def _parsed(text: str) -> tuple[Gpu, ...]:
    """Parse the output of `nvidia-smi -L`.

    A line is such as `GPU 0: NVIDIA H100 (UUID: GPU-8a…)`. Lines of its parts follow, such as
    `  MIG 1g.5gb Device 0: (UUID: MIG-c…)`.
    """
    found: list[Gpu] = []
    whole: str | None = None
    for line in text.splitlines():
        told = re.search(r"\(UUID: ([^\s()]+)\)\s*$", line)
        uuid = None if told is None else told[1]
        index = re.match(r"GPU (\d+):", line)
        if index is not None:
            whole = uuid
            found.append(Gpu(index[1], uuid))
        elif re.match(r"\s+MIG ", line) and uuid is not None:
            found.append(Gpu(uuid, uuid, whole))
    return tuple(found)
