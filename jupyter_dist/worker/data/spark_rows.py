"""The rows of a Spark DataFrame on a rank, as Arrow and without Spark."""

from __future__ import annotations

import importlib
import itertools
import pickle
from collections.abc import Sequence
from typing import Any

__all__ = ["SparkRows", "collect", "is_dataframe", "share"]

_PART = "jupyter_dist_partition"

_DATAFRAMES = {
    "pyspark.sql.dataframe.DataFrame",
    "pyspark.sql.connect.dataframe.DataFrame",  # before Spark 4 it is a separate class
}


class SparkRows:
    """The replacement on a rank for a Spark DataFrame of the notebook.

    Its rows were sent with the cell, or are in a folder. It supports the methods that need no Spark.
    `dist.shard` returns the rank's own rows.
    """

    def __init__(
        self, files: Sequence[Any], columns: Sequence[str], sizes: Sequence[int] | None = None
    ) -> None:
        """Store the files.

        `files`: Arrow IPC files in the order of the rows, each a buffer or a path. `sizes`: the numbers of
        rows of the DataFrame's partitions, without empty partitions. None: they are unknown.
        """
        self.sizes = None if sizes is None else tuple(sizes)
        self._files = [file if isinstance(file, str) else memoryview(file) for file in files]
        self.columns = list(columns)

    def toArrow(self) -> Any:
        """Return all rows as a pyarrow.Table that reads them in place."""
        arrow = _pyarrow()
        tables = []
        for file in self._files:
            source = _opened(arrow, file) if isinstance(file, str) else arrow.BufferReader(file)
            tables.append(arrow.ipc.open_file(source).read_all())
        return arrow.concat_tables(tables)

    def toPandas(self) -> Any:
        """Return all rows as a pandas DataFrame."""
        return self.toArrow().to_pandas()

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.toArrow().num_rows)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Buffers are kept outside the pickle if the protocol supports that.
        keep = pickle.PickleBuffer if protocol >= 5 else bytes
        return SparkRows, (
            [file if isinstance(file, str) else keep(file) for file in self._files],
            self.columns,
            self.sizes,
        )

    def __repr__(self) -> str:
        return f"<the rows of a Spark DataFrame with the columns {', '.join(self.columns)}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{name!r}: a rank has only the rows of this DataFrame, not the notebook's Spark "
            "session. Prepare the DataFrame in the notebook. On a rank, dist.shard(df) has this "
            "rank's rows as a pyarrow.Table. df.toArrow() and df.toPandas() have all rows."
        )

    def __iter__(self) -> Any:
        return self.__getattr__("iter")

    def __getitem__(self, name: Any) -> Any:
        return self.__getattr__(str(name))


def is_dataframe(data: Any) -> bool:
    """Return whether `data` is a DataFrame of Spark itself, classic or Connect. Imports nothing."""
    return any(f"{base.__module__}.{base.__qualname__}" in _DATAFRAMES for base in type(data).__mro__)


def share(data: Any, rank: int, world_size: int, even: bool, partitions: int | bool | None = None) -> Any:
    """Return this rank's rows of a Spark DataFrame or of `SparkRows`, as a pyarrow.Table.

    The rows are neighbours. So a rank has whole partitions, and at most two ranks share a partition. With
    `partitions`, returns a list with a table for each of this rank's partitions (see `api.shard`).
    """
    if partitions is not None:
        return _whole_partitions(data, rank, world_size, even, partitions)
    table = data.toArrow() if isinstance(data, SparkRows) else collect(data)[0]
    total = table.num_rows
    if even:
        total -= total % world_size
    start, end = (place * total // world_size for place in (rank, rank + 1))
    return table.slice(start, end - start)


def _whole_partitions(data: Any, rank: int, world_size: int, even: bool, partitions: int | bool) -> list[Any]:
    if partitions is not True and (not isinstance(partitions, int) or partitions < 1):
        raise ValueError(
            f"partitions must be True or a whole number of at least 1, got {partitions!r}. True means the "
            "DataFrame's own partitions"
        )
    table, sizes = (data.toArrow(), data.sizes) if isinstance(data, SparkRows) else collect(data)
    if partitions is True:
        ends = list(itertools.accumulate((table.num_rows,) if sizes is None else sizes))
    else:
        ends = [place * table.num_rows // partitions for place in range(1, partitions + 1)]
    count = len(ends) - len(ends) % world_size if even else len(ends)
    first, last = (place * count // world_size for place in (rank, rank + 1))
    starts = [0, *ends]
    return [table.slice(starts[i], starts[i + 1] - starts[i]) for i in range(first, last)]


def collect(frame: Any) -> tuple[Any, tuple[int, ...]]:
    """Return all rows of a Spark DataFrame as a pyarrow.Table, and the sizes of its partitions.

    The rows are in the order of the partitions. Empty partitions are left out.
    """
    numbered = frame.selectExpr("*", f"spark_partition_id() as {_PART}")
    if hasattr(type(frame), "toArrow"):
        table = numbered.toArrow()
    else:  # Spark 3 has no toArrow
        table = _pyarrow().Table.from_pandas(numbered.toPandas(), preserve_index=False)
    last = table.num_columns - 1  # by its place, because a DataFrame may have several columns of one name
    counts = {one["values"]: one["counts"] for one in table.column(last).value_counts().to_pylist()}
    return table.remove_column(last), tuple(counts[part] for part in sorted(counts))


def _opened(arrow: Any, path: str) -> Any:
    try:
        return arrow.memory_map(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"This rank has no {path}. Spark's executors have written the rows of the DataFrame there. Set "
            "spark.jupyterDist.sharedFolder to a folder that the executors and all ranks can read."
        ) from None


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ModuleNotFoundError(
            "a Spark DataFrame needs PyArrow on every rank: pip install pyarrow", name="pyarrow"
        ) from None
