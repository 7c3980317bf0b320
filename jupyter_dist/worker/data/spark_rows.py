"""The rows of a Spark DataFrame on a rank, as Arrow and without Spark."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Sequence
from typing import Any

__all__ = ["SparkRows", "collect", "is_dataframe", "share"]

_DATAFRAMES = {
    "pyspark.sql.dataframe.DataFrame",
    "pyspark.sql.connect.dataframe.DataFrame",  # before Spark 4 it is a separate class
}


class SparkRows:
    """The replacement on a rank for a Spark DataFrame of the notebook.

    Its rows were sent with the cell, or are in a folder. It supports the methods that need no Spark.
    `dist.shard` returns the rank's own rows.
    """

    def __init__(self, files: Sequence[Any], columns: Sequence[str]) -> None:
        """Store the files. `files`: Arrow IPC files in the order of the rows, each a buffer or a path."""
        self._files = [file if isinstance(file, str) else memoryview(file) for file in files]
        self.columns = list(columns)

    def toArrow(self) -> Any:
        """Return all rows as a pyarrow.Table that reads them in place."""
        arrow = _pyarrow()
        tables = []
        for file in self._files:
            source = arrow.memory_map(file) if isinstance(file, str) else arrow.BufferReader(file)
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


def share(data: Any, rank: int, world_size: int, even: bool) -> Any:
    """Return this rank's rows of a Spark DataFrame or of `SparkRows`, as a pyarrow.Table.

    The rows are neighbours. So a rank has whole partitions, and at most two ranks share a partition.
    """
    table = collect(data)
    total = table.num_rows
    if even:
        total -= total % world_size
    start, end = (place * total // world_size for place in (rank, rank + 1))
    return table.slice(start, end - start)


def collect(data: Any) -> Any:
    """Return all rows as a pyarrow.Table, partition by partition."""
    if hasattr(type(data), "toArrow"):
        return data.toArrow()
    return _pyarrow().Table.from_pandas(data.toPandas(), preserve_index=False)  # Spark 3 has no toArrow


def _pyarrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ModuleNotFoundError(
            "a Spark DataFrame needs PyArrow on every rank: pip install pyarrow", name="pyarrow"
        ) from None
