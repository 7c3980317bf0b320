"""`dist.shard` of Ray Datasets, on a real Ray: each rank streams its part of one split.

This file is also the program that is tested: a notebook's process with a Ray of its own, since Ray leaves
threads and files open in the process that was connected.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist as dist
from jupyter_dist.worker.data import ray_datasets
from tests.rigs.ray.start import PYTHON, give_time

pytestmark = [
    pytest.mark.needs("ray"),
    pytest.mark.xdist_group("ray data"),  # they share a Ray
]


def on_a_rank(lazy: Any, in_memory: Any, table: Any, counter: Any) -> dict[str, Any]:
    """What a rank sees of two datasets of the notebook and of one of its own, of an object and an actor."""
    import signal

    import ray

    def column(part: Any, name: str) -> list[int]:
        return [int(value) for batch in part.iter_batches(batch_size=64) for value in batch[name]]

    part = dist.shard(lazy)
    seen: dict[str, Any] = {"is": type(part).__mro__[1].__name__, "same": dist.shard(lazy) is part}
    seen["epochs"] = [sorted(column(part, "id")) for _ in range(2)]
    seen["in memory"] = column(dist.shard(in_memory), "a")
    mine = ray.data.range(10)
    seen["own"] = column(dist.shard(mine), "id")
    seen["whole"] = in_memory.count()
    seen["object"] = ray.get(table["numbers"])
    seen["counted"] = ray.get(counter.add.remote())
    seen["ends"] = getattr(signal.getsignal(signal.SIGTERM), "__name__", "")
    dist.barrier()
    return seen


class Counter:
    """An actor."""

    def __init__(self) -> None:
        self.count = 10

    def add(self) -> int:
        self.count += 1
        return self.count


def as_a_notebook() -> dict[str, Any]:
    """All that needs a Ray, in one go."""
    import pandas as pd

    ray = importlib.import_module("ray")
    with tempfile.TemporaryDirectory() as place:
        start(ray, place)
        importlib.import_module("ray.data")
        lazy = ray.data.range(100).map_batches(lambda batch: {"id": batch["id"] * 2})
        in_memory = ray.data.from_pandas(pd.DataFrame({"a": range(21)}))
        table, counter = {"numbers": ray.put([1, 2, 3])}, ray.remote(Counter).remote()
        run = dist.run(on_a_rank, lazy, in_memory, table, counter, backend="local", np=2)
        seen = {"ranks": list(run.results), "notes": list(run.job.notes), "left": ours(ray)}
        holder = (
            ray.remote(ray_datasets._class_of_the_holder())
            .options(name="idle", namespace="jupyter_dist", lifetime="detached", num_cpus=0)
            .remote(0.5)
        )
        ray.get(holder.here.remote(0))
        seen["idle"] = ours(ray)
        end = time.monotonic() + 60
        while ours(ray) and time.monotonic() < end:
            time.sleep(0.1)
        seen["idle later"] = ours(ray)
        seen["in the notebook"] = [int(row["a"]) for row in dist.shard(in_memory).iter_rows()]
        ray.shutdown()
    return seen


def start(ray: Any, place: str) -> None:
    """Start a small Ray."""
    give_time()
    ray.init(
        num_cpus=2,
        object_store_memory=80 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=place,
    )


def ours(ray: Any) -> list[str]:
    """The actors that are ours and still there."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in found if actor["namespace"] == "jupyter_dist"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("ray") / "seen.json"
    env = {**os.environ, "JUPYTER_DIST_RUNS": str(out.parent / "runs")}
    done = subprocess.run([PYTHON, __file__, str(out)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


def test_each_rank_streams_its_part_again_and_again(seen: Any) -> None:
    """A dataset that the cell takes from the notebook: equal parts, and each row goes to one rank."""
    first, second = seen["ranks"]
    assert first["is"] == "DataIterator"
    assert first["same"]
    for epoch in (0, 1):
        parts = first["epochs"][epoch], second["epochs"][epoch]
        assert [len(part) for part in parts] == [50, 50]
        assert sorted(parts[0] + parts[1]) == list(range(0, 200, 2))


def test_rows_that_would_make_parts_differ_are_left_out(seen: Any) -> None:
    first, second = (rank["in memory"] for rank in seen["ranks"])
    assert len(first) == len(second) == 10
    assert len({*first, *second} & {*range(21)}) == 20


def test_a_dataset_that_ranks_make_themselves_is_split_once(seen: Any) -> None:
    first, second = (rank["own"] for rank in seen["ranks"])
    assert sorted(first + second) == list(range(10))


def test_without_shard_every_rank_has_all_of_it(seen: Any) -> None:
    assert [rank["whole"] for rank in seen["ranks"]] == [21, 21]
    assert seen["in the notebook"] == list(range(21))


def test_objects_and_actors_of_the_notebook_are_the_same_on_ranks(seen: Any) -> None:
    assert [rank["object"] for rank in seen["ranks"]] == [[1, 2, 3]] * 2
    assert sorted(rank["counted"] for rank in seen["ranks"]) == [11, 12]
    assert len([note for note in seen["notes"] if "put into Ray belong to this" in note]) == 1


def test_data_in_memory_is_said_to_be_the_kernels(seen: Any) -> None:
    assert [note for note in seen["notes"] if "for as long as the kernel runs" in note]


def test_ray_does_not_change_how_a_rank_is_ended(seen: Any) -> None:
    assert {rank["ends"] for rank in seen["ranks"]} == {"_terminate"}


def test_nothing_of_ours_stays_in_the_cluster(seen: Any) -> None:
    """Neither when ranks end in order, nor when all of them are killed and nobody says so."""
    assert seen["left"] == []
    assert seen["idle"] == ["idle"]
    assert seen["idle later"] == []


def test_a_rank_without_ray_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'ray\[data\]'"):
        ray_datasets.join()


def test_an_object_of_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_dist.worker.pickling.reducers import ray_data

    monkeypatch.setattr(ray_datasets, "join_cluster", lambda address, what: None)
    monkeypatch.setattr(ray_data, "_address", lambda ray: "10.0.0.2:6379")
    with pytest.raises(ConnectionError, match="this rank is in the Ray cluster at 10"):
        ray_data._reference(b"", "10.0.0.1:6379")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(as_a_notebook()))
