"""`%dist attach azureml:JOB`: jobs of a workspace that others have started, shown as runs."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.azureml import attached
from jupyter_dist.backends.azureml.attached import AttachedCommandJob
from jupyter_dist.backends.azureml.log_owners import logs_of, ranks_asked_for, speaker
from jupyter_dist.backends.azureml.logs import _ANEW, JobLogs, _OneLog, _Piece
from jupyter_dist.backends.azureml.workspace import MlWorkspace, WorkspaceId
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import InputError, Unreachable
from jupyter_dist.folder import RunFolder, runs
from jupyter_dist.job import State
from jupyter_dist.record.process_identity import start_ticks
from jupyter_dist.showing.run import Run
from jupyter_dist.start import attach
from tests.rigs.azureml import AzurePlane, CommandRun
from tests.rigs.azureml.fixtures import kept_plane, plane, signed_in, until  # noqa: F401

pytestmark = [
    pytest.mark.needs("azure.identity", "azure.storage.blob"),
    pytest.mark.xdist_group("azureml"),  # they share its machines
]

MANY = """
import os, select, socket
rank, turn = os.environ["RANK"], 0
about = socket.create_connection(("{address}", {port}))
while not select.select([about], [], [], 0.1)[0]:
    os.write(1, "".join(f"{{rank}} {{turn}}.{{n}} über\\n" for n in range(25)).encode())
    turn += 1
os.write(1, b"the end of " + rank.encode())
"""
LONG = """
import socket
about = socket.create_connection(("{address}", {port}))
print("up", flush=True)
about.recv(1)
"""
FAILS = "import sys\nprint('it goes wrong', flush=True)\nsys.exit(3)"
PER_NODE = {"distributionType": "PyTorch", "processCountPerInstance": 1}


@pytest.fixture(autouse=True)
def here(
    plane: AzurePlane,
    signed_in: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[None]:
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(plane.config))
    yield
    plane.heal()
    plane.sign_in()
    for job in plane.active():
        plane.cancel(job.name)
    for run in map(Run, runs()):
        wait_for_end(run)
    until(lambda: not plane.active(), "all jobs to end")


@pytest.fixture
def talk(plane: AzurePlane) -> Iterator[socket.socket]:
    """Until it is closed, jobs go on."""
    with socket.create_server((plane.hosts.driver_address, 0)) as server:
        yield server


def told(script: str, talk: socket.socket) -> str:
    address, port = talk.getsockname()
    return script.format(address=address, port=port)


def start(plane: AzurePlane, name: str, script: str, nodes: int = 1, **more: Any) -> CommandRun:
    """As somebody else does it, with the SDK."""
    workspace = MlWorkspace(WorkspaceId(plane.subscription, plane.group, plane.workspace))
    plane.container("theirs").upload_blob(f"{name}/train.py", script.encode())
    code = {"codeUri": f"{plane.url}/devstoreaccount1/theirs/{name}"}
    workspace.codes("PUT", f"{name}/versions/1", "upload", {"properties": code})
    body = {
        "jobType": "Command",
        "displayName": "their training",
        "command": "python train.py",
        "codeId": f"{plane.id}/codes/{name}/versions/1",
        "environmentId": f"{plane.id}/environments/train/versions/1",
        "computeId": f"{plane.id}/computes/{plane.compute}",
        "resources": {"instanceCount": nodes},
        **more,
    }
    workspace.jobs("PUT", name, "start", {"properties": body})
    return plane.jobs[name]


def printed(job: CommandRun) -> list[str]:
    return [bytes(text).decode() for text in job.printed.values()]


def changes(plane: AzurePlane) -> list[str]:
    """What was asked of the workspace that changes something."""
    return [asked for asked in plane.front.requests if asked.split()[0] not in ("GET", "HEAD")]


def test_each_process_is_a_rank_whose_log_goes_on_after_all_that_befalls_it(
    plane: AzurePlane, talk: socket.socket
) -> None:
    """Addresses expire, the store is busy, the user is signed out for a while, the supervisor is killed."""
    plane.signed_for_s, plane.logs_late_s = 2, 2.0
    job = start(plane, "theirs", told(MANY, talk), 2, distribution=PER_NODE)
    plane.front.requests.clear()
    plane.fail("GET .*/ExperimentRun/", 503, "ServerBusy", share=0.2)
    try:
        run = attach("azureml:theirs")
        assert run.job.world_size == 2
        assert "their training" in run.job.source
        assert "python train.py" in run.job.source
        until(lambda: all(len(run.log(rank)) > 5000 for rank in (0, 1)), f"lines: {run.status}")
        until(lambda: run.state is State.RUNNING, "a running state")
        runs_on = "job theirs runs on 2 × cpu-cluster; see https://ml.azure.com/runs/theirs"
        until(lambda: runs_on in str(run.status.reason), f"where the job runs: {run.status}")
        supervisor = run.status.supervisor
        assert supervisor is not None
        plane.expire()
        os.kill(supervisor.pid, signal.SIGKILL)
        until(lambda: start_ticks(supervisor.pid) != supervisor.start_ticks, "the supervisor's end")
        plane.sign_in()
        again = attach("azureml:theirs", workspace=plane.workspace)
        assert again.id == run.id
        so_far = len(run.log(1))
        until(lambda: len(run.log(1)) > so_far + 5000, f"more lines: {run.status}")
        talk.close()
        wait_for_end(run)
    finally:
        plane.signed_for_s, plane.logs_late_s = 8 * 3600, 0.0
    assert str(run.state) == "succeeded", run.status.reason
    assert [run.log(rank) for rank in (0, 1)] == printed(job)
    assert run.log(1).endswith(" über\nthe end of 1")
    assert [rank.state for rank in run.status.ranks] == [State.SUCCEEDED] * 2
    assert None not in [rank.started for rank in run.status.ranks]
    assert "job theirs on 2 × cpu-cluster: Completed; see https://ml" in str(run.status.told)
    assert changes(plane) == [], "it is not ours"
    written = [path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()]
    assert not any(b"sig=" in text or b"token-of-ada" in text for text in written)


def test_one_that_has_failed_long_ago_and_ones_that_others_end(
    plane: AzurePlane, talk: socket.socket
) -> None:
    failed = start(plane, "fails", FAILS)
    until(lambda: not failed.active, "its end")
    long = start(plane, "long", told(LONG, talk), 2, distribution=PER_NODE)
    waiting = start(plane, "waits", told(LONG, talk))
    shown = {name: attach(f"azureml:{name}") for name in ("fails", "long", "waits")}
    run = shown["fails"]
    wait_for_end(run)
    assert run.state is State.FAILED
    assert run.log(0) == "it goes wrong\n"
    assert "job fails has failed: Execution failed. User process 'python' exited" in str(run.status.reason)
    assert "exited with status code 3. Please check log file 'user_logs/std_log.txt'" in str(
        run.status.reason
    )
    assert attach("azureml:fails").id == run.id
    until(lambda: shown["long"].log(1) == "up\n", f"its line: {shown['long'].status}")
    queue = "job waits waits in the queue of its compute; see https://ml.azure.com/runs/waits"
    until(lambda: queue in str(shown["waits"].status.reason), "the queue")
    assert shown["waits"].state is State.PENDING
    plane.front.requests.clear()
    shown["long"].stop()
    wait_for_end(shown["long"])
    assert [asked for asked in changes(plane) if "/long/cancel" in asked] == changes(plane), "it, and once"
    assert len(changes(plane)) == 1
    plane.cancel("waits")
    talk.close()
    for job in (long, waiting):
        shows = shown[job.name]
        wait_for_end(shows)
        assert shows.state is State.STOPPED
        assert f"job {job.name} was cancelled" in str(shows.status.reason)
        assert job.status == "Canceled"


def test_what_cannot_be_attached_to(plane: AzurePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"workspace 'ws' has no job 'nobodys' .* is not its display name"):
        attach("azureml:nobodys")
    for name in ("https://ml.azure.com/runs/x", "a/../b", "a?b"):
        with pytest.raises(InputError, match=r"names no job\. Write azureml:JOB"):
            attach(f"azureml:{name}")
    with pytest.raises(
        InputError, match="workspace works only with a job that jupyter-dist did not start, as in azureml:JOB"
    ):
        attach("kubernetes:job/x", workspace="ws")
    swept = {"jobType": "Sweep", "objective": {"goal": "minimize", "primaryMetric": "x"}, "searchSpace": {}}
    swept |= {"limits": {"maxTotalTrials": 0, "maxConcurrentTrials": 1}}
    swept |= {"samplingAlgorithm": {"samplingAlgorithmType": "Random"}}
    job = start(plane, "short", "1")
    trial = {"codeId": job.body["codeId"], "environmentId": "e"}
    workspace = MlWorkspace(WorkspaceId(plane.subscription, plane.group, plane.workspace))
    workspace.jobs("PUT", "swept", "start", {"properties": {**swept, "trial": trial}})
    with pytest.raises(InputError, match=r"'swept' is a sweep job\. Its trials .* such as azureml:swept_0"):
        attach("azureml:swept")
    plane.expire()
    with pytest.raises(Exception, match=r"Azure knows no such user now: .* In a terminal: az login"):
        attach("azureml:short")
    plane.sign_in()
    monkeypatch.chdir("/")
    with pytest.raises(
        InputError, match=r"needs a workspace: --resource-group --workspace\. Or download config\.json"
    ):
        attach("azureml:short", subscription=plane.subscription)
    assert list(runs()) == []


def test_a_log_that_may_not_be_read(
    plane: AzurePlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as one behind a firewall: it is told, and the job's end is shown without."""
    job = start(plane, "behind", "print('x')")
    until(lambda: not job.active, "its end")
    workspace = MlWorkspace(WorkspaceId(plane.subscription, plane.group, plane.workspace))
    logs = JobLogs(workspace, job.name, RunFolder(tmp_path / "run"), 1, {})
    plane.signed_for_s = -10
    logs._list()
    plane.signed_for_s = 8 * 3600
    assert logs.read(ended=False), "an address that is good no longer is asked for anew"
    assert logs.positions == {"0": {"size": 2, "turn": 0, "at": 2}}
    plane.fail("GET .*/ExperimentRun/", 404, "BlobNotFound", times=1)
    assert logs.read(ended=False)
    assert logs.positions["0"]["size"] == 2, "a blob that is away for a moment is no other one"
    logs._addresses = {name: f"http://127.0.0.1:9/x?sig={name}" for name in logs._addresses}
    with pytest.raises(Unreachable, match=r"store does not answer: ConnectionError$"):
        logs.read(ended=False)
    logs.close()
    plane.fail("GET .*/ExperimentRun/", 403, "AuthorizationFailure")
    run = attach("azureml:behind")
    said = "the workspace's store refuses it (AuthorizationFailure). May this machine reach"
    until(lambda: said in str(run.status.reason), "the reason")
    monkeypatch.setattr(attached, "_REFUSED_S", 0.0)
    backend = AttachedCommandJob()
    other = RunFolder(tmp_path / "other")
    handle = backend.submit(run.job, other, 0)
    until(
        lambda: backend.poll(run.job, other, handle, None).state is State.SUCCEEDED,
        "its end without a log",
    )
    assert "its log is not all here: cannot read the log of the job 'behind'" in str(
        backend.release(run.job, other, handle)
    )
    plane.heal()
    wait_for_end(run)
    assert (run.state, run.log(0)) == (State.SUCCEEDED, "x\n")


LOG = b"".join(b"line %d\n" % number for number in range(40)) + b"last"


def test_a_log_that_is_cut_off_goes_on_at_its_place(tmp_path: Path) -> None:
    """Also one that another process has read further than it could note, and one that is begun anew."""
    for cut in range(0, len(LOG) + 1, 7):
        path = tmp_path / str(cut) / "output.log"
        path.parent.mkdir()
        _read_a_log_that_is_cut(cut, path)


def _read_a_log_that_is_cut(cut: int, path: Path) -> None:
    there = {"a": LOG[:cut], "b": b""}

    def get(name: str, begin: int) -> _Piece | None:
        data = there[name]
        return _Piece(data[begin : begin + 100], len(data), 1.0) if data else None

    first = _OneLog(path, {})
    assert first.read([(0, "a")], get, 1e9), cut
    noted = first.position
    there["a"] = LOG[: cut + 50]
    assert first.read([(0, "a")], get, 1e9), cut
    there["a"] = LOG
    second = _OneLog(path, noted)
    assert not second.read([(0, "a")], get, 0.0) or cut + 100 >= len(LOG), cut
    assert second.read([(0, "a")], get, 1e9), cut
    assert path.read_bytes() == LOG, cut
    there["b"] = b"once more\n"
    for _ in range(2):
        assert second.read([(0, "a"), (1, "b")], get, 1e9), cut
        assert path.read_bytes() == LOG + b"once more\n", cut
    there["b"] = b"other"
    assert _OneLog(path, second.position).read([(0, "a"), (1, "b")], get, 1e9), cut
    assert path.read_bytes() == LOG + b"once more\n" + _ANEW + b"other", cut


def test_whose_log_it_is() -> None:
    tensorflow = [
        f"user_logs/std_log_node_0{number}_{role}.txt" for role in ("ps", "worker") for number in (0, 1)
    ]
    mpi = ["user_logs/std_log_process_10.txt", "user_logs/std_log_process_02.txt", "user_logs/mpi_log.txt"]
    again = ["user_logs/retry_001/std_log.txt", "user_logs/std_log.txt", "user_logs/retry_000/std_log.txt"]
    before = ["azureml-logs/70_driver_log_3.txt", "azureml-logs/20_image_build_log.txt"]
    assert {of: name for of, ((_, name),) in logs_of(tensorflow, 2).items()} == {
        2: tensorflow[0],
        3: tensorflow[1],
        0: tensorflow[2],
        1: tensorflow[3],
    }
    assert set(logs_of([*mpi, *before], 1)) == {10, 2, "mpi-log", "image-build"}
    assert logs_of(again, 1) == {0: [(0, again[1]), (1, again[2]), (2, again[0])]}
    assert set(logs_of(before, 1)) == {3, "image-build"}
    assert speaker("system_logs/lifecycler/lifecycler.log", 1) is None
    assert speaker("user_logs/std_log_process_99999999.txt", 1) is None
    roles = {"distributionType": "TensorFlow", "workerCount": 3, "parameterServerCount": 2}
    spread = {"distributionType": "Mpi", "processCountPerInstance": 4}
    assert ranks_asked_for({"distribution": roles}) == 5
    assert ranks_asked_for({"distribution": spread, "resources": {"instanceCount": 2}}) == 8
    assert ranks_asked_for({"distribution": None, "resources": None}) == 1
