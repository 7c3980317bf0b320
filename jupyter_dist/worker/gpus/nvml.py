"""How busy GPUs are and how much of their memory is taken, asked of NVIDIA's driver itself.

NVML is a library that comes with the driver, so it is there wherever a GPU is, also on hosts where nothing
can be installed; nvidia-smi and the Python bindings call the same functions:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
It knows nothing of CUDA, takes no memory on a GPU, and is not loaded where there is none.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

__all__ = ["Nvml", "load"]

_LIBRARY = "libnvidia-ml.so.1"
_DEVICE = "/dev/nvidiactl"


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class Nvml:
    """The loaded library. Raises OSError where it cannot be used."""

    def __init__(self, library: str = _LIBRARY) -> None:
        self._library = ctypes.CDLL(library)
        self._handles: dict[str, ctypes.c_void_p | None] = {}
        try:
            failed = self._library.nvmlInit_v2()
        except AttributeError as error:
            raise OSError(f"{library} is not NVML: {error}") from None
        if failed:
            raise OSError(f"nvmlInit failed with {failed}")

    def usage(self, gpus: Sequence[str]) -> dict[str, float]:
        """Of GPUs by index or UUID together: `gpu`, percent of the time in which they did something, their
        mean, and `gpu_memory`, bytes. A name is left out where the driver does not tell it."""
        busy: list[int] = []
        taken: list[int] = []
        for name in gpus:
            handle = self._handle(name)
            if handle is None:
                continue
            rates, memory = _Utilization(), _Memory()
            # Of a part of a GPU (MIG) the driver knows the memory alone.
            if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0:
                busy.append(rates.gpu)
            if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
                taken.append(memory.used)
        found: dict[str, float] = {}
        if busy:
            found["gpu"] = sum(busy) / len(busy)
        if taken:
            found["gpu_memory"] = sum(taken)
        return found

    def _handle(self, name: str) -> ctypes.c_void_p | None:
        if name not in self._handles:
            handle = ctypes.c_void_p()
            place = ctypes.byref(handle)
            if name.isdecimal():
                failed = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), place)
            else:
                failed = self._library.nvmlDeviceGetHandleByUUID(name.encode(), place)
            self._handles[name] = None if failed else handle
        return self._handles[name]


def load() -> Nvml | None:
    """The driver's library; None on a machine without an NVIDIA GPU."""
    if not os.path.exists(_DEVICE):
        return None
    try:
        return Nvml()
    except OSError:
        return None
