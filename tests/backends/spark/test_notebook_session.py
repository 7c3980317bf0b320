"""What a notebook does with its Spark session: DataFrames, TorchDistributor on executors, and its death.

This file is also the program that is tested: a notebook's process with a real Spark. It does all that needs a
Spark in one go, tells what it has seen, and is killed at the end while a run goes on.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist as dist
from jupyter_dist.capture.payload_builder import capture_call
from jupyter_dist.databricks import TorchDistributor
from jupyter_dist.errors import CaptureError, RunFailed
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.worker.pickling.reducers.spark_frames import FOLDER, Place, ranks_run
from tests.rigs.launching import ended, launch_cell, logs, story
from tests.rigs.spark_rig import missing, session

pytestmark = [
    pytest.mark.needs("pyspark"),
    pytest.mark.xdist_group("spark-notebook"),  # all ask the same one
    pytest.mark.skipif(missing() is not None, reason=f"needs Spark: {missing()}"),
]
HANGS = "import time; print('up', flush=True); time.sleep(600)"


def on_a_rank(frame: Any, empty: Any) -> dict[str, Any]:
    """What a rank sees of two DataFrames of the notebook."""
    mine, even = dist.shard(frame), dist.shard(frame, even=True)
    seen = {"is": type(mine).__name__, "ids": mine["id"].to_pylist(), "even": even["id"].to_pylist()}
    seen["own parts"] = [part["id"].to_pylist() for part in dist.shard(frame, partitions=True)]
    seen["no parts"] = dist.shard(empty, partitions=True)
    seen["parts"] = [part["id"].to_pylist() for part in dist.shard(frame, partitions=100)]
    seen["names"] = [mine.column_names, frame.columns, dist.shard(empty).column_names]
    seen["sizes"] = [frame.count(), len(frame.toPandas()), empty.count(), dist.shard(empty).num_rows]
    seen["spark"] = "pyspark" in sys.modules
    try:
        frame.filter("id > 3")
    except AttributeError as error:
        seen["refusal"] = str(error)
    return seen


def fail(at: int) -> None:
    if os.environ["RANK"] == str(at):
        raise ValueError(f"no digits at {at}")
    time.sleep(600)


def as_a_notebook(folder: str) -> None:
    with session("local[2]") as context:
        spark = importlib.import_module("pyspark.sql").SparkSession(context)
        frame = spark.range(0, 101, numPartitions=3).selectExpr("id", "id * 2 as twice")
        seen = {**shards(spark, frame, folder), **refusals(spark, frame), **on_executors()}
        seen |= unfinished(spark, frame, folder)
        seen["run"] = str(launch_cell("spark", HANGS).path)
        print(json.dumps(seen), flush=True)
        sys.stdin.read()


def shards(spark: Any, frame: Any, folder: str) -> dict[str, Any]:
    sent = dist.run(on_a_rank, frame, frame.limit(0), backend="local", np=2)
    seen: dict[str, Any] = {"sent": list(sent.results), "notes": list(sent.job.notes)}
    spark.conf.set(FOLDER, f"file://{folder}/shared")
    written = dist.run(on_a_rank, frame, frame.limit(0), backend="local", np=2)
    spark.conf.unset(FOLDER)
    spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", f"file:{folder}/cache/")
    seen["of petastorm"] = notes(frame, folder, Place.HERE)
    seen["of others"] = notes(frame, folder, Place.ELSEWHERE)
    spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", "file:/proc/none")
    seen["not writable"] = notes(frame, folder, Place.ON_SPARK)
    spark.conf.unset("petastorm.spark.converter.parentCacheDirUrl")
    seen["cached"] = len([*Path(folder, "cache").rglob("*.arrow")])
    seen |= {"written": list(written.results), "written notes": list(written.job.notes)}
    seen["files"] = len([*Path(folder, "shared").rglob("*.arrow")])
    seen["in the notebook"] = dist.shard(frame)["twice"].to_pylist()
    seen["own parts"] = [[row.id for row in part] for part in frame.rdd.glom().collect()]
    return seen


def notes(frame: Any, folder: str, place: Place) -> list[str]:
    with ranks_run(place):
        return list(capture_call(len, (frame,), {}, label="call", directory=Path(folder)).notes)


def unfinished(spark: Any, frame: Any, folder: str) -> dict[str, Any]:
    """Rows of which the last partition fails, after the first ones were written."""
    seen: dict[str, Any] = {}
    spark.conf.set(FOLDER, f"{folder}/unfinished")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            dist.run(on_a_rank, frame.selectExpr("id", "assert_true(id < 100)"), None, backend="local", np=2)
        except CaptureError as error:
            seen["unfinished"] = str(error)
    spark.conf.unset(FOLDER)
    seen["said before"] = said.getvalue()
    seen["left"] = [str(path) for path in Path(folder, "unfinished").rglob("*")]
    return seen


def refusals(spark: Any, frame: Any) -> dict[str, Any]:
    context = spark.sparkContext

    def jobs() -> int:
        return len(context.statusTracker().getJobIdsForGroup(None))

    values = {
        "session": spark,
        "context": context,
        "column": frame.id,
        "groups": frame.groupBy("id"),
        "rdd": context.parallelize([1]).map(str),
        "broadcast": context.broadcast([1]),
        "failing": frame.selectExpr("assert_true(id < 3)"),
    }
    before, seen = jobs(), {}
    for name, value in values.items():
        try:
            dist.run(on_a_rank, value, None, backend="local", np=2)
        except CaptureError as error:
            seen[name] = str(error)
    return {**seen, "tries": jobs() - before}


def on_executors() -> dict[str, Any]:
    distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
    try:
        distributor.run(fail, 1)
    except RunFailed as error:
        same = error.run is distributor.last_run
        return {"failure": str(error), "last run": same, "backend": error.run and error.run.job.backend}
    return {}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    folder = tmp_path_factory.mktemp("spark")
    env = {**os.environ, "JUPYTER_DIST_RUNS": str(folder / "runs")}
    argv = [sys.executable, __file__, str(folder)]
    with (folder / "notebook.log").open("w+") as log:
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder
        )
        with process:
            yield process
            process.kill()


@pytest.fixture(scope="module")
def seen(notebook: subprocess.Popen[str]) -> Any:
    """What the notebook tells, on its only line that is JSON."""
    assert notebook.stdout is not None
    assert isinstance(notebook.args, list)
    said = []
    for line in notebook.stdout:
        if line.startswith("{"):
            return json.loads(line)
        said.append(line)
    said.append(Path(notebook.args[-1], "notebook.log").read_text())
    return pytest.fail(f"the notebook has ended with {notebook.wait()}: {''.join(said)}")


@pytest.mark.parametrize("way", ["sent", "written"])
def test_each_rank_has_neighbouring_rows(seen: Any, way: str) -> None:
    """Sent along with the cell, or written by the executors into a folder."""
    first, second = seen[way]
    assert first["is"] == "Table"
    assert first["ids"] == list(range(50))
    assert second["ids"] == list(range(50, 101))
    assert first["even"] + second["even"] == list(range(100))
    assert len(first["even"]) == len(second["even"])
    assert [*first["own parts"], *second["own parts"]] == seen["own parts"]
    assert [len(first["own parts"]), len(second["own parts"])] == [1, 2]
    assert first["no parts"] == []
    assert (len(first["parts"]), len(second["parts"])) == (50, 50)
    assert [one for part in first["parts"] + second["parts"] for one in part] == list(range(101))
    assert first["names"] == [["id", "twice"]] * 3
    assert first["sizes"] == [101, 101, 0, 0]
    assert not first["spark"]


def test_what_travels_is_said(seen: Any) -> None:
    assert "a Spark DataFrame is sent as its 101 rows, 1 kB" in seen["notes"]
    (told,) = (note for note in seen["written notes"] if "101 rows" in note)
    assert "3 files with 3 kB" in told
    assert seen["files"] == 3
    (told,) = seen["of petastorm"]
    assert told.startswith("the 101 rows of a Spark DataFrame are in /")
    assert "/cache/20" in told
    assert seen["cached"] == 3
    (told,) = seen["of others"]
    assert "/cache of Petastorm is not used, because the ranks' machines may not have it" in told
    assert "spark.conf.set('spark.jupyterDist.sharedFolder', FOLDER)" in told
    (told,) = seen["not writable"]
    assert told.startswith("a Spark DataFrame is sent as its 101 rows")


def test_a_failed_write_leaves_no_files_and_has_said_what_it_writes(seen: Any) -> None:
    assert "the rows of this DataFrame cannot be read" in seen["unfinished"]
    assert "note: Spark writes the rows of a DataFrame to /" in seen["said before"]
    assert "/unfinished/20" in seen["said before"]
    assert "about 1 kB by Spark's estimate. To stop it, interrupt the cell" in seen["said before"]
    assert seen["left"] == []


def test_it_works_in_the_notebook_as_well(seen: Any) -> None:
    assert seen["in the notebook"] == list(range(0, 202, 2))


def test_what_needs_spark_says_so_on_a_rank(seen: Any) -> None:
    assert seen["sent"][0]["refusal"].startswith(
        "'filter': a rank has only the rows of this DataFrame, not the notebook's Spark session"
    )
    assert "dist.shard(df)" in seen["sent"][0]["refusal"]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("session", "this SparkSession belongs to the notebook's Spark driver"),
        ("context", "this SparkContext belongs to"),
        ("column", "this Column belongs to"),
        ("groups", "this GroupedData belongs to"),
        ("rdd", "Send rdd.toDF() instead"),
        ("broadcast", "Send its value instead: broadcast.value"),
        ("failing", "is not true!"),
    ],
)
def test_what_cannot_travel_is_refused_before_anything_starts(seen: Any, what: str, told: str) -> None:
    assert told in seen[what]
    assert "Nothing was started" in seen[what]


def test_rows_are_collected_once(seen: Any) -> None:
    """Also where pickling is tried again, to say what it was that failed."""
    assert seen["tries"] == 1


def test_torchdistributor_on_executors_raises_what_failed_first(seen: Any) -> None:
    assert "rank 1 failed first" in seen["failure"]
    assert "ValueError: no digits at 1" in seen["failure"]
    assert seen["backend"] == "spark"
    assert seen["last run"]


def test_a_notebook_that_dies_takes_its_ranks_along(
    seen: Any, notebook: subprocess.Popen[str], wait_for: Callable[..., Any]
) -> None:
    """The last test of the notebook."""
    run = RunFolder(Path(seen["run"]))
    wait_for(lambda: all("up" in logs(run, rank) for rank in (0, 1)), "both ranks")
    wait_for(lambda: len(_pids(run)) == 2, "the state to tell of them")
    pids = _pids(run)
    assert all(reader.start_ticks(pid) is not None for pid in pids)
    notebook.kill()
    status = ended(run)
    assert status.state is State.FAILED
    assert "Spark says: " in str(status.reason), story(run)
    wait_for(lambda: not any(reader.start_ticks(pid) is not None for pid in pids))


def _pids(run: RunFolder) -> list[int]:
    return [rank.pid for rank in reader.status(run).ranks if rank.pid is not None]


if __name__ == "__main__":
    as_a_notebook(sys.argv[1])
