"""Hints on the batches of torch: `same-data`, `set-epoch`, `batch-norm`.

A batch counts only if the rank trains with it: DistributedDataParallel gets it, or `backward` follows it.
"""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import BATCHES, report, safely, wanted, world_size

__all__ = ["Batches"]

_MOST = 100
"""Batches after which a rank does not look at batches any more, as in a training of another kind."""
_SMALL = 4
_HASHED = 1 << 20


class _Sampling:
    """How often a DistributedSampler was iterated in the same order."""

    def __init__(self) -> None:
        self.begun = 0
        self.order: Any = None
        self.trained: tuple[Any, int] | None = None
        """The order of the last iteration that was trained with, and its number."""


class Batches:
    """The batches of one rank.

    After the first batches it calls `on_end`, and needs no more calls of `forward`. It calls `on_follow` when
    it begins or ceases to need calls of `fetched` and `backward`.
    """

    def __init__(self) -> None:
        self._sampler: Any = None
        """A weak reference to the sampler of the last batch."""
        self._samplers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """Iterator of a DataLoader → a weak reference to its DistributedSampler, if it has one."""
        self._batch: Any = None
        """The last batch that a loader returned and that was not trained with."""
        self._seen: list[tuple[str, str]] = []
        self._forwards = self._small = 0
        self._fetches = 0
        self.on_end: Callable[[], None] = _nothing
        self.on_follow: Callable[[bool], None] = _nothing
        self.looks = self.follows = wanted("same-data") or wanted("batch-norm")
        self._sampling: weakref.WeakKeyDictionary[Any, _Sampling] = weakref.WeakKeyDictionary()
        self._unmarked = False
        self._is_called = False
        """Whether the code calls `set_epoch`, or changes the seed of a sampler."""

    @safely("set-epoch")
    def opened(self, loader: Any, iterator: Any) -> None:
        """Note the sampler of an iterator."""
        kind = sys.modules["torch"].utils.data.DistributedSampler
        for sampler in (loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
            if isinstance(sampler, kind):
                self._samplers[iterator] = weakref.ref(sampler)
                if self._wants(sampler):
                    self._follow(True)

    def fetched(self, iterator: Any, batch: Any) -> None:
        """Note a batch that a DataLoader returned."""
        self._sampler = self._samplers.get(iterator)
        if self.looks:
            self._batch = batch
            self._fetches += 1
            if self._fetches > _MOST:
                self._end()

    @safely("set-epoch")
    def sampled(self, sampler: Any) -> None:
        """Note that the iteration of a DistributedSampler begins."""
        if not self._wants(sampler):
            return
        known = self._sampling.setdefault(sampler, _Sampling())
        known.begun += 1
        known.order = (sampler.epoch, sampler.seed)
        self._unmarked = True
        self._follow(True)

    def _wants(self, sampler: Any) -> bool:
        """Return whether it is not yet known if the order of a sampler changes from epoch to epoch."""
        return not self._is_called and sampler.shuffle and sampler.num_replicas > 1 and wanted("set-epoch")

    def forward(self, model: Any, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Look at what a DistributedDataParallel gets."""
        self._forward(model, [leaf for leaf in _leaves([inputs, named]) if leaf.dim()])

    @safely("same-data")
    def _forward(self, model: Any, leaves: list[Any]) -> None:
        if not leaves or not model.process_group.size() == world_size() > 1:
            return
        self._forwards += 1
        self._small += len(leaves[0]) <= _SMALL
        if self._forwards > _MOST:
            self._end()
        if self._small == self._forwards == BATCHES:
            _look_for_normalization(model, len(leaves[0]))
        # The rank may take its part of a batch only after the loader. Then it has fewer elements.
        sizes = {leaf.numel() for leaf in leaves}
        if any(leaf.numel() in sizes for leaf in _leaves(self._batch)):
            self._take(self._batch, "")

    @safely("set-epoch")
    def backward(self, loss: Any) -> None:
        """Note that the last batch was trained with."""
        if self._unmarked and self._sampler is not None:
            self._mark(self._sampler())
        if self.looks and self._batch is not None and _horovod_spans():
            # The rank may take its part of a batch only after the loader. Then its loss is another one.
            self._take(self._batch, repr(float(loss.detach())) if loss.device.type == "cpu" else None)

    def are_shared_out(self) -> bool:
        """Return whether a DistributedSampler gives each rank its part."""
        return len(self._sampling) > 0

    def _mark(self, sampler: Any) -> None:
        known = None if sampler is None else self._sampling.get(sampler)  # None: the sampler is gone
        if known is None:
            return
        self._unmarked = False
        if known.trained is not None and known.trained[0] == known.order and known.trained[1] < known.begun:
            report("set-epoch")
        elif known.trained is not None and known.trained[0] != known.order:
            self._is_called = True
        self._follow(self.looks)  # until the next iteration begins
        known.trained = (known.order, known.begun)

    def _end(self) -> None:
        self.looks, self._batch = False, None
        self.on_end()
        self._follow(self._unmarked)

    def _follow(self, on: bool) -> None:
        if on != self.follows:
            self.follows = on
            self.on_follow(on)

    def _take(self, batch: Any, loss: str | None) -> None:
        self._batch = None
        digest = "" if loss is None else _digest(batch)
        self._seen.append((digest, loss or ""))
        if len(self._seen) == BATCHES:
            self._end()
            digests = [digest for digest, _ in self._seen]
            if all(digests) and len({*digests}) == BATCHES:
                report("same-data", batches=[f"{digest} {loss}" for digest, loss in self._seen])


def _nothing(*_: Any) -> None:
    pass


def _horovod_spans() -> bool:
    horovod = sys.modules.get("horovod.torch")
    return horovod is not None and bool(horovod.is_initialized()) and horovod.size() == world_size() > 1


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors in a batch."""
    if type(value) is sys.modules["torch"].Tensor:
        yield value
    elif depth < 4:
        parts = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, (list, tuple, Mapping)):
            for part in parts:
                yield from _leaves(part, depth + 1)


def _digest(batch: Any) -> str:
    """Return a digest of the numbers of a batch, of large tensors in part. Empty if they are on a device."""
    digest, found = hashlib.blake2b(digest_size=8), False
    torch = sys.modules["torch"]
    for leaf in _leaves(batch):
        if leaf.device.type != "cpu" or leaf.layout is not torch.strided:
            return ""
        data = leaf.detach().reshape(-1)
        data = data[:: max(1, data.numel() * data.element_size() // _HASHED)].contiguous().view(torch.uint8)
        digest.update(str(tuple(leaf.shape)).encode() + bytes(data.numpy()))
        found = True
    return digest.hexdigest() if found else ""


def _look_for_normalization(model: Any, batch: int) -> None:
    nn = sys.modules["torch"].nn
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    layers = [(name, layer) for name, layer in model.module.named_modules() if isinstance(layer, kinds)]
    # A frozen layer, in mode eval, uses its running statistics instead of the batch.
    found = [name for name, layer in layers if layer.training or layer.running_mean is None]
    if found:
        report("batch-norm", layers=len(found), layer=found[0][:100], batch=batch)
