"""The settings of a Spark session of a run's own, without Spark."""

from __future__ import annotations

import pytest

from jupyter_dist.backends.spark.sessions import SparkAddress, _defaults


@pytest.mark.parametrize(
    ("np", "conf", "cores"),
    [
        (3, {}, "3"),
        (3, {"spark.task.cpus": "2"}, "6"),
        (2, {"spark.executor.cores": "4"}, "4"),
        (6, {"spark.executor.cores": "4"}, "8"),
        (3, {"spark.executor.cores": "4", "spark.task.cpus": "3"}, "12"),
        (4, {"spark.executor.cores": "1"}, "4"),
    ],
)
def test_a_standalone_cluster_may_start_whole_executors_for_all_ranks(
    np: int, conf: dict[str, str], cores: str
) -> None:
    found = _defaults(SparkAddress("run", "spark://host:7077", conf, np=np))
    assert found["spark.cores.max"] == cores
