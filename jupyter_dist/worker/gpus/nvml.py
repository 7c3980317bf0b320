"""The load and the used memory of GPUs, read from NVIDIA's driver.

NVML is a library of the driver. So it exists on every host with a GPU, even if nothing can be installed
there. Both nvidia-smi and the Python bindings call the same functions:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
NVML does not use CUDA and needs no memory on a GPU. It is not loaded without a GPU.
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
    """The loaded library.

    Raises OSError if it cannot be used.
    """

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
        """Return the usage of several GPUs together, by index or UUID.

        `gpu`: the mean of the percentages of time in which they were busy. `gpu_memory`: their used memory in
        bytes. A value is missing if the driver does not report it.
        """
        busy: list[int] = []
        taken: list[int] = []
        for name in gpus:
            handle = self._handle(name)
            if handle is None:
                continue
            rates, memory = _Utilization(), _Memory()
            # For a part of a GPU (MIG) the driver reports only the memory.
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
    """Load the driver's library; None on a machine without an NVIDIA GPU."""
    if not os.path.exists(_DEVICE):
        return None
    try:
        return Nvml()
    except OSError:
        return None
