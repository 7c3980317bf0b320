"""Each rank's share of a data set."""

from __future__ import annotations

import importlib
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from . import ray_datasets, spark_rows

__all__ = ["Places", "share"]

_ACCEPTED = (
    "dist.shard accepts a list, tuple or other sequence, a numpy array, a torch tensor, "
    "a pandas DataFrame or Series, a torch Dataset, a tf.data.Dataset, a Hugging Face "
    "dataset, a Ray Dataset, a Spark DataFrame or an iterator"
)


def share(data: Any, rank: int, world_size: int, even: bool, partitions: int | bool | None = None) -> Any:
    """Return items rank, rank + world_size, … of `data`, in the form of `data` (see `api.shard`)."""
    if data is None or isinstance(data, (str, bytes, bytearray, int, float, complex, Mapping)):
        hint = " Shard each of its values." if isinstance(data, Mapping) else ""
        raise TypeError(f"cannot shard a {type(data).__name__}: {_ACCEPTED}.{hint}")
    if isinstance(data, Set):
        raise TypeError(
            "cannot shard a set, because its order differs between ranks. Items would be lost or "
            "doubled. Use sorted(data)."
        )
    if isinstance(data, spark_rows.SparkRows) or spark_rows.is_dataframe(data):
        return spark_rows.share(data, rank, world_size, even, partitions)
    if partitions is not None:
        raise TypeError(
            f"partitions= works only with a Spark DataFrame, and this is a {type(data).__name__}. Divide it "
            "into a list of parts, and write dist.shard(parts)."
        )
    ray_data = sys.modules.get("ray.data")
    if ray_data is not None and isinstance(data, ray_data.Dataset):
        return ray_datasets.share(data, rank, world_size)
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(data, torch_data.DataLoader):
        raise TypeError(
            "cannot shard a DataLoader, because every rank would still load everything. Shard "
            "the dataset, and make the DataLoader of the result."
        )
    hugging_face = sys.modules.get("datasets")
    if hugging_face is not None and isinstance(data, hugging_face.IterableDataset) and not even:
        # Its own `shard` distributes files, and there can be fewer files than ranks.
        split = importlib.import_module("datasets.distributed").split_dataset_by_node
        return split(data, rank, world_size)
    if callable(getattr(data, "shard", None)):
        return _by_itself(data, rank, world_size, even)
    if torch_data is not None and isinstance(data, torch_data.IterableDataset):
        return _sharded_iterable(data, rank, world_size, even)
    if torch_data is not None and isinstance(data, torch_data.Dataset):
        if not hasattr(data, "__len__"):
            raise TypeError(
                f"cannot shard a {type(data).__name__} without __len__, because its length is unknown."
            )
        return torch_data.Subset(data, _places(data, rank, world_size, even))
    if hasattr(data, "iloc"):
        return data.iloc[_strides(data, rank, world_size, even)]
    if isinstance(data, deque):
        return deque(_every(iter(data), rank, world_size, even))
    if isinstance(data, Sequence) or hasattr(data, "shape"):
        if getattr(data, "shape", None) == ():
            raise TypeError(f"cannot shard a single value ({type(data).__name__} of shape ()): {_ACCEPTED}.")
        return data[_strides(data, rank, world_size, even)]
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return Places(data, _places(data, rank, world_size, even))
    if isinstance(data, Iterable):
        return _every(iter(data), rank, world_size, even)
    raise TypeError(f"cannot shard a {type(data).__name__}: {_ACCEPTED}.")


class Places(Sequence[Any]):
    """The items of a map-style data set at some positions. Each is read when it is requested."""

    def __init__(self, data: Any, places: range) -> None:
        self._data = data
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Places(self._data, self._places[index])
        return self._data[self._places[index]]


def _end(data: Any, world_size: int, even: bool) -> int:
    shape = getattr(data, "shape", None)  # a sparse matrix does not support len()
    total = int(shape[0]) if shape else len(data)
    return total - total % world_size if even else total


def _places(data: Any, rank: int, world_size: int, even: bool) -> range:
    return range(rank, _end(data, world_size, even), world_size)


def _strides(data: Any, rank: int, world_size: int, even: bool) -> slice:
    return slice(rank, _end(data, world_size, even), world_size)


def _every(items: Iterator[Any], rank: int, world_size: int, even: bool) -> Iterator[Any]:
    if not even:
        return islice(items, rank, None, world_size)
    return _whole_rounds(items, rank, world_size)


def _whole_rounds(items: Iterator[Any], rank: int, world_size: int) -> Iterator[Any]:
    # Every rank drops a round that the data cannot fill.
    while len(turn := list(islice(items, world_size))) == world_size:
        yield turn[rank]


def _by_itself(data: Any, rank: int, world_size: int, even: bool) -> Any:
    if even:
        data = _trimmed(data, world_size)
    return data.shard(num_shards=world_size, index=rank)


def _trimmed(data: Any, world_size: int) -> Any:
    """Remove the last items that would make shards unequal. For tf.data and Hugging Face datasets."""
    if callable(getattr(data, "cardinality", None)):
        count = int(data.cardinality())
        if count == -1:  # tf.data.INFINITE_CARDINALITY
            return data
        if count >= 0:
            return data.take(count - count % world_size)
    elif hasattr(data, "__len__"):
        cut = getattr(data, "select", None)
        if callable(cut):
            return cut(range(_end(data, world_size, True)))
    raise TypeError(
        f"even=True needs the length of the data, and this {type(data).__name__} has none. "
        "Set the length of a tf.data dataset with "
        "`.apply(tf.data.experimental.assert_cardinality(n))` or `.take(n)`."
    )


def _sharded_iterable(data: Any, rank: int, world_size: int, even: bool) -> Any:
    from torch.utils.data import IterableDataset

    class ShardedIterable(IterableDataset):  # type: ignore[misc]
        """Every world_size-th item of an IterableDataset, restarted at each iteration."""

        def __iter__(self) -> Iterator[Any]:
            return _every(iter(data), rank, world_size, even)

        def __reduce__(self) -> Any:
            # A DataLoader with spawned workers pickles its dataset, and this class has no importable name.
            return _sharded_iterable, (data, rank, world_size, even)

    return ShardedIterable()
