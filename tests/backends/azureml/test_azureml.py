"""The backend `azureml` on command jobs that really run, and where something is wrong with them."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.agent.stores.blob_store import BlobStore
from jupyter_dist.agent.stores.store import DeniedError, Store, StoreError
from jupyter_dist.backends import platform_job
from jupyter_dist.backends.azureml.backend import AzureMl
from jupyter_dist.backends.azureml.mailbox_access import MailboxAccess
from jupyter_dist.backends.azureml.options import AzureMlOptions
from jupyter_dist.backends.azureml.workspace import MlWorkspace, WorkspaceId
from jupyter_dist.conformance.run_control import Runs, story, wait_until
from jupyter_dist.errors import DistError, LaunchError, Unreachable
from jupyter_dist.folder import write_json
from jupyter_dist.hosts.links.mailbox import Mailbox
from jupyter_dist.hosts.stores.azure_container import ContainerStore
from jupyter_dist.hosts.stores.object_store import BulkStore
from jupyter_dist.job import State
from tests.rigs.azureml import AzurePlane
from tests.rigs.azureml.azurite import ACCOUNT, KEY
from tests.rigs.azureml.fixtures import job_of, kept_plane, plane, runs, signed_in, until  # noqa: F401
from tests.rigs.mailbox.store_contract import keeps_its_promise
from tests.rigs.run_maker import RunMaker

pytestmark = [
    pytest.mark.needs("azure.identity", "azure.storage.blob"),
    pytest.mark.xdist_group("azureml"),  # they share its machines
]


def made(plane: AzurePlane, root: Path, **given: Any) -> RunMaker:
    """A run's folder, for calls of the backend in this process."""
    options = AzureMlOptions(**{**plane.flags, **given}).model_dump(mode="json")
    run = RunMaker(root, 1, options=options, began=time.time())
    run.job = dataclasses.replace(run.job, backend="azureml")
    write_json(run.folder.job, run.job.to_json())
    run.folder.payload.write_bytes(b"payload")
    return run


def test_two_machines_train_one_model(plane: AzurePlane, runs: Runs) -> None:
    """Ranks on both, an input, roles, results, and what is left when all is over."""
    digits = "azureml://datastores/workspaceblobstore/paths/digits/"
    plane.inputs[digits] = {"a.txt": b"7"}
    cell = """
import json, os, torch, torch.distributed as group, jupyter_dist as dist
dist.init()
total = torch.ones(1) * (dist.rank() + 1)
group.all_reduce(total)
print("I am rank", dist.rank(), flush=True)
dist.log(loss=dist.rank() / 4)
for step in range(3 * (dist.rank() == 0)):
    dist.log(accuracy=step / 4 if step else float("nan"), step=step)
secrets = [name for name in os.environ if name.endswith(("MAILBOX_KEY", "MAILBOX_SAS"))]
task = json.loads(os.environ["TF_CONFIG"])["task"]
(os.uname().nodename, total.item(), (dist.input("train") / "a.txt").read_text(), secrets, task)
"""
    listed: dict[str, Any] = {"experiment": "vision", "tags": {"team": "vision"}, "environment": "train"}
    listed |= {"input": {"train": f"{digits},mode=ro_mount"}, "distribution": "tensorflow", "chief": True}
    with plane.machines_have_an_identity():
        run = runs.finish(cell, np=4, instance_count=2, identity="managed", **listed)
    job = job_of(plane, run)
    assert run.state is State.SUCCEEDED, story(run) + str(job.lines)
    nodes = ("node-a", "node-a", "node-b", "node-b")
    tasks = [("chief", 0), ("worker", 0), ("worker", 1), ("worker", 2)]
    assert run.results == [
        (node, 10.0, "7", [], {"type": kind, "index": index})
        for node, (kind, index) in zip(nodes, tasks, strict=True)
    ], "each has a role of its own, whatever the service has told the job's processes"
    until(lambda: not job.active, "the job's end")
    assert job.status == "Completed", job.error
    assert job.body["environmentId"].endswith("/environments/train/versions/1"), "the newest"
    charted = [(each["key"], each["step"], each["value"]) for each in plane.charted[job.name]]
    assert charted == [("loss", 0, 0.0), ("accuracy", 1, 0.25), ("accuracy", 2, 0.5)], (
        "rank 0's, in the studio"
    )
    assert [name for name in plane.mail() if run.id in name] == []
    removed = [asked for asked in plane.front.requests if asked.startswith("DELETE") and "/up/" in asked]
    assert len(removed) == len(set(removed)), "each once"
    for node in (0, 1):
        printed = job.lines[f"user_logs/std_log_process_0{node}.txt"]
        shown = {line for line in printed if line.startswith("[") and "accuracy" not in line}
        ranks = (2 * node, 2 * node + 1)
        assert shown == {f"[{r}] {said}" for r in ranks for said in (f"I am rank {r}", f"loss={r / 4}")}
    log = (run.folder.path / "supervisor.log").read_text()
    assert f"job {job.name}: https://ml.azure.com/runs/{job.name}" in log
    told = [path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()]
    assert not any(b"sig=" in text or KEY.encode() in text or b"token-of-ada" in text for text in told)
    assert job.body["identity"] == {"identityType": "Managed"}
    code = json.loads(plane.files(job.code)["jupyter_dist_mailbox.json"])
    assert "JUPYTER_DIST_MAILBOX_SAS" not in code, "machines that have an identity need no signature"


def test_a_run_outlives_what_befalls_its_services(plane: AzurePlane, runs: Runs) -> None:
    """A token expires and the user signs in again; the blobs are busy; the workspace wants silence."""
    cell = """
import itertools, os, time
print("up", flush=True)
for n in itertools.count():
    print("line", n, flush=True)
    time.sleep(0.05)
    if os.path.exists("/tmp/enough"):
        break
n
"""
    run = runs.start(cell, np=2, instance_count=2)
    runs.until_up(run)
    plane.fail(f"/{ACCOUNT}/azureml-blobstore", 503, "ServerBusy", share=0.1)
    plane.expire()
    wait_until(lambda: "Azure knows no such user now" in str(run.status.reason), "the reason", run)
    assert "az login" in str(run.status.reason)
    assert job_of(plane, run).active
    plane.sign_in("another-token-of-ada")
    plane.fail("GET .*/jobs/", 429, "TooManyRequests", times=1, headers={"retry-after": "3"})
    before = len(plane.front.requests)
    until(lambda: any("/jobs/" in each for each in plane.front.requests[before:]), "another look")
    plane.heal()
    for node in plane.hosts.names:
        plane.hosts.exec(node, ["touch", "/tmp/enough"])
    runs.wait(run)
    assert run.state is State.SUCCEEDED, story(run)
    for rank, last in enumerate(run.results):
        found = re.findall(r"^line (\d+)$", run.log(rank), re.MULTILINE)
        assert found == [str(n) for n in range(last + 1)], "none lost, none twice"
    assert [name for name in plane.jobs if run.id in name] == [f"jupyter-dist-{run.id}-0"]
    job = job_of(plane, run)
    assert "sig=" not in json.dumps(job.body), "everybody reads that who may see the job"
    assert (
        "sig=" in json.loads(plane.files(job.code)["jupyter_dist_mailbox.json"])["JUPYTER_DIST_MAILBOX_SAS"]
    )


def test_jobs_that_end_otherwise(plane: AzurePlane, runs: Runs) -> None:
    """Cancelled in the studio: its run is stopped. The next one waits for its machines, and fails on them."""
    first = runs.start("import time\nprint('up', flush=True)\ntime.sleep(600)", np=1)
    runs.until_up(first)
    plane.for_jobs["PYTHONHOME"] = "/nowhere"
    try:
        second = runs.start("1", np=1)
        queue = "waits in the queue of its compute"
        wait_until(lambda: queue in str(second.status.reason), "the queue to be told of", second)
        assert f"see https://ml.azure.com/runs/jupyter-dist-{second.id}-0" in str(second.status.reason)
        plane.cancel(job_of(plane, first).name)
        runs.wait(first)
        assert first.state is State.STOPPED, story(first)
        assert "was cancelled" in str(first.status.reason)
        runs.wait(second)
    finally:
        plane.for_jobs.clear()
    assert second.state is State.FAILED
    assert "exited with status code 1" in str(second.status.reason), story(second)


def test_machines_that_are_taken_away(plane: AzurePlane, runs: Runs) -> None:
    """Others go on with the run, as another attempt."""
    cell = """
import time, jupyter_dist as dist
done = dist.attempt()
print("up", flush=True)
while not dist.attempt():
    time.sleep(0.1)
dist.attempt()
"""
    run = runs.start(cell, np=2, instance_count=2, max_restarts=1)
    runs.until_up(run)
    job = job_of(plane, run)
    before = len(plane.front.requests)
    looks = f"GET {plane.id}/jobs/{job.name}"
    until(lambda: plane.front.requests[before:].count(looks) > 1, "the job to be seen running")
    job.preempted.set()
    runs.wait(run)
    assert run.results == [1, 1], story(run)
    log = (run.folder.path / "supervisor.log").read_text()
    assert "has lost its machines and waits in the queue" in log, log
    assert [name for name in plane.jobs if run.id in name] == [job.name]


@pytest.mark.parametrize(
    ("pattern", "status", "code", "message", "kind", "said"),
    [
        ("PUT .*/jobs/", 429, "TooManyRequests", "Slow", Unreachable, "too many requests"),
        (
            "PUT .*/jobs/",
            503,
            "ServiceUnavailable",
            "Away",
            Unreachable,
            "does not start a job at the moment",
        ),
        (
            "PUT .*/jobs/",
            400,
            "UserError",
            "Not enough quota for STANDARD_NC6S_V3: 12 cores",
            LaunchError,
            "the subscription's quota: Not enough quota for STANDARD_NC6S_V3",
        ),
        (
            "PUT .*/jobs/",
            403,
            "AuthorizationFailed",
            "The client 'ada' does not have authorization to perform action "
            "'Microsoft.MachineLearningServices/workspaces/jobs/write'",
            LaunchError,
            "it is not allowed .*workspaces/jobs/write",
        ),
        ("GET .*/datastores/", 404, "UserError", "no such", LaunchError, "use the datastore"),
        ("PUT .*/code-", 503, "ServerBusy", "busy", Unreachable, "cannot upload a job's code"),
        ("PUT .*/azureml-blobstore/", 503, "ServerBusy", "busy", Unreachable, "ServerBusy"),
    ],
)
def test_a_submission_that_is_refused(
    plane: AzurePlane,
    tmp_path: Path,
    pattern: str,
    status: int,
    code: str,
    message: str,
    kind: type[DistError],
    said: str,
) -> None:
    """Nothing is left of it, or it is tried again."""
    run = made(plane, tmp_path)
    plane.fail(pattern, status, code, message)
    with pytest.raises(kind, match=said):
        AzureMl().submit(run.job, run.folder, 0)
    plane.heal()
    assert not [name for name in plane.jobs if run.folder.id in name]
    if kind is LaunchError:
        assert not [name for name in plane.mail() if run.folder.id in name]


def test_a_run_that_would_outlast_its_signature_is_refused(plane: AzurePlane, tmp_path: Path) -> None:
    """Hosts write by it; those that have an identity need none."""
    run = made(plane, tmp_path)
    job = dataclasses.replace(run.job, timeout_s=86400.0 * 4, max_restarts=1)
    with pytest.raises(LaunchError, match=r"valid for 7 days\. But 2 attempts of --timeout 345,600 s"):
        AzureMl().submit(job, run.folder, 0)
    assert not [name for name in plane.jobs if run.folder.id in name]


@pytest.mark.parametrize(("days", "timeout_s"), [(-1.0, None), (1.0, 86400.0 - 300)])
def test_a_run_that_would_outlast_the_datastore_s_signature_is_refused(
    plane: AzurePlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, timeout_s: float | None
) -> None:
    """One that has expired, and one that has too little time for what hosts need beside --timeout."""
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    signature = urllib.parse.urlencode({"se": f"{until:%Y-%m-%dT%H:%M:%SZ}", "sig": "x"})
    monkeypatch.setattr(plane, "secrets", {"secretsType": "Sas", "sasToken": f"?{signature}"})
    run = made(plane, tmp_path)
    said = "valid for no time any more" if days < 0 else "valid for 1 day. But an attempt of"
    with pytest.raises(LaunchError, match=said):
        AzureMl().submit(dataclasses.replace(run.job, timeout_s=timeout_s), run.folder, 0)
    assert not [name for name in plane.jobs if run.folder.id in name]


def test_one_that_is_asked_for_twice_is_one(plane: AzurePlane, tmp_path: Path) -> None:
    """Also where the answer to the first was lost; and one of which nobody knows the end is found."""
    run = made(plane, tmp_path)
    with plane.hold("PUT .*/jobs/") as reached:
        lost = threading.Thread(target=AzureMl().submit, args=(run.job, run.folder, 0), daemon=True)
        lost.start()
        until(reached.is_set, "the request")
        found = AzureMl().find(run.job, run.folder, 0)
        assert found is not None
        name = found["command_job"]["name"]
        assert AzureMl().submit(run.job, run.folder, 0)["command_job"]["name"] == name
    lost.join(60)
    assert [each for each in plane.jobs if run.folder.id in each] == [name]
    plane.expire()
    with pytest.raises(Unreachable, match="Azure knows no such user now"):
        AzureMl().find(run.job, run.folder, 0)
    plane.sign_in()
    backend = AzureMl()
    handle = backend.find(run.job, run.folder, 0)
    assert handle is not None
    plane.expire()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform_job, "_TRIES_S", 0.5)
        refused = str(backend.release(run.job, run.folder, handle))
    assert f"job {name} may still be running and cost money: cannot cancel the job" in refused
    where = f"--workspace-name {plane.workspace} --resource-group {plane.group}"
    assert f"az ml job cancel --name {name} {where} --subscription {plane.subscription}; see" in refused
    plane.sign_in()
    told = backend.release(run.job, run.folder, handle)
    assert told is not None
    assert f"job {name}" in told
    until(lambda: not plane.active(), "the job's end")
    assert plane.jobs[name].status == "Canceled"
    assert AzureMl().find(run.job, run.folder, 0) is None


def test_a_key_that_was_changed_is_asked_for_again(
    plane: AzurePlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a datastore that cannot be asked for is the store's trouble, of which the mailbox tells."""
    access = MailboxAccess(
        MlWorkspace(WorkspaceId(plane.subscription, plane.group, plane.workspace)), "workspaceblobstore"
    )
    store = access.store()
    plane.secrets = {**plane.secrets, "key": "bm9uZQ=="}
    try:
        with pytest.raises(StoreError, match=r"Auth(orization|entication)Fail"):
            store.names("a/")
    finally:
        plane.secrets = {**plane.secrets, "key": KEY}
    assert store.names("a/") == []
    plane.expire()
    monkeypatch.setattr("jupyter_dist.hosts.links.mailbox._CLEAR_S", 0.5)
    mailbox = Mailbox(
        "azureml://x", made(plane, tmp_path).folder, store=MailboxAccess(access.workspace, "x").store
    )
    assert "stays there" in _said_by(mailbox.close)


def _said_by(do: Callable[[], None]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        do()
    return said.getvalue()


def test_nobody_is_asked_while_the_workspace_wants_silence(
    plane: AzurePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("jupyter_dist.backends.azureml.workspace.time", clock)
    workspace = MlWorkspace(WorkspaceId(plane.subscription, plane.group, plane.workspace))
    asked = f"GET {plane.id}"
    plane.fail(f"^{asked}$", 429, "TooManyRequests", times=1, headers={"retry-after": "2"})
    for said in ("too many requests", "wants 2 s of silence"):
        with pytest.raises(Unreachable, match=said):
            workspace.other("GET", "", "look")
    assert plane.front.requests.count(asked) == 1
    now[0] += 2.1
    assert workspace.other("GET", "", "look")["name"] == plane.workspace


@pytest.mark.parametrize("kind", ["as a host", "as the driver"])
def test_a_store(kind: str, plane: AzurePlane) -> None:
    """Azure's own emulator of blobs, as both sides reach it."""
    from azure.storage.blob import generate_container_sas

    plane.container("mail")
    url = f"{plane.url}/{ACCOUNT}/mail/a prefix/{kind}"

    def signature(permission: str) -> dict[str, str]:
        until = "2040-01-01T00:00:00Z"
        made = generate_container_sas(ACCOUNT, "mail", account_key=KEY, permission=permission, expiry=until)
        return {"JUPYTER_DIST_MAILBOX_SAS": made}

    store: Store | BulkStore = BlobStore(url, signature("rcwdl"))
    if kind == "as the driver":
        store = ContainerStore(url, lambda: {"account_name": ACCOUNT, "account_key": KEY})
    keeps_its_promise(store)
    plane.fail(f"PUT /{ACCOUNT}/mail", 503, "ServerBusy")
    with pytest.raises(StoreError, match="ServerBusy"):
        store.put("run/up/9", b"")
    plane.heal()
    if kind == "as a host":
        with pytest.raises(DeniedError, match=r"may not PUT .*Storage Blob Data Contributor"):
            BlobStore(url, signature("rl")).put("run/up/9", b"")
        with pytest.raises(DeniedError, match="no identity"):
            BlobStore(url, {}).put("run/up/9", b"")
        plane.fail("GET", 404, "ContainerNotFound")
        with pytest.raises(StoreError, match="404 ContainerNotFound"):
            store.get("run/up/9")


def test_a_parameter_server_in_an_environment_from_packages(plane: AzurePlane, runs: Runs) -> None:
    """The service starts a process of its own for the server, and has the environment before the job."""
    cell = "import json, os\njson.loads(os.environ['TF_CONFIG'])['task']['type'], os.uname().nodename"
    given: dict[str, Any] = {
        "distribution": "tensorflow",
        "ps": 1,
        "environment": None,
        "pip": "torch==2.8.0",
    }
    run = runs.finish(cell, np=2, instance_count=2, **given)
    job = job_of(plane, run)
    assert run.state is State.SUCCEEDED, story(run) + str(job.lines)
    assert run.results[0] == ("worker", "node-a")
    counts = {"workerCount": 1, "parameterServerCount": 1}
    assert job.body["distribution"] == {"distributionType": "TensorFlow", **counts}
    (path,) = [path for path in plane.bodies if path.startswith("environments/")]
    assert job.body["environmentId"].endswith(f"/{path}")
    assert "  - torch==2.8.0\n" in plane.bodies[path]["properties"]["condaFile"]
