"""The backend `databricks` where something is wrong: with what is asked for, the workspace or the cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends import platform_job
from jupyter_dist.backends.databricks.backend import Databricks
from jupyter_dist.backends.databricks.barrier_program import program_text
from jupyter_dist.backends.databricks.options import DatabricksOptions
from jupyter_dist.backends.databricks.prices import cost_line
from jupyter_dist.backends.databricks.request import cluster_hosts
from jupyter_dist.conformance import Target
from jupyter_dist.conformance.deadlines import wait_until as wait_until_true
from jupyter_dist.conformance.run_control import Runs, wait_until
from jupyter_dist.errors import DistError, InputError, LaunchError, Unreachable
from jupyter_dist.hosts.links.mailbox import run_key
from jupyter_dist.job import State
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.showing import run as showing
from tests.rigs.databricks.workspace import RUNTIME, DatabricksWorkspace, Run
from tests.rigs.run_maker import RunMaker

pytestmark = [
    pytest.mark.needs("databricks.sdk", "pyspark"),
    pytest.mark.xdist_group("databricks"),  # they share a Spark
]

VOLUME = "/Volumes/main/default/jd"
ON_C1 = {"cluster_id": "c1", "volume": VOLUME}
TRAIN = """
import time
print("up", flush=True)
for step in range(10_000):
    time.sleep(0.02)
"""


@pytest.fixture
def workspace(databricks_workspace: DatabricksWorkspace) -> DatabricksWorkspace:
    databricks_workspace.heal()
    return databricks_workspace


@pytest.fixture(autouse=True)
def signed_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "databrickscfg"))
    if "workspace" in request.fixturenames:
        workspace = request.getfixturevalue("workspace")
        monkeypatch.setenv("DATABRICKS_HOST", workspace.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", workspace.token)


@pytest.fixture
def runs(workspace: DatabricksWorkspace, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(Target("databricks", flags=ON_C1, startup_s=15.0, lives=workspace.lives), tmp_path / "runs")
    yield made
    workspace.heal()
    made.close()
    wait_until_true(lambda: not workspace.active(), "all job runs to end")


def job_of(workspace: DatabricksWorkspace, run: showing.Run) -> Run:
    (found,) = (each for each in workspace.runs.values() if run.id in each.asked["run_name"])
    return found


def left_in(workspace: DatabricksWorkspace, run: str) -> list[str]:
    """What lies in the cloud of a run's."""
    roots = (workspace.volumes, workspace.files)
    found = [str(path.relative_to(root)) for root in roots for path in files_below(root)]
    return [name for name in found if run in name]


def files_below(root: Path) -> list[Path]:
    """Also while a cluster makes and removes files and folders there."""
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]


def texts_below(root: Path) -> list[str]:
    """What these files hold, as far as they are still there."""
    found = []
    for path in files_below(root):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.read_bytes().decode(errors="replace"))
    return found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "needs a Volume: --volume /Volumes/CATALOG/SCHEMA/VOLUME"),
        ("--volume /dbfs/x", "needs the path of a Volume, /Volumes/CATALOG/SCHEMA/VOLUME, got '/dbfs/x'"),
        (f"--volume {VOLUME}/../ro", "needs the path of a Volume"),
        (f"--volume {VOLUME}", "needs a cluster: --cluster-id ID, or --new-cluster"),
        (
            f"--volume {VOLUME} --cluster-id c1 --new-cluster",
            "--cluster-id cannot be combined with --new-cluster",
        ),
        (
            f"--volume {VOLUME} --cluster-id c1 --workers 2",
            "--cluster-id cannot be combined with --workers. It is for",
        ),
        (f"--volume {VOLUME} --cluster-id c1 --token dapi1", "--token would be readable in the notebook"),
        (f"--volume {VOLUME} --cluster-id c1 --profile x", "there is no profile 'x' in"),
        (f"--volume {VOLUME} --cluster-id c1", "needs a workspace: --profile NAME"),
        (f"--volume {VOLUME} --cluster-id c1 --host http://example.com", "needs the address of a workspace"),
        (f"--volume {VOLUME} --cluster-id c1 --host https://dapi1@x.com", "needs the address of a workspace"),
        (f"--volume {VOLUME} --host x.com --new-cluster", "--new-cluster needs --node-type"),
        (
            f"--volume {VOLUME} --host x.com --new-cluster --node-type m5.large --workers -1",
            "--workers needs",
        ),
        (
            f"--volume {VOLUME} --host x.com --new-cluster --node-type m5.large --workers 4 -np 2",
            "4 workers for 2 ranks: 2 would be idle and cost money. Use --workers 2, or -np 4",
        ),
        (
            f"--volume {VOLUME} --host x.com --new-cluster --node-type m5.large --runtime 15.4",
            "needs a runtime's key such as 15.4.x-cpu-ml-scala2.12",
        ),
    ],
)
def test_bad_input_is_told_before_anything_is_asked(line: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        make_plan(read_command_line(f"--backend databricks {line}").given)


def test_a_runtime_with_another_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a cluster is paid for that cannot read what is sent to it."""
    other = "15.4.x-cpu-ml-scala2.12" if sys.version_info[:2] != (3, 11) else "16.4.x-cpu-ml-scala2.12"
    given = {"volume": VOLUME, "host": "https://x.com", "new_cluster": True, "node_type": "m5.large"}
    with pytest.raises(
        InputError,
        match=r"has Python 3\.\d+, but the notebook has Python 3\.\d+: a runtime .*\. Or add --other-python",
    ):
        Databricks().check(1, {**given, "runtime": other})
    with pytest.raises(InputError, match=r"the cluster 'team' runs .* has Python"):
        cluster_hosts({"cluster_name": "team", "spark_version": other, "num_workers": 2}, 2)
    with pytest.raises(InputError, match=r"shared \(standard\) access"):
        cluster_hosts({"cluster_id": "c", "data_security_mode": "USER_ISOLATION"}, 2)


def test_with_the_flag_a_runtime_may_have_another_python() -> None:
    given = {"volume": VOLUME, "host": "https://x.com", "new_cluster": True, "node_type": "m5.large"}
    for runtime in (
        "11.3.x-cpu-ml-scala2.12",
        "12.2.x-cpu-ml-scala2.12",
        "14.3.x-cpu-ml-scala2.12",
        "15.4.x-cpu-ml-scala2.12",
        "16.4.x-cpu-ml-scala2.12",
    ):
        Databricks().check(1, {**given, "runtime": runtime, "other_python": True})
        found = {"cluster_name": "team", "spark_version": runtime, "num_workers": 2}
        assert cluster_hosts(found, 2, other_python=True) == (1, 1)
    with pytest.raises(InputError, match=r"10\.4\..* has Python 3\.8, and ranks need Python 3\.9 or newer"):
        Databricks().check(1, {**given, "runtime": "10.4.x-cpu-ml-scala2.12", "other_python": True})


def test_ranks_are_spread_over_the_workers() -> None:
    found = {"spark_version": RUNTIME, "state": "RUNNING", "num_workers": 8}
    assert cluster_hosts({**found, "executors": [{}] * 3}, 8) == (3, 3, 2), "those that are there"
    assert cluster_hosts({**found, "state": "TERMINATED"}, 4) == (1, 1, 1, 1)
    scaled = {"spark_version": RUNTIME, "autoscale": {"min_workers": 2, "max_workers": 9}}
    assert cluster_hosts(scaled, 4) == (2, 2)
    assert cluster_hosts({"spark_version": RUNTIME, "num_workers": 0}, 2) == (2,), "a single node"


def test_what_a_new_cluster_costs_is_told_first() -> None:
    assert cost_line("i3.xlarge", 2, spot=False) == (
        "a new cluster: 3 × i3.xlarge (one is the driver), 3 DBU/h × 0.15 USD = 0.45 USD/h and 0.94 "
        "USD/h for the machines, 1.39 USD/h in all (Jobs Compute, Premium, by lists of 2024-07, a DBU's "
        "price of 2026-04; yours may differ)"
    )
    assert "and at most 0.94 USD/h for the machines" in cost_line("i3.xlarge", 2, spot=True)
    assert "and the cloud's price of the machines" in cost_line("n1-standard-4", 0, spot=False)
    assert "its price is not known here" in cost_line("new.9xlarge", 0, spot=False)
    by_policy = cost_line(None, 2, spot=False)
    assert "3 × the machine that its policy names (one is the driver); its price is not known" in by_policy
    given = {
        "volume": VOLUME,
        "host": "https://x.com",
        "new_cluster": True,
        "node_type": "i3.xlarge",
        "workers": 2,
    }
    assert Databricks().check(4, given) == [cost_line("i3.xlarge", 2, spot=False)]


def test_the_request_says_all_that_is_sent(tmp_path: Path) -> None:
    given = {
        **{"volume": VOLUME, "host": "https://x.com", "new_cluster": True, "node_type": "g5.xlarge"},
        **{"workers": 2, "spot": True, "policy": "P1"},
    }
    options = DatabricksOptions(**given).model_dump(mode="json")
    job = RunMaker(tmp_path, 3, options=options).job
    told = Databricks().request(job, 1)
    assert told["hosts"] == [{"name": "worker0", "slots": 2}, {"name": "worker1", "slots": 1}]
    assert told["submit"]["idempotency_token"] == f"jupyter-dist-{job.id}-1"
    assert len(told["submit"]["idempotency_token"]) <= 64
    cluster = told["submit"]["tasks"][0]["new_cluster"]
    assert cluster["aws_attributes"] == {"availability": "SPOT_WITH_FALLBACK", "first_on_demand": 1}
    assert (cluster["num_workers"], cluster["policy_id"]) == (2, "P1")
    assert cluster["spark_version"] == RUNTIME.replace("-cpu-", "-gpu-")
    assert cluster["data_security_mode"] == "SINGLE_USER"


def made(workspace: DatabricksWorkspace, root: Path, **given: Any) -> RunMaker:
    """A run's folder, for calls of the backend in this process."""
    options = DatabricksOptions(**{**ON_C1, **given}).model_dump(mode="json")
    run = RunMaker(root, 2, options=options, began=time.time())
    run.folder.payload.write_bytes(b"payload")
    return run


@pytest.mark.parametrize(
    ("break_it", "kind", "said"),
    [
        (
            lambda w: w.fail(".", 401, "UNAUTHENTICATED"),
            LaunchError,
            r"no such user \(401\).*databricks auth login",
        ),
        (
            lambda w: w.fail("/clusters/", 403),
            LaunchError,
            r"cannot use the cluster 'c1': it is not allowed \(403\)",
        ),
        (lambda w: w.fail("/jobs/runs/submit", 403), LaunchError, r"cannot start a job run: .* \(403\)"),
        (
            lambda w: w.fail("/jobs/runs/submit", 400, "INVALID_STATE"),
            LaunchError,
            "the workspace answers INVALID_STATE",
        ),
        (
            lambda w: w.fail("/workspace/import", 404),
            LaunchError,
            r"your own folder of the workspace: .*\(404\)",
        ),
        (lambda w: w.fail("PUT .*/code/", 503), Unreachable, "cannot .*|does not write to the Volume"),
        (lambda w: w.fail("/jobs/runs/submit", 500), Unreachable, "does not start a job run at the moment"),
    ],
    ids=["401", "403-cluster", "403-submit", "400", "404-folder", "503-volume", "500"],
)
def test_a_submission_that_is_refused(
    workspace: DatabricksWorkspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[DatabricksWorkspace], None],
    kind: type[DistError],
    said: str,
) -> None:
    monkeypatch.setattr("jupyter_dist.backends.databricks.workspace._RETRY_S", 1)
    for code in files_below(workspace.volumes):
        if code.match("jupyter-dist/code/*"):
            code.unlink()
    run, before = made(workspace, tmp_path), set(workspace.runs)
    break_it(workspace)
    with pytest.raises(kind, match=said) as raised:
        Databricks().submit(run.job, run.folder, 0)
    assert workspace.token not in str(raised.value)
    assert set(workspace.runs) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"cluster_id": "c9"},
            r"cannot use the cluster 'c9': it is not there \(404\): Cluster c9 does not exist",
        ),
        (
            {"volume": "/Volumes/main/default/no"},
            r"cannot write to the Volume .*/no': it is not there \(404\)",
        ),
        (
            {"volume": "/Volumes/main/default/ro"},
            r"\(403\): User does not have WRITE VOLUME on Volume 'main\.def",
        ),
        ({"host": "https://127.0.0.1:1"}, "no answer|does not list your job runs at the moment"),
    ],
    ids=["cluster", "volume", "read-only", "nobody"],
)
def test_what_is_not_there(
    workspace: DatabricksWorkspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    said: str,
) -> None:
    monkeypatch.setattr("jupyter_dist.backends.databricks.workspace._RETRY_S", 1)
    run, before = made(workspace, tmp_path, **given), set(workspace.runs)
    with pytest.raises(DistError, match=said):
        Databricks().submit(run.job, run.folder, 0)
    assert set(workspace.runs) == before


def test_a_submission_is_found_again_and_never_doubled(
    workspace: DatabricksWorkspace, tmp_path: Path
) -> None:
    run = made(workspace, tmp_path)
    handle = Databricks().submit(run.job, run.folder, 0)
    number = handle["job_run"]["number"]
    assert json.loads(json.dumps(handle)) == json.loads(json.dumps(Databricks().find(run.job, run.folder, 0)))
    assert Databricks().submit(run.job, run.folder, 0)["job_run"]["number"] == number
    secrets = run_key(run.folder).hex(), workspace.token
    texts = texts_below(workspace.volumes)
    assert not any(secret in text for secret in secrets for text in texts), "the store holds no secrets"
    assert not any(secret in json.dumps([handle, workspace.runs[number].asked]) for secret in secrets)
    workspace.fail("/jobs/", 401, "UNAUTHENTICATED")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform_job, "_TRIES_S", 0.5)
        told = str(Databricks().release(run.job, run.folder, handle))
    assert f"job run {number} may still be running and cost money: cannot end job run {number}" in told
    assert f"in a terminal: databricks jobs cancel-run {number}; see" in told
    workspace.heal()
    Databricks().release(run.job, run.folder, handle)
    wait_until_true(lambda: not workspace.active(), "the job run to end")
    assert Databricks().find(run.job, run.folder, 0) is None
    assert left_in(workspace, run.folder.id) == []


def test_a_submission_that_was_cut_off_comes_to_nothing(
    workspace: DatabricksWorkspace, tmp_path: Path
) -> None:
    """Once `find` has said that nothing of it runs, its request may still arrive."""
    run = made(workspace, tmp_path)
    backend = Databricks()
    sent: list[dict[str, Any]] = []

    def lose(asked: dict[str, Any]) -> int:
        sent.append(asked)
        return 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspace, "_submit", lose)
        with pytest.raises(DistError):
            backend.submit(run.job, run.folder, 0)
    assert Databricks().find(run.job, run.folder, 0) is None
    with pytest.raises(Exception, match="the Python file does not exist"):
        workspace._submit(sent[0])


def test_a_program_that_finds_too_few_slots_says_so(workspace: DatabricksWorkspace) -> None:
    program = workspace.files / "Users" / "slots.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text(program_text({"hosts": 9, "wait_s": 0}))
    task = {"existing_cluster_id": "c1", "spark_python_task": {"python_file": "/Users/slots.py"}}
    number = workspace._submit({"tasks": [task], "idempotency_token": "slots", "run_name": "slots"})
    wait_until_true(lambda: not workspace.runs[number].active, "the program to end")
    assert "RuntimeError: the cluster has task slots for 2 of 9 hosts" in str(workspace.runs[number].error)
    folder = {"folder": "/Volumes/main/default/no", "attempt": 0}
    program.write_text(program_text({"hosts": 1, "wait_s": 0, **folder}))
    number = workspace._submit({"tasks": [task], "idempotency_token": "no", "run_name": "no"})
    wait_until_true(lambda: not workspace.runs[number].active, "the program to end")
    assert "the cluster cannot access '/Volumes/main/default/no'" in str(workspace.runs[number].error)
    program.unlink()


def test_a_service_that_is_busy_is_waited_for(workspace: DatabricksWorkspace, runs: Runs) -> None:
    """At the submission and in the midst of it: each line comes once, and there is one job run."""
    workspace.fail("/jobs/runs/submit", 429)
    cell = """
import itertools, os, time
print("up")
for n in itertools.count():
    print("line", n)
    time.sleep(0.02)
    if os.path.exists("/tmp/enough"):
        break
n
"""
    run = runs.start(cell)
    wait_until(lambda: "does not start a job run at the moment" in str(run.status.reason), "the reason", run)
    workspace.heal()
    runs.until_up(run)
    workspace.fail("/fs/|/jobs/", 503)
    wait_until(lambda: "does not" in str(run.status.reason), "the reason", run)
    workspace.heal()
    workspace.fail("/fs/|/jobs/", 401, "UNAUTHENTICATED")
    wait_until(lambda: "knows no such user (401)" in str(run.status.reason), "the reason", run)
    workspace.heal()
    workspace.hosts.exec("c1", ["touch", "/tmp/enough"])
    runs.wait(run)
    assert run.state is State.SUCCEEDED
    for rank, last in enumerate(run.results):
        found = re.findall(r"^line (\d+)$", run.log(rank), re.MULTILINE)
        assert found == [str(n) for n in range(last + 1)]
    job_of(workspace, run)
    assert left_in(workspace, run.id) == []
    told = [path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()]
    assert not any(workspace.token.encode() in text for text in told), "no token in the run's folder"


def test_a_job_that_is_cancelled_on_its_page(workspace: DatabricksWorkspace, runs: Runs) -> None:
    run = runs.start(TRAIN)
    runs.until_up(run)
    pids = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    job = job_of(workspace, run)
    log = (run.folder.path / "supervisor.log").read_text()
    assert f"#job/1/run/{job.number}" in log, "its page is linked"
    workspace.cancel(job.number)
    runs.wait(run)
    assert run.state is State.STOPPED
    assert f"job run {job.number} was cancelled: Run cancelled; see" in str(run.status.reason)
    runs.gone(*pids)


def test_a_job_run_that_is_deleted_on_its_page(
    workspace: DatabricksWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its hosts are there."""
    monkeypatch.setattr("tests.rigs.databricks.workspace._Cluster.start", lambda *_: None)
    run = made(workspace, tmp_path)
    backend = Databricks()
    handle = backend.submit(run.job, run.folder, 0)
    number = handle["job_run"]["number"]
    workspace.cancel(number)
    workspace.delete(number)
    wait_until_true(lambda: backend.poll(run.job, run.folder, handle, None).state is State.FAILED, "the end")
    assert f"job run {number} is gone: it was deleted in the workspace" in str(
        backend.poll(run.job, run.folder, handle, None).detail
    )
    backend.release(run.job, run.folder, handle)
    assert left_in(workspace, run.folder.id) == []


def test_a_task_that_is_killed(workspace: DatabricksWorkspace, runs: Runs) -> None:
    """Such as with its executor. Spark starts all tasks again, and those must not pose as the first."""
    run = runs.start(TRAIN)
    runs.until_up(run)
    pids = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    courier = next(each for each in workspace.hosts.pids("c1") if "lifeline" in " ".join(each.argv))
    status = Path(f"/proc/{courier.pid}/status").read_text()
    os.kill(int(status.split("PPid:")[1].split()[0]), signal.SIGKILL)
    runs.wait(run)
    assert run.state is not State.SUCCEEDED
    assert f"job run {job_of(workspace, run).number} has failed" in str(run.status.reason)
    runs.gone(*pids)


def test_a_cluster_that_its_policy_ends(workspace: DatabricksWorkspace, runs: Runs) -> None:
    """A new one, made for the run."""
    given: dict[str, Any] = {"cluster_id": None, "new_cluster": True, "node_type": "m5.large", "workers": 1}
    run = runs.start(TRAIN, **given)
    wait_until(lambda: "waits for its cluster" in str(run.status.reason), "the cluster to be told of", run)
    wait_until(lambda: run.state is State.RUNNING and "up" in run.log(1), "the ranks", run)
    pids = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    assert {rank.host for rank in run.status.ranks} == {"worker0"}, "both on its only worker"
    workspace.terminate(f"job-{job_of(workspace, run).number}", "INACTIVITY")
    runs.wait(run)
    assert run.state is not State.SUCCEEDED
    assert "became unusable during the run since it was terminated: INACTIVITY" in str(run.status.reason)
    runs.gone(*pids)


def test_a_machine_without_a_workspace_is_not_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_HOST", raising=False)
    assert Databricks().detect()["no_site"].startswith("There is no profile of Databricks")
    monkeypatch.setenv("DATABRICKS_HOST", "https://adb-1.2.azuredatabricks.net")
    assert "no_site" not in Databricks().detect()
    monkeypatch.delenv("DATABRICKS_HOST")
    (tmp_path / "databrickscfg").write_text("[mine]\nhost = https://adb-1.2.azuredatabricks.net\n")
    assert Databricks().detect()["profiles"] == "mine"
