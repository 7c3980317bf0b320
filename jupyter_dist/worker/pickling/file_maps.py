"""Arrays and tensors in files that the notebook has mapped into its memory, as with `np.memmap`.

A rank maps the same file: the contents do not travel, and what one process writes the others see. A private
mapping that can be written to does not count, as of `mmap_mode="c"`: its changes are not in the file. Linux
lists the mappings of a process. Elsewhere the contents travel.

https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import mmap
import os
import pickle
import re
import socket
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from ..output import events

__all__ = ["NO_MAPS", "FileMap", "FileMaps", "reduce_array", "reduce_arrow_buffer", "untyped_storage"]

_READ_ONLY_FROM = 1 << 20
"""The size from which a read-only mapping travels as a reference. A smaller copy is cheaper."""
_MAPPING = re.compile(r"\S+ (?:r.-s|r--p) \S+ \S+ [1-9]\d* +/(?!dev/shm/(?:torch_|plasma))")
"""Lines of shared or read-only mappings of files, in the list of a process's mappings.

Shared memory of torch and Ray has files, too. They belong to objects that only their library may use.
"""
_MEMORY = "/dev/shm/"
"""The folder of shared memory. No other host has its files, and they are not larger than the memory."""


class FileMap:
    """One mapping of this process. Its pickle refers to the file."""

    def __init__(self, line: str, copies_below: int) -> None:
        where, access, offset, _, self.inode, self.path = line.rstrip("\n").split(None, 5)
        self.address, self.end = (int(part, 16) for part in where.split("-"))
        self._offset, self._writable = int(offset, 16), access[1] == "w"
        self._copies_below = copies_below
        self.name = ""
        """A variable whose value is in the file."""

    @functools.cached_property
    def size(self) -> int:
        """The number of bytes in the file, or 0 if the mapping is not to be used."""
        try:
            about = os.stat(self.path)
        except OSError:  # it was deleted, or is not a file
            return 0
        size = min(self.end - self.address, about.st_size - self._offset)
        return size if str(about.st_ino) == self.inode and (self._writable or size >= _READ_ONLY_FROM) else 0

    @functools.cached_property
    def as_memmap(self) -> _Memmap:
        """The same mapping. Its pickle loads as an `np.memmap` of bytes."""
        return _Memmap(self)

    def reduced(self, *more: Any) -> Any:
        copy = None
        limit = self.size if self._copies_below and self.path.startswith(_MEMORY) else self._copies_below
        if self.size <= limit:
            copy = pickle.PickleBuffer((ctypes.c_char * self.size).from_address(self.address))
        return _file_map, (self.path, self._offset, self.size, self._writable, self.name, copy, *more)

    def __reduce__(self) -> Any:
        return self.reduced()


class _Memmap:
    def __init__(self, file_map: FileMap) -> None:
        self._file_map = file_map

    def __reduce__(self) -> Any:
        return self._file_map.reduced(True)


class FileMaps:
    """The mappings of this process, read when they are first asked for.

    The contents of files up to `copies_below` bytes also travel. A rank uses this copy if its machine does
    not have the file.
    """

    def __init__(self, copies_below: int = 0) -> None:
        self._copies_below = copies_below
        self._found: list[FileMap] | None = None
        self._addresses: list[int] = []

    def find(self, address: int, size: int) -> tuple[FileMap, int] | None:
        """Return the mapping that has these bytes of memory, and their place in it."""
        if self._found is None:
            try:
                with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
                    lines = [line for line in file if _MAPPING.match(line)]
            except OSError:  # not Linux
                lines = []
            self._found = [FileMap(line, self._copies_below) for line in lines]
            self._addresses = [found.address for found in self._found]
        at = bisect.bisect_right(self._addresses, address) - 1
        if at < 0 or address >= self._found[at].end:
            return None
        found = self._found[at]
        place = address - found.address
        return (found, place) if size and place + size <= found.size else None

    def name(self, values: Mapping[str, Any]) -> None:
        """Note the variables whose values are in mappings, for messages."""
        for name, value in values.items():
            address = _address(value)
            found = self.find(address, 1) if address else None
            if found is not None:
                found[0].name = found[0].name or name


class _NoMaps(FileMaps):
    def find(self, address: int, size: int) -> None:
        return None


NO_MAPS = _NoMaps()
"""For a result: it is what a rank has returned, and not what the file has later."""


def _address(value: Any) -> int:
    """Return the address of an array's or a tensor's memory on the CPU, or 0."""
    about = getattr(value, "__array_interface__", None) if type(value).__module__ == "numpy" else None
    if about is not None:
        return int(about["data"][0])
    torch: Any = sys.modules.get("torch")
    if type(value) is getattr(torch, "Tensor", None) and value.is_cpu and value.layout is torch.strided:
        return int(value.data_ptr())
    return 0


def reduce_array(array: Any, maps: FileMaps) -> Any:
    """Reduce a numpy array that is in a mapped file, or a view of it. NotImplemented for other arrays."""
    numpy = sys.modules["numpy"]
    kind = type(array)
    if array.base is None or kind not in (numpy.ndarray, numpy.memmap) or array.dtype.hasobject:
        return NotImplemented  # most arrays have memory of their own
    steps = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    first = array.__array_interface__["data"][0]
    lowest = first + sum(step for step in steps if step < 0)
    end = first + sum(step for step in steps if step > 0) + array.dtype.itemsize
    found = maps.find(lowest, end - lowest) if array.size else None
    if found is None:
        if kind is numpy.ndarray or maps is NO_MAPS:
            return NotImplemented
        # numpy would send a copy that can be written to, though the notebook's array refuses to be.
        return _copied_memmap, (array.view(numpy.ndarray), array.mode, array.offset)
    about = (array.dtype, array.shape, found[1] + first - lowest, array.strides, array.flags.writeable)
    of_memmap = (array.mode, array.offset) if kind is numpy.memmap else None
    return _mapped_array, (found[0].as_memmap, *about, of_memmap)


def reduce_arrow_buffer(buffer: Any, maps: FileMaps) -> Any:
    """Reduce a buffer of pyarrow that is in a mapped file. NotImplemented for other buffers."""
    found = maps.find(buffer.address, buffer.size)
    return NotImplemented if found is None else (_arrow_buffer, (*found, buffer.size))


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _file_map(
    path: str, offset: int, size: int, writable: bool, name: str, copy: Any, memmap: bool = False
) -> Any:
    problem = ""
    try:
        with open(path, "r+b" if writable else "rb") as file:
            there = os.fstat(file.fileno()).st_size
            if there >= offset + size:
                if memmap:
                    return _memmap(path, "r+" if writable else "r", offset, size)
                access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
                return mmap.mmap(file.fileno(), size, access=access, offset=offset)
            problem = f"{path!r} has only {there:,} bytes there"
    except OSError as error:
        problem = f"{path!r}: {error.strerror}"
    host = socket.gethostname()
    if copy is not None:
        writer = events.writer()
        if writable and writer is not None:
            writer.note(
                f"{host} does not have the mapped file {path!r}. Each rank there has a copy of its contents, "
                "and writes to its copy"
            )
        return _bytes(copy) if memmap else copy
    whose = f"the file of {name!r}" if name else "a file"
    raise FileNotFoundError(
        f"cannot map {whose} on {host}: {problem}. The notebook has mapped the file into its "
        "memory. Put the file at the same path on this host, or open a file of this host inside the cell."
    )


def _bytes(memory: Any) -> Any:
    import numpy

    return numpy.frombuffer(memory, numpy.uint8)


def _memmap(path: str, mode: Any, offset: int, size: int) -> Any:
    import numpy

    return numpy.memmap(path, numpy.uint8, mode, offset, (size,))


def _mapped_array(
    mapped: Any, dtype: Any, shape: Any, offset: int, strides: Any, writeable: bool, of_memmap: Any
) -> Any:
    import numpy

    bytes_of_map = numpy.asarray(mapped) if of_memmap is None else mapped
    first = bytes_of_map[offset : offset + dtype.itemsize].view(dtype)
    array: Any = numpy.lib.stride_tricks.as_strided(first, shape, strides, subok=True)
    if of_memmap is not None:
        array = array.view(numpy.memmap)  # a slice of a copy is a plain array
        array.mode, array.offset = of_memmap
    if not writeable:
        array.flags.writeable = False
    return array


def _copied_memmap(content: Any, mode: Any, offset: Any) -> Any:
    import numpy

    array: Any = content.view(numpy.memmap)
    array.mode, array.offset = mode, offset
    return array


def _arrow_buffer(mapped: Any, offset: int, size: int) -> Any:
    import pyarrow

    return pyarrow.py_buffer(memoryview(mapped)[offset : offset + size])


def _mapped_storage(mapped: Any, offset: int, size: int) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of memory that cannot be written to, as in the notebook
        memory = memoryview(mapped)[offset : offset + size]
        return untyped_storage(torch.frombuffer(memory, dtype=torch.uint8))


def untyped_storage(tensor: Any) -> Any:
    """Return a tensor's storage. torch 1.13 has another name for it."""
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()
