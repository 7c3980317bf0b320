"""Runs on a real Kubernetes where exec into pods is refused: they and we leave each other mail."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyter_dist.agent.mailbox_objects import MOST_BYTES
from jupyter_dist.backends.kubernetes.mailbox import number_of
from jupyter_dist.conformance.kept_ranks import KeptSession
from jupyter_dist.conformance.run_control import Runs, story, wait_until
from jupyter_dist.conformance.target import Target
from jupyter_dist.errors import InputError
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import find_session
from jupyter_dist.showing.run import Run
from jupyter_dist.worker import layout
from tests.rigs.kubernetes.control_plane import (
    IN_SHARED,
    NAMESPACE,
    Plane,
    rules,
    shared_folder,
    shared_plane,
)
from tests.rigs.mailbox.faulty_store import FaultyStore

pytestmark = pytest.mark.xdist_group(IN_SHARED)

LINES = 20_000
PRINT = f"""
import os, time, jupyter_dist as dist
print("up", flush=True)
for number in range({LINES}):
    print("rank", dist.rank(), "line", number)
    if number % 1000 == 999:
        time.sleep(.2)
while not os.path.exists(ENOUGH):
    time.sleep(.1)
"""
KEYS = {
    "env": [
        {"name": "AWS_ACCESS_KEY_ID", "value": "theirs"},
        {"name": "AWS_SECRET_ACCESS_KEY", "value": "secret"},
    ]
}
ACCOUNT = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
RESTARTED = """
import time, jupyter_dist as dist
print("up", flush=True)
if dist.attempt() == 0:
    time.sleep(600)
dist.attempt()
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Its user may not exec."""
    with shared_plane(tmp_path_factory) as plane, plane.as_user():
        plane.grant([rule for rule in rules() if rule["resources"] != ["pods/exec"]])
        yield plane
        plane.grant(rules())


@pytest.fixture
def runs(plane: Plane, tmp_path: Path) -> Iterator[Runs]:
    with shared_folder() as given:
        flags = {"image": "any", "grace": 60, **given}
        target = Target("kubernetes", np=2, flags=flags, startup_s=15.0, lives=plane.lives)
        started = Runs(target, tmp_path / "runs")
        yield started
        started.close()


def with_pod(tmp_path: Path, volumes: Sequence[Any] = (), **container: Any) -> dict[str, Any]:
    """Flags that say how the ranks' container is."""
    template = tmp_path / "pod.yaml"
    spec = {"containers": [{"name": "ranks", **container}], "volumes": list(volumes)}
    template.write_text(yaml.safe_dump({"kind": "Pod", "spec": spec}))
    return {"pod_template": str(template)}


def role(tmp_path: Path) -> dict[str, Any]:
    """A container's part in a role by its service account, as EKS writes it into pods."""
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "token").write_text("of the account")
    environ = {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/trainer",
        "AWS_WEB_IDENTITY_TOKEN_FILE": f"{ACCOUNT}/token",
        "AWS_STS_REGIONAL_ENDPOINTS": "regional",
    }
    return {
        "volumes": [{"name": "account", "hostPath": {"path": str(tmp_path / "account")}}],
        "volumeMounts": [{"name": "account", "mountPath": ACCOUNT}],
        "env": [{"name": name, "value": value} for name, value in environ.items()],
    }


def cleared(plane: Plane, run: Run) -> bool:
    """Whether its supervisor has ended, and nothing of it is left in the cluster."""
    owner = run.status.supervisor
    assert owner is not None
    return not Path("/proc", str(owner.pid)).exists() and not plane.pods() and not secrets_of(plane)


def secrets_of(plane: Plane) -> list[str]:
    items = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"]
    return [one["metadata"]["name"] for one in items if one["metadata"]["name"].startswith("jd-")]


def test_no_line_is_lost_or_doubled_when_the_supervisor_is_killed(
    plane: Plane, runs: Runs, wait_for: Callable[..., Any]
) -> None:
    enough = Path(runs.target.flags["mailbox"], "enough")
    names = {"ENOUGH": str(enough)}
    run = runs.until_up(runs.start(PRINT, names, np=4, processes_per_host=2, name="mailed"))
    (made,) = plane.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")["items"]
    assert made["metadata"]["name"] == "mailed"
    assert secrets_of(plane) == [f"jd-{run.id}"]
    key = (run.folder.path / layout.KEY).read_text()
    jobs = json.dumps([plane.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"), plane.pods()])
    assert key not in jobs
    owner = run.status.supervisor
    assert owner is not None
    os.kill(owner.pid, signal.SIGKILL)
    run = runs.adopt(run.id)
    enough.touch()
    runs.wait(run)
    enough.unlink()
    assert run.status.state is State.SUCCEEDED, story(run)
    for rank in range(4):
        lines = reader.output(run.folder, rank).decode().splitlines()[1:]
        assert lines == [f"rank {rank} line {number}" for number in range(LINES)]
    wait_for(lambda: not plane.pods() and not secrets_of(plane), what="all that was made to be gone")
    folder = Path(runs.target.flags["mailbox"])
    assert {path.parts[-2] for path in folder.rglob("*") if path.is_file()} == {"code"}


def test_a_session_keeps_values_and_its_mail_has_the_sessions_id(plane: Plane, runs: Runs) -> None:
    with runs.here():
        session = KeptSession(runs)
        try:
            size = 3 * MOST_BYTES
            assert session.results("held = [sent]\nlen(sent)", {"sent": os.urandom(size)}) == [size] * 2
            found = find_session(session.name)
            assert found is not None
            there = {path.name for path in Path(runs.target.flags["mailbox"]).iterdir()}
            assert there == {"code", found.about["id"]}
            assert session.results("len(held[0])") == [size] * 2
        finally:
            session.close()
        runs.gone(*session.ranks)


def test_pods_that_replace_others_have_mail_of_their_own(plane: Plane, runs: Runs) -> None:
    run = runs.until_up(runs.start(RESTARTED, max_restarts=1))
    first = str(run.status.ranks[1].host)
    plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{first}")
    wait_until(lambda: run.status.attempt == 1, "the second attempt", run)
    runs.wait(run)
    assert run.status.state is State.SUCCEEDED, story(run)
    assert list(run.results) == [1, 1]


def test_a_bucket_and_its_troubles(
    plane: Plane,
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait_for: Callable[..., Any],
) -> None:
    """The pods have an account of their own there, by keys or by a role; a busy store, or none, is told."""
    with FaultyStore() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{plane.gateway}:{store.port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        for theirs, account in ((r"theirs", KEYS), (r"ASIA\w+", role(tmp_path))):
            store.signers.clear()
            flags = with_pod(tmp_path, **account)
            run = runs.finish("import jupyter_dist as dist\ndist.rank()", mailbox="s3://mail/runs", **flags)
            assert run.status.state is State.SUCCEEDED, story(run)
            assert list(run.results) == [0, 1]
            wait_for(partial(cleared, plane, run), what="the end of its pods and of what it left behind")
            others = store.signers - {"ours"}
            assert others, "nothing came from the pods"
            assert all(re.fullmatch(theirs, one) for one in others), others
        run = runs.finish("1", mailbox="s3://no-such-bucket/runs", **flags)
        assert "--mailbox s3://no-such-bucket/runs: nothing can be left there" in str(run.status.reason)
        wait_for(partial(cleared, plane, run), what="the supervisor to have cleared up")


def test_pods_that_do_not_see_the_folder_say_so(runs: Runs, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    run = runs.finish("1", mailbox=str(hidden), **with_pod(tmp_path))
    assert run.status.state is State.FAILED
    said = str(run.status.reason)
    assert "has ended: Error, exit code 1; its log ends with: no code for this host" in said
    assert f"file://{hidden}: it is not there" in said


def test_what_is_no_mailbox(runs: Runs) -> None:
    with pytest.raises(InputError, match="mailbox needs s3://BUCKET/PREFIX"):
        runs.plan(mailbox="gs://bucket/runs")


def test_a_pods_number() -> None:
    assert number_of("0a1b2c3d-ffff-4000-8000-000000000000") == 0x0A1B2C3DFFFF
