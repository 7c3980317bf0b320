"""Each item of a data set goes to exactly one rank, in the form the data set has."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jupyter_dist as dist
from jupyter_dist.worker.data import sharding
from jupyter_dist.worker.data.spark_rows import SparkRows
from tests.rigs.rank_maker import alone


def as_list(items: list[int]) -> Any:
    return items


def as_places(items: list[int]) -> Any:
    class MapStyle:
        def __len__(self) -> int:
            return len(items)

        def __getitem__(self, index: int) -> int:
            assert isinstance(index, int)
            return items[index]

    return MapStyle()


class HuggingFaceLike:
    """The part of datasets.Dataset that is used: contiguous shards, `select`, a length."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def select(self, places: range) -> HuggingFaceLike:
        return HuggingFaceLike([self.items[i] for i in places])

    def shard(self, num_shards: int, index: int, contiguous: bool = True) -> HuggingFaceLike:
        size, more = divmod(len(self.items), num_shards)
        start = size * index + min(index, more)
        return HuggingFaceLike(self.items[start : start + size + (index < more)])


class Unsized:
    """A matrix that has a shape and refuses len(), as scipy's sparse ones do."""

    def __init__(self, data: Any) -> None:
        self.data, self.shape = data, data.shape

    def __len__(self) -> int:
        raise TypeError("ambiguous")

    def __getitem__(self, rows: slice) -> Any:
        return self.data[rows]


KINDS: list[Callable[[list[int]], Any]] = [
    as_list,
    tuple,
    np.array,
    pd.Series,
    iter,
    as_places,
    HuggingFaceLike,
    lambda items: pd.DataFrame({"x": items}, index=[f"row {i}" for i in range(len(items))]),
    lambda items: (item for item in items),
]


def values(part: Any) -> list[int]:
    return list(part["x"]) if isinstance(part, pd.DataFrame) else [int(item) for item in part]


@pytest.mark.parametrize("kind", KINDS)
@given(count=st.integers(0, 30), world_size=st.integers(1, 7), even=st.booleans())
def test_shards_hold_every_item_once(
    kind: Callable[[list[int]], Any], count: int, world_size: int, even: bool
) -> None:
    items = list(range(count))
    parts = [values(sharding.share(kind(items), rank, world_size, even)) for rank in range(world_size)]
    together = sorted(item for part in parts for item in part)
    if even:
        assert {len(part) for part in parts} == {count // world_size}
        assert together == items[: count - count % world_size]
    else:
        assert together == items
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_shards_keep_the_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert dist.shard((1, 2, 3)) == (2,)
    assert dist.shard(range(5)) == range(1, 5, 2)
    array = np.arange(6).reshape(3, 2)
    assert dist.shard(array).tolist() == [[2, 3]]
    assert np.shares_memory(dist.shard(array), array)
    assert dist.shard(pd.DataFrame({"x": [1, 2, 3]}, index=[9, 8, 7])).index.tolist() == [8]
    assert dist.shard(deque([1, 2, 3])) == deque([2])
    matrix = Unsized(np.arange(6).reshape(3, 2))
    assert dist.shard(matrix, even=True).tolist() == [[2, 3]]
    view = dist.shard(as_places([1, 2, 3, 4]))
    assert (len(view), view[-1], list(view[:1])) == (2, 4, [2])


@pytest.mark.needs("torch")
def test_shards_of_torch_data() -> None:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

    class Stream(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

    assert sharding.share(torch.arange(5), 1, 2, False).tolist() == [1, 3]
    part = sharding.share(TensorDataset(torch.arange(5)), 0, 2, False)
    assert isinstance(part, Subset)
    assert [int(item[0]) for item in part] == [0, 2, 4]
    assert len(sharding.share(TensorDataset(torch.arange(5)), 0, 2, True)) == 2
    stream = sharding.share(Stream(), 1, 2, False)
    assert isinstance(stream, IterableDataset)
    assert list(stream) == list(stream) == [1, 3, 5]
    assert [batch.tolist() for batch in DataLoader(stream, batch_size=2)] == [[1, 3], [5]]
    assert list(sharding.share(Stream(), 0, 2, True)) == [0, 2, 4]
    again = pickle.loads(pickle.dumps(sharding._sharded_iterable([0, 1, 2], 1, 2, False)))
    assert list(again) == [1], "it reaches a spawned DataLoader worker"
    with pytest.raises(TypeError, match="Shard the dataset, and make the DataLoader"):
        sharding.share(DataLoader(TensorDataset(torch.arange(5))), 0, 2, False)
    with pytest.raises(TypeError, match="a single value"):
        sharding.share(torch.tensor(3), 0, 2, False)


@pytest.mark.needs("tensorflow")
def test_shards_of_tf_data(tmp_path: Path) -> None:
    code = """
import tensorflow as tf
from jupyter_dist.worker.data.sharding import share
data = tf.data.Dataset.range(5)
numbers = lambda part: [int(x) for x in part]
assert numbers(share(data, 1, 2, False)) == [1, 3]
assert numbers(share(data, 0, 2, True)) == [0, 2]
assert numbers(share(data.repeat(), 0, 2, True).take(2)) == [0, 2]
assert numbers(share(tf.range(5), 1, 2, False)) == [1, 3]
try:
    share(data.filter(lambda x: x > 1), 0, 2, True)
except TypeError as error:
    print("assert_cardinality" in str(error))
"""
    assert alone(code, tmp_path).split() == ["True"]


@pytest.mark.parametrize("data", [None, 3, 2.5, "text", b"bytes", {"x": [1]}, {1, 2}, np.array(3), object()])
@pytest.mark.parametrize("even", [True, False])
def test_shard_refuses_what_has_no_items_in_order(data: Any, even: bool) -> None:
    with pytest.raises(TypeError, match="cannot shard a"):
        dist.shard(data, even)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows, protocol=5))])
@pytest.mark.parametrize(("even", "sizes"), [(False, [33, 34, 34]), (True, [33, 33, 33])])
def test_rows_of_a_dataframe_of_spark(
    way: Callable[[Any], Any], even: bool, sizes: list[int], tmp_path: Path
) -> None:
    """Those that came with the cell and those that lie in a file are one table."""
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")
    place = tmp_path / "part.arrow"
    sink = arrow.BufferOutputStream()
    for where, ids in ((sink, range(60)), (str(place), range(60, 101))):
        table = arrow.table({"id": list(ids)})
        with arrow.ipc.new_file(where, table.schema) as file:
            file.write_table(table)
    rows = way(SparkRows([sink.getvalue(), str(place)], ["id"], [60, 41]))
    parts = [sharding.share(rows, rank, 3, even)["id"].to_pylist() for rank in range(3)]
    assert sorted(len(part) for part in parts) == sizes
    assert [value for part in parts for value in part] == list(range(sum(sizes)))
    assert (rows.count(), rows.columns) == (101, ["id"])
    lists = [sharding.share(rows, rank, 3, even, 100) for rank in range(3)]
    assert [len(one) for one in lists] == [33, 33, 33] if even else [33, 33, 34]
    found = [value for one in lists for part in one for value in part["id"].to_pylist()]
    assert found == list(range(99 if even else 101))
    own = [sharding.share(rows, rank, 3, False, True) for rank in range(3)]
    assert [[part.num_rows for part in one] for one in own] == [[], [60], [41]]
    assert sharding.share(SparkRows([str(place)], ["id"]), 0, 1, False, True)[0].num_rows == 41
    with pytest.raises(FileNotFoundError, match=r"^This rank has no /none\.arrow\. Spark's"):
        SparkRows(["/none.arrow"], ["id"]).toArrow()
    wrong: Any
    for wrong in (0, -1, "id", False):
        with pytest.raises(ValueError, match="partitions must be True or a whole number of at least 1"):
            sharding.share(rows, 0, 3, False, wrong)
    with pytest.raises(TypeError, match=r"works only with a Spark DataFrame, and this is a list\. Divide it"):
        dist.shard([1], partitions=1)
