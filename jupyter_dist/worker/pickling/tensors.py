"""Arrays and tensors in a pickle. Their memory is sent out of band, without a copy."""

from __future__ import annotations

import ctypes
import pickle
import sys
import warnings
from collections.abc import Collection, Iterable
from typing import Any

from .. import foreign_names
from . import file_maps
from .unpickling import current

__all__ = ["IN_BAND_BELOW", "Tensors", "owners", "reduce_array"]

_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Attributes of a tensor with the functions of `register_hook` and `register_post_accumulate_grad_hook`."""
IN_BAND_BELOW = 4096  # a smaller buffer is cheaper inside the pickle


def reduce_array(
    array: Any, known: Collection[int] = (), maps: file_maps.FileMaps = file_maps.NO_MAPS
) -> Any:
    """Reduce a numpy array so that its memory is a buffer, even if numpy would copy it.

    `known` are the ids of arrays that are sent themselves. A view of such an array stays a view of it. An
    array in a file of `maps` is sent as a reference to the file.
    """
    numpy = sys.modules["numpy"]
    if array.base is not None:
        mapped = file_maps.reduce_array(array, maps)
        if mapped is not NotImplemented:
            return mapped
    owner = array.base
    is_view = id(owner) in known and type(array) is numpy.ndarray and not array.dtype.hasobject
    if is_view and owner.flags.forc:
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return _view, (owner, array.dtype, array.shape, offset, array.strides, array.flags.writeable)
    plain = type(array) is numpy.ndarray or type(array) is numpy.memmap
    if not plain or array.dtype.hasobject or array.nbytes < IN_BAND_BELOW:
        return NotImplemented
    view = numpy.asarray(array)
    if view is not array or not (array.flags.forc or array.T.flags.forc):
        # Numpy would copy a memory map or a slice into the body, byte by byte.
        return numpy.ascontiguousarray(view).__reduce_ex__(5)
    return NotImplemented


def owners(values: Iterable[Any]) -> set[int]:
    """Return the ids of arrays that can have views among the values.

    They are the values themselves, and arrays that a value shows completely.
    """
    ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
    arrays = [value for value in values if type(value) is ndarray]
    arrays += [
        array.base for array in arrays if type(array.base) is ndarray and array.base.nbytes == array.nbytes
    ]
    return {id(array) for array in arrays}


class Tensors:
    """A reducer for torch's tensors and storages. It counts those on a GPU and those in shared memory."""

    def __init__(self, maps: file_maps.FileMaps = file_maps.NO_MAPS) -> None:
        self._torch: Any = sys.modules["torch"]
        self._maps = maps
        self.on_gpu = 0
        self.shared = 0
        new_dtypes = getattr(getattr(self._torch, "storage", None), "_new_dtypes", set)
        self._untyped_dtypes = frozenset(new_dtypes())
        self._storages: dict[tuple[int, int], Any] = {}

    def are(self, kind: type) -> bool:
        """Return whether `reduce` handles objects of a class."""
        torch = self._torch
        ours = kind is torch.UntypedStorage or kind is torch.storage.TypedStorage
        return ours or issubclass(kind, torch.Tensor)

    def reduce(self, obj: Any) -> Any:
        torch = self._torch
        kind = type(obj)
        if kind is torch.UntypedStorage:
            return self.reduce_storage(obj)
        if kind is torch.storage.TypedStorage:
            if hasattr(torch.Tensor, "untyped_storage"):
                foreign_names.require("worker/pickling/tensors")
                return _typed_storage, (self._one(obj._untyped_storage), obj.dtype)
            return _typed_storage, (self._one(obj.untyped()), obj.dtype)  # torch 1.13
        self.on_gpu += bool(obj.is_cuda)
        if kind is torch.Tensor and obj.dtype in self._untyped_dtypes:
            rebuild, (first, *rest) = obj.__reduce_ex__(5)
            # Torch returns this storage, but requires a typed one for rebuilding.
            if type(first) is torch.UntypedStorage:
                return rebuild, (_typed_storage(first, torch.uint8), *rest)
        if obj.requires_grad and obj.is_leaf:
            hooks = {name: found for name in _HOOKS if (found := getattr(obj, name, None))}
            if hooks:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # torch warns that it omits the hooks
                    maker, arguments, *state = obj.__reduce_ex__(5)
                return maker, arguments, (hooks, [obj.grad, *state[:1]]), None, None, _set_hooks
            if obj.grad is not None:
                maker, arguments, *state = obj.__reduce_ex__(5)
                return maker, arguments, [obj.grad, *state[:1]], None, None, _set_gradient
        return NotImplemented

    def _one(self, storage: Any) -> Any:
        """Return the object that stands for a storage's memory. torch before 2.1 makes a new one each time.

        pickle has one entry for each object. So tied weights stay tied, and views stay views.
        """
        address = storage.data_ptr() if storage.device.type in ("cpu", "cuda") else 0
        return self._storages.setdefault((address, storage.nbytes()), storage) if address else storage

    def reduce_storage(self, storage: Any) -> Any:
        if storage.device.type == "cuda":
            return _cuda_storage, (storage.cpu(),)
        if storage.device.type != "cpu":
            return NotImplemented
        size = storage.nbytes()
        if size == 0:
            return _storage, (None,)
        mapped = self._maps.find(storage.data_ptr(), size)
        if mapped is not None:
            return file_maps._mapped_storage, (*mapped, size)
        self.shared += storage.is_shared()
        memory = (ctypes.c_char * size).from_address(storage.data_ptr())
        memory._storage = storage  # keeps the memory as long as the view
        return _storage, (pickle.PickleBuffer(memory),)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _view(owner: Any, dtype: Any, shape: Any, offset: int, strides: Any, writeable: bool) -> Any:
    import numpy

    view = numpy.ndarray(shape, dtype, owner, offset, strides)
    if not writeable:
        view.flags.writeable = False
    return view


def _storage(buffer: Any) -> Any:
    import torch

    if buffer is None:
        return torch.UntypedStorage(0)
    return file_maps.untyped_storage(torch.frombuffer(buffer, dtype=torch.uint8))


def _typed_storage(storage: Any, dtype: Any) -> Any:
    import torch

    if hasattr(torch.Tensor, "untyped_storage"):
        return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype)  # torch 1.13


def _set_gradient(tensor: Any, state: list[Any]) -> None:
    tensor.grad = state[0]
    if len(state) > 1 and state[1] is not None:
        vars(tensor).update(state[1])


def _set_hooks(tensor: Any, state: tuple[dict[str, Any], list[Any]]) -> None:
    hooks, rest = state
    _set_gradient(tensor, rest)
    for name, registered in hooks.items():
        setattr(tensor, name, registered)


def _cuda_storage(storage: Any) -> Any:
    import torch

    if _goes_to_gpu(current().on_rank, torch):
        return storage.cuda()
    return storage


def _goes_to_gpu(on_rank: bool, torch: Any) -> bool:
    """Return whether a GPU storage is copied to a GPU again. Results never use the notebook's GPU."""
    return on_rank and bool(torch.cuda.is_available())
