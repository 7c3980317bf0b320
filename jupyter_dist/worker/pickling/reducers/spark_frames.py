"""Spark's DataFrames: their rows are sent as Arrow. Objects that belong to a Spark session are refused.

The rows are collected while the cell is captured, before its ranks occupy Spark's task slots. If the
configuration of the session or of its cluster names a folder that executors and ranks share, executors write
the rows there. A folder of Petastorm's configuration is used only if the ranks surely have the same disks.
"""

from __future__ import annotations

import contextlib
import contextvars
import enum
import importlib
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from ... import foreign_names
from ...data.spark_rows import SparkRows, collect, is_dataframe
from . import Note, Refused

__all__ = ["FOLDER", "Place", "collected_once", "ranks_run", "reduce"]

FOLDER = "spark.jupyterDist.sharedFolder"
_OF_PETASTORM = "petastorm.spark.converter.parentCacheDirUrl"
"""Petastorm's setting with such a folder."""
_OF_DATABRICKS = ("/dbfs/", "/Volumes/")
_LARGE_BYTES = 100_000_000
_WRITTEN = "part int, path string, rows bigint, size bigint"
_NO_ESTIMATE_BYTES = 1 << 60
"""Spark's optimizer writes a larger number if it knows no size."""

_CURE = f"spark.conf.set({FOLDER!r}, FOLDER), with a folder that the executors and all ranks can read"
_ROWS = "Make a DataFrame with it in the notebook; in the cell dist.shard(df) is this rank's rows."
_CURES = {
    **dict.fromkeys(("SparkSession", "SparkContext", "Column", "GroupedData"), _ROWS),
    "DataFrame": "Send its Spark DataFrame instead: frame.to_spark().",  # a DataFrame of pandas on Spark
    "RDD": "Send rdd.toDF() instead, or rdd.collect().",
    "Broadcast": "Send its value instead: broadcast.value.",
}


class Place(enum.Enum):
    """Where the ranks run, which decides whether they read the folders of Spark's machines."""

    HERE = "on the notebook's machine"
    ON_SPARK = "as tasks of Spark"
    ON_DATABRICKS = "on a cluster of Databricks"
    ELSEWHERE = "on other machines"


_place: contextvars.ContextVar[Place] = contextvars.ContextVar("place", default=Place.ELSEWHERE)
_collected: contextvars.ContextVar[dict[int, Any] | None] = contextvars.ContextVar("collected", default=None)


@contextlib.contextmanager
def collected_once() -> Iterator[None]:
    """Collect each DataFrame only once within this context, which may pickle values several times."""
    token = _collected.set({})
    try:
        yield
    finally:
        _collected.reset(token)


@contextlib.contextmanager
def ranks_run(place: Place) -> Iterator[None]:
    """Say where the ranks run for which DataFrames are pickled within this context."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def reduce(obj: Any, note: Note) -> Any:
    if not is_dataframe(obj):
        kind = next(base.__name__ for base in type(obj).__mro__ if base.__name__ in _CURES)
        raise Refused(f"this {kind} belongs to the notebook's Spark driver, which no rank is", _CURES[kind])
    known = _collected.get()
    if known is None:
        known = {}
    if id(obj) not in known:
        known[id(obj)] = obj, _rows_or_refusal(obj)  # the object is kept too, so that its id stays unique
    _, found = known[id(obj)]
    if isinstance(found, Refused):
        raise found
    rows, said = found
    note(said)
    return rows.__reduce_ex__(5)


def _rows_or_refusal(frame: Any) -> tuple[SparkRows, str] | Refused:
    try:
        return _rows_of(frame)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        return Refused(
            f"the rows of this DataFrame cannot be read: {first or type(error).__name__}",
            f"If they are too many for the driver: {_CURE}.",
        )


def _rows_of(frame: Any) -> tuple[SparkRows, str]:
    own, of_petastorm = _setting(frame, FOLDER), _setting(frame, _OF_PETASTORM)
    folder = _path(own or of_petastorm)
    if own and folder is None:
        raise ValueError(f"{FOLDER} is {own!r}, which is no folder on the machines' disks")
    unused = ""
    if folder and not own and not _is_shared(folder, frame):
        unused = f". {folder} of Petastorm is not used, because the ranks' machines may not have it"
    elif folder:
        try:
            return _written(frame, folder)
        except Exception:
            if own:
                raise
            # The user has set Petastorm's folder for Petastorm. The rows can do without it.
    table, sizes = collect(frame)
    said = f"a Spark DataFrame is sent as its {table.num_rows:,} rows, {max(1, table.nbytes // 1000):,} kB"
    said += unused
    if unused or table.nbytes > _LARGE_BYTES:
        said += f". To write them with the executors: {_CURE}"
    return SparkRows([_file(table)], frame.columns, sizes), said


def _is_shared(folder: str, frame: Any) -> bool:
    """Return whether the ranks surely have a folder of Spark's executors."""
    place = _place.get()
    if place is Place.ON_SPARK:
        return True
    if place is Place.ON_DATABRICKS:
        return folder.startswith(_OF_DATABRICKS)
    is_local = _setting(frame, "spark.master").startswith("local")
    # Spark Connect's server may be another machine, whose master is local to itself.
    return place is Place.HERE and is_local and ".connect." not in type(frame).__module__


def _setting(frame: Any, name: str) -> str:
    try:
        return frame.sparkSession.conf.get(name, None) or ""
    except Exception:  # a serverless Spark refuses to read settings that it does not know
        return ""


def _path(url: str) -> str | None:
    """Return the path of a folder that is mounted on all machines. None for another store, such as S3."""
    match = re.fullmatch(r"(?:(file|dbfs):)?(?://)?(/.*?)/*", url)
    if match is None:
        return None
    # Databricks mounts its file system at /dbfs, and Volumes at their own paths.
    of_dbfs = match[1] == "dbfs" and not match[2].startswith(_OF_DATABRICKS)
    return f"/dbfs{match[2]}" if of_dbfs else match[2]


def _file(table: Any) -> Any:
    arrow = importlib.import_module("pyarrow")
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return sink.getvalue()


def _written(frame: Any, folder: str) -> tuple[SparkRows, str]:
    """Make the executors write each partition to a file of its own. Prints where, and how much, before."""
    place = f"{folder}/{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
    print(
        f"note: Spark writes the rows of a DataFrame to {place}: {_estimate(frame)}. To stop it, interrupt "
        "the cell",
        flush=True,
    )
    try:
        written = frame.mapInArrow(_writer(place), _WRITTEN).collect()
    except BaseException:
        with contextlib.suppress(Exception):
            frame.sparkSession.range(1).mapInArrow(_remover(place), "id bigint").collect()
        raise
    found = sorted((row for row in written if row.rows), key=lambda row: row.part)
    sizes = [row.rows for row in found]
    files: list[Any] = [row.path for row in found] or [_file(collect(frame.limit(0))[0])]
    return SparkRows(files, frame.columns, sizes), (
        f"the {sum(sizes):,} rows of a Spark DataFrame are in {place}, {len(found)} files with "
        f"{max(1, sum(row.size for row in found) // 1000):,} kB, and stay there"
    )


def _estimate(frame: Any) -> str:
    """Return the size by the estimate of Spark's optimizer, before anything is computed."""
    size = _NO_ESTIMATE_BYTES
    if not foreign_names.lost("worker/pickling/reducers/spark_frames"):
        with contextlib.suppress(Exception):  # Spark Connect has no `_jdf`
            size = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
    if size >= _NO_ESTIMATE_BYTES:
        return "Spark has no estimate of their size"
    return f"about {max(1, size // 1000):,} kB by Spark's estimate"


def _writer(place: str) -> Any:
    # The function is nested, so it is pickled as a whole. Executors then need no code of jupyter-dist.
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import os

        pyarrow = importlib.import_module("pyarrow")
        context = importlib.import_module("pyspark").TaskContext.get()
        part, attempt = context.partitionId(), context.taskAttemptId()
        os.makedirs(place, exist_ok=True)
        # A task may run twice at a time. The answer that counts contains the path of its own file.
        path, rows, file = f"{place}/part-{part:05d}-{attempt}.arrow", 0, None
        try:
            for batch in batches:
                if file is None:
                    file = pyarrow.ipc.new_file(path, batch.schema)
                file.write_batch(batch)
                rows += batch.num_rows
        except BaseException:  # Spark tries a task again, which writes another file
            if file is not None:
                os.remove(path)
            raise
        size = 0
        if file is not None:
            file.close()
            size = os.path.getsize(path)
        yield pyarrow.RecordBatch.from_pydict(
            {
                "part": pyarrow.array([part], pyarrow.int32()),
                "path": pyarrow.array([path], pyarrow.string()),
                "rows": pyarrow.array([rows], pyarrow.int64()),
                "size": pyarrow.array([size], pyarrow.int64()),
            }
        )

    return write


def _remover(place: str) -> Any:
    def remove(batches: Iterator[Any]) -> Iterator[Any]:
        import shutil

        shutil.rmtree(place, ignore_errors=True)
        yield from batches

    return remove
