"""The GPUs that this process may use, found without initialising CUDA, and what they are for good: UUIDs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

__all__ = ["Gpu", "named", "order", "visible_gpus"]

_LIMIT_S = 20


@dataclass(frozen=True)
class Gpu:
    """One GPU, or a part of one (MIG)."""

    name: str
    """What CUDA_VISIBLE_DEVICES calls it: an index, or the user's own UUID. An index counts what this
    process sees, and a container beside it may count differently."""
    uuid: str | None
    """The same for every process on the machine; None where nvidia-smi does not tell it."""
    whole: str | None = None
    """Of a part: the UUID of the GPU that it is a part of."""


def visible_gpus() -> tuple[Gpu, ...]:
    """What CUDA_VISIBLE_DEVICES lists, or else all that nvidia-smi finds.

    The first call in a process starts nvidia-smi where there is one, which takes a moment. Without it, as
    on a machine with GPUs of another maker, only what CUDA_VISIBLE_DEVICES lists is known.
    """
    return _visible(os.environ.get("CUDA_VISIBLE_DEVICES"))


def order(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variable that has CUDA count GPUs as nvidia-smi does, where the indices are nvidia-smi's.

    By itself CUDA puts the fastest first:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
    """
    if not gpus or any(name in os.environ for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")):
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def named(gpus: Iterable[Gpu]) -> str:
    """`GPU 3`, `GPUs 0-3, 7`, `GPU GPU-8a5f…`."""
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
        # As CUDA reads it: everything from the first invalid entry on is invisible.
        if not part or part.startswith("-"):
            break
        valid.append(part)
    known = _listed() if valid else ()
    return tuple(_resolved(name, known) for name in valid)


def _resolved(name: str, known: Sequence[Gpu]) -> Gpu:
    """A GPU as the user calls it: by index, by UUID, by the beginning of one."""
    same = [gpu for gpu in known if gpu.name == name]
    begun = [gpu for gpu in known if gpu.uuid is not None and gpu.uuid.startswith(name)]
    if name.isdecimal():
        return Gpu(name, same[0].uuid if same else None)
    if len(begun) == 1:
        return Gpu(name, begun[0].uuid, begun[0].whole)
    old = re.fullmatch(r"MIG-(GPU-[\w-]+)/\d+/\d+", name)  # how drivers before R470 call a part
    if old is not None:
        return Gpu(name, name, old[1])
    return Gpu(name, name if re.fullmatch(r"(GPU|MIG)-[\w-]{36}", name) else None)


def _listed() -> tuple[Gpu, ...]:
    """All that nvidia-smi finds; of each part, which GPU it belongs to."""
    if shutil.which("nvidia-smi") is None:
        return ()  # without starting a process
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ()
    return _parsed(done.stdout)


def _parsed(text: str) -> tuple[Gpu, ...]:
    """Such as `GPU 0: NVIDIA H100 (UUID: GPU-8a…)`, and below it `  MIG 1g.5gb Device 0: (UUID: MIG-c…)`."""
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
