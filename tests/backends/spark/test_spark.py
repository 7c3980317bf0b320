"""What befalls runs on Spark, in a notebook's own session on two executors: faults, waiting, bad input."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist as dist
from jupyter_dist import backends, clusters
from jupyter_dist.backends.spark import notebook_session
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.run_control import notebook
from jupyter_dist.databricks import HorovodRunner
from jupyter_dist.errors import InputError, MissingEngine
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.manage import cluster_edits
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import find_session, take_end
from tests.rigs import spark_rig
from tests.rigs.launching import carrier_of, ended, launch_cell, logs, parent_of, results, story
from tests.rigs.stopwatch import WaitFor

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("warm"),
    pytest.mark.skipif(spark_rig.missing() is not None, reason=str(spark_rig.missing())),
]

HANGS = """
import time
print("up", flush=True)
time.sleep(600)
"""
COUNTS = f"for number in range(20_000):\n    print(number)\n{HANGS}"
OLDER = """
import sys

class Version(tuple):
    major, minor, micro = 3, 9, 0

sys.version_info = Version((3, 9, 0))
"""
TRAIN = """
def train(factor):
    import horovod.torch as hvd
    import torch

    hvd.init()
    place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()
    return place, hvd.allreduce(torch.tensor(factor * (hvd.rank() + 1)), op=hvd.Sum).item()
"""
"""As code for HorovodRunner has it, without a word of ours."""
WHERE = """
import os
[os.environ[name] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_RANK")]
"""


@pytest.fixture
def context(spark_context: Any) -> Any:
    return spark_context


def _up(run: RunFolder, wait_for: WaitFor, ranks: int = 2, attempt: int | None = None) -> list[int]:
    """Wait until all ranks have printed; their pids, which are this machine's."""

    def up() -> list[int] | None:
        status = reader.status(run)
        assert not status.state.ended, story(run)
        if attempt is not None and status.attempt != attempt:
            return None
        said = ["up" in logs(run, rank) for rank in range(ranks)]
        pids = [rank.pid for rank in status.ranks if rank.pid is not None]
        return pids if all(said) and len(pids) == ranks else None

    found: list[int] = wait_for(up)
    return found


def _gone(pids: list[int], wait_for: WaitFor) -> None:
    wait_for(lambda: not any(reader.start_ticks(pid) is not None for pid in pids))


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _executors(context: Any) -> list[int]:
    """The executors' JVMs of this session, by the port at which they know its driver."""
    driver = f":{context.getConf().get('spark.driver.port')}"
    return [
        pid
        for pid in _pids()
        for said in [_arguments(pid)]
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in said
        and any(part.endswith(driver) for part in said)
    ]


def _python_workers(context: Any) -> list[int]:
    """What executors have forked and runs tasks: children of their `pyspark.daemon` that have children.

    One without any waits for another task, or is about to end."""
    executors = _executors(context)
    daemons = [pid for pid in _pids() if parent_of(pid) in executors]
    workers = [pid for pid in _pids() if parent_of(pid) in daemons and "pyspark.daemon" in _arguments(pid)]
    parents = {parent_of(pid) for pid in _pids()}
    return [pid for pid in workers if pid in parents]


def _plan(line: str) -> Any:
    return make_plan(read_command_line(f"--backend spark {line}").given, cluster=False)


class TestBadInput:
    """What is refused before anything starts."""

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("--master sparky", "needs local[4], local-cluster[2,1,1024], spark://HOST:7077"),
            ("--master spark://host", "needs local[4]"),
            ("--master 'sc://host:443/;token=abc'", "set the variable SPARK_REMOTE"),
            (
                "--master local[2] --conf executor.cores=2",
                "begins with spark., got the name 'executor.cores'",
            ),
            ("--master local[2] --conf spark.hadoop.fs.s3a.secret.key=hush", "spark-defaults.conf"),
            ("--master local[2] --conf spark.x", "--conf needs"),
            ("--master local[2] --driver-address here:there", "--driver-address needs HOST or HOST:PORT"),
            ("--master local[2] --wait-for-slots soon", "--wait-for-slots needs a time"),
            ("-np 0", "all task slots"),
            ("-np 2 -H a:1,b:1", "cannot be used with the backend 'spark'"),
        ],
    )
    def test_it_is_refused_with_what_to_write(self, line: str, told: str) -> None:
        with pytest.raises(InputError) as refused:
            _plan(line)
        assert told in str(refused.value)
        assert "hush" not in str(refused.value)

    def test_without_pyspark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingEngine, match=r'pip install "jupyter-dist\[spark\]"'):
            _plan("-np 2")

    def test_without_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingEngine, match="apt-get install default-jre-headless"):
            _plan("-np 2 --master local[2]")
        assert _plan("-np 2 --master sc://host").world_size == 2
        assert _plan("-np -2").world_size == 2

    @pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "sc://127.0.0.1:1"])
    def test_where_no_spark_answers(self, master: str) -> None:
        run = launch_cell("spark", "1", options={"master": master}, max_restarts=2)
        status = ended(run)
        told = f"no Spark answers at {master} (127.0.0.1, port 1: Connection refused)"
        assert (status.state, status.reason, status.attempt) == (State.FAILED, told, 0)


class TestHorovodRunnersNumbers:
    """https://docs.databricks.com/aws/en/machine-learning/train-model/distributed-training/horovod-runner"""

    def test_a_negative_number_is_that_many_processes_on_this_machine(self) -> None:
        plan = _plan("-np=-2")
        assert plan.world_size == 2
        assert plan.options.on_driver
        run = launch_cell("spark", WHERE, np=2, options={"on_driver": True})
        assert ended(run).state is State.SUCCEEDED, story(run)
        assert results(run) == [["0", "0", "2", "2", "0"], ["1", "1", "2", "2", "0"]]
        assert "java" not in run.supervisor_log.read_text().lower()

    def test_a_saved_cluster_keeps_the_meaning_of_a_negative_number(self) -> None:
        dispatch("clusters add typed --backend spark -np -2", Context())
        cluster_edits.save("form", {"backend": "spark", "options": {"np": -2}})
        for name in ("typed", "form"):
            assert clusters.get(name).options == {"np": 2, "on_driver": True}
            assert make_plan({"cluster": name}).options.on_driver  # type: ignore[attr-defined]

    def test_other_backends_take_no_such_number(self) -> None:
        with pytest.raises(InputError, match="-np needs a whole number of at least 1"):
            make_plan(read_command_line("--backend local -np=-2").given, cluster=False)

    def test_none_is_all_slots(self, context: Any) -> None:
        assert _plan("-np 0").world_size == 2
        assert _plan("-np=0").world_size == 2


class TestSession:
    """The notebook's own session: one for all tests of the module."""

    def test_it_is_said_that_the_run_ends_with_the_kernel(self, context: Any) -> None:
        assert any("end with its kernel" in warning for warning in _plan("-np 2").warnings)
        assert _plan("-np 2 --master local[2]").warnings == ()
        for flag in ("--conf spark.x=1", "--python /usr/bin/python3"):
            with pytest.raises(
                InputError,
                match="works only with a Spark session of the run's own, but this run uses the session of "
                "local-cluster",
            ):
                _plan(f"-np 2 {flag}")

    def test_it_is_shown_with_its_slots(self, context: Any) -> None:
        found = backends.load("spark").detect()
        assert (found["session"], found["task slots"]) == (spark_rig.LOCAL_CLUSTER, 2)

    def test_its_secret_is_in_no_file_and_in_no_rank(self, context: Any, own_folders: Path) -> None:
        (shared,) = notebook_session.inherited().values()
        secret = shared.split()[-1].encode()
        source = "import os\nprint(dict(os.environ))\n" + WHERE
        run = launch_cell("spark", source)
        assert ended(run).state is State.SUCCEEDED, story(run)
        assert results(run) == [["0", "0", "2", "2", "0"], ["1", "1", "2", "2", "0"]]
        held = [path for path in run.path.rglob("*") if path.is_file() and secret in path.read_bytes()]
        assert held == []
        assert "SPARK_GATEWAY" not in str(logs(run, 0))

    @pytest.mark.needs("horovod", "torch")
    def test_horovodrunner(self, context: Any) -> None:
        """On two executors, whose ranks meet by our rendezvous, without horovodrun and horovod.spark. In the
        notebook spark-horovodrunner.ipynb they learn digits."""
        runner = HorovodRunner(np=2)
        found = runner.run(notebook(TRAIN)["train"], factor=10.0)
        assert runner.last_run is not None
        assert runner.last_run.job.backend == "spark"
        assert list(runner.last_run.results) == [((0, 2, 0, 2), 30.0), ((1, 2, 1, 2), 30.0)]
        assert found == runner.last_run.results[0]

    def test_slots_that_others_have_are_waited_for(self, context: Any, wait_for: WaitFor) -> None:
        blocker = threading.Thread(target=_hold_a_slot, args=(context,))
        blocker.start()
        try:
            wait_for(lambda: context.statusTracker().getJobIdsForGroup("blocker"))
            run = launch_cell("spark", WHERE)
            told = "waits until 2 task slots are free at the same time (local-cluster[2,1,1024] has 2"
            wait_for(lambda: told in str(reader.status(run).reason))
            assert reader.status(run).state is State.PENDING
        finally:
            context.cancelJobGroup("blocker")
            blocker.join(60)
        assert ended(run).state is State.SUCCEEDED, story(run)

    def test_slots_that_are_not_there(self, context: Any, wait_for: WaitFor) -> None:
        run = launch_cell("spark", "1", np=3, options={"wait_for_slots": 1}, max_restarts=1)
        status = ended(run)
        assert status.state is State.FAILED
        assert (
            status.reason
            == "3 workers need 3 task slots, and local-cluster[2,1,1024] had 2 after 1 s (--wait-for-slots). "
            "Use a smaller -np, or add cores to the cluster"
        )
        run = launch_cell("spark", "1", np=3)
        wait_for(lambda: "waits for 3 task slots" in str(reader.status(run).reason))
        run.request("stop")
        assert ended(run).state is State.STOPPED

    def test_a_python_worker_that_is_killed(self, context: Any, wait_for: WaitFor) -> None:
        run = launch_cell("spark", HANGS)
        pids = _up(run, wait_for)
        os.kill(_python_workers(context)[0], signal.SIGKILL)
        status = ended(run)
        assert status.state is State.FAILED
        told = "lost: Spark says: Python worker exited unexpectedly (crashed)."
        assert str(status.reason).endswith(told), story(run)
        _gone(pids, wait_for)

    def test_a_session_ends_with_its_tasks(self, context: Any, wait_for: WaitFor) -> None:
        with dist.session(np=2, backend="spark") as kept:
            pids = list(kept.run(os.getpid).results)
            os.kill(_python_workers(context)[0], signal.SIGKILL)
            wait_for(lambda: find_session("main") is None, what="the session to end")
        ended = take_end("main")
        assert ended is not None
        assert "Spark says: Python worker exited unexpectedly" in ended[1]
        _gone(pids, wait_for)

    def test_an_executor_that_is_killed(self, context: Any, wait_for: WaitFor) -> None:
        """Spark starts another one, and the next attempt has its ranks there."""
        run = launch_cell("spark", HANGS, max_restarts=1)
        pids = _up(run, wait_for)
        os.kill(_executors(context)[0], signal.SIGKILL)
        again = _up(run, wait_for, attempt=1)
        _gone(pids, wait_for)
        assert "ExecutorLostFailure" in run.supervisor_log.read_text()
        run.request("stop")
        assert ended(run).state is State.STOPPED, story(run)
        _gone(again, wait_for)

    def test_the_process_that_holds_the_tasks_is_killed(self, context: Any, wait_for: WaitFor) -> None:
        run = launch_cell("spark", HANGS)
        pids = _up(run, wait_for)
        os.kill(carrier_of(run), signal.SIGKILL)
        status = ended(run)
        assert status.state is State.FAILED
        assert "the process that held its Spark tasks has ended, and the ranks with it" in str(status.reason)
        _gone(pids, wait_for)
        wait_for(lambda: not context.statusTracker().getActiveJobsIds())

    def test_by_spark_connect(self, context: Any, wait_for: WaitFor) -> None:
        """Whoever made the session there dies, and another process gives back what it held."""
        url = spark_rig.connect_url(context)
        run = launch_cell("spark", COUNTS, options={"master": url})
        pids = _up(run, wait_for)
        assert [logs(run, rank)[:-1] for rank in (0, 1)] == [[str(n) for n in range(20_000)]] * 2
        os.kill(carrier_of(run), signal.SIGKILL)
        status = ended(run)
        assert status.state is State.FAILED
        assert "the process that held its Spark tasks has ended, and the ranks with it" in str(status.reason)
        _gone(pids, wait_for)
        run = launch_cell("spark", WHERE, options={"master": url})
        assert ended(run).state is State.SUCCEEDED, story(run)
        assert results(run) == [["0", "0", "2", "2", "0"], ["1", "1", "2", "2", "0"]]

    def test_another_python_on_the_executors(
        self, context: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Spark's worker compares versions before it unpickles anything: here it says that it is older."""
        (tmp_path / "sitecustomize.py").write_text(OLDER)
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        monkeypatch.setattr(context, "pythonExec", str(python))
        status = ended(launch_cell("spark", "1", max_restarts=1))
        own = f"{sys.version_info[0]}.{sys.version_info[1]}"
        assert status.state is State.FAILED
        assert f"the executors' Python is 3.9 and the notebook's is {own}" in str(status.reason)
        assert "--python" in str(status.reason)

    def test_the_context_is_stopped(self, context: Any, wait_for: WaitFor) -> None:
        """The last test of the session."""
        run = launch_cell("spark", HANGS)
        pids = _up(run, wait_for)
        context.stop()
        status = ended(run)
        assert status.state is State.FAILED
        assert "SparkContext was shut down" in str(status.reason), story(run)
        _gone(pids, wait_for)
        assert notebook_session.master_here() is None


def _hold_a_slot(context: Any) -> None:
    from pyspark import InheritableThread

    def job() -> None:
        context.setJobGroup("blocker", "blocker", interruptOnCancel=True)
        with contextlib.suppress(Exception):
            context.parallelize([0], 1).foreach(lambda _: __import__("time").sleep(600))

    thread = InheritableThread(target=job)
    thread.start()
    thread.join()
