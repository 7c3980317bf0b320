"""The backend `kubernetes` without a cluster: what it asks for, and what it makes of answers."""

from __future__ import annotations

import dataclasses
import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import backends
from jupyter_dist.backends.kubernetes import api_server as cluster_module
from jupyter_dist.backends.kubernetes.allocation import PodAllocation, new_handle
from jupyter_dist.backends.kubernetes.api_server import Cluster, Refusal
from jupyter_dist.backends.kubernetes.backend import Kubernetes
from jupyter_dist.backends.kubernetes.manifests import job_object
from jupyter_dist.backends.kubernetes.options import KubernetesOptions
from jupyter_dist.backends.kubernetes.pod_watch import PodWatch
from jupyter_dist.errors import InputError, LaunchError, Unreachable
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job
from jupyter_dist.plan import run_plan

pytest.importorskip("kubernetes")

ELASTIC: dict[str, Any] = {"kind": "pytorchjob", "min_np": 2}

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


class Stub:
    """An API server that gives these answers, in turn, by the method and the path's last word."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.answers: dict[str, list[Answer]] = {}
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _answer(self) -> None:
                path, _, query = self.path.partition("?")
                key = f"{self.command} {path.rpartition('/')[2]}" + (" watch" if "watch=1" in query else "")
                size = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(size)
                stub.asked.append((key, self.path, self.headers.get("Authorization")))
                given = stub.answers.get(key) or [(404, {"message": f"nothing at {key}"})]
                status, body = (given.pop(0) if len(given) > 1 else given[0])[:2]
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def kubeconfig(path: Path, url: str, user: dict[str, Any], namespace: str = "team") -> None:
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
    }
    path.write_text(json.dumps(told))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    server = Stub()
    kubeconfig(tmp_path / "kubeconfig", server.url, {"token": "secret"})
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield server
    server.close()


def asked_job(np: int = 8, **options: Any) -> Job:
    given = {"backend": "kubernetes", "np": np, **options}
    plan = run_plan.make_plan(given, spelled_as_flags=True, cluster=False)
    return Job(
        id="20260101-120000-abcd",
        backend="kubernetes",
        world_size=plan.world_size,
        created=0.0,
        cwd="/",
        python=sys.executable,
        source="",
        options=plan.options.model_dump(mode="json"),
    )


@pytest.mark.parametrize(("grace_s", "told"), [(None, None), (2.0, 30), (120.5, 136)])
def test_a_pod_that_the_cluster_removes_leaves_its_ranks_their_time(
    grace_s: float | None, told: int | None
) -> None:
    job = dataclasses.replace(asked_job(), stop_grace_s=grace_s)
    assert job_object(job, 0)["spec"]["template"]["spec"].get("terminationGracePeriodSeconds") == told


def test_an_mpijob_asks_for_workers_and_for_a_launcher_that_computes_nothing() -> None:
    spec = job_object(asked_job(3, kind="mpijob", processes_per_host=2, gpus_per_worker=1), 0)["spec"]
    assert (spec["slotsPerWorker"], spec["mpiImplementation"]) == (2, "OpenMPI")
    assert spec["launcherCreationPolicy"] == "WaitForWorkersReady"
    replicas = spec["mpiReplicaSpecs"]
    assert {name: told["replicas"] for name, told in replicas.items()} == {"Worker": 2, "Launcher": 1}
    worker, launcher = (replicas[name]["template"]["spec"]["containers"][0] for name in replicas)
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert launcher["resources"] == {}
    assert "sshd" in worker["command"][2]
    assert "sshd" not in launcher["command"][2]
    assert launcher["command"][-2:] == ["/jupyter-dist/lent", "3"]
    assert {"name": "JUPYTER_DIST_LENT", "value": "/jupyter-dist/lent"} in worker["env"]


def test_a_job_has_as_many_pods_as_its_ranks_need(tmp_path: Path) -> None:
    template = tmp_path / "pod.yaml"
    template.write_text(
        "kind: Pod\nmetadata: {annotations: {sidecar: 'no'}}\n"
        "spec:\n  imagePullSecrets: [{name: registry}]\n"
        "  containers: [{name: train, image: mine:1, env: [{name: A, value: b}]}]\n"
    )
    job = job_object(
        asked_job(
            processes_per_host=4,
            gpus_per_worker=1,
            cpus_per_worker=2.5,
            memory="8Gi",
            node_selector={"zone": "a"},
            toleration="gpu=yes:NoSchedule",
            pvc="data:/data:ro",
            shm_size="2Gi",
            queue="line",
            priority_class="low",
            service_account="trainer",
            pod_template=str(template),
        ),
        attempt=1,
    )
    assert job["metadata"]["name"] == "jd-20260101-120000-abcd-1"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "line"
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert spec["suspend"] is True
    pod, ranks = spec["template"]["spec"], spec["template"]["spec"]["containers"][0]
    assert spec["template"]["metadata"]["annotations"]["sidecar"] == "no"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert (ranks["name"], ranks["image"], ranks["env"][0]) == (
        "train",
        "mine:1",
        {"name": "A", "value": "b"},
    )
    assert ranks["resources"] == {
        "requests": {"cpu": "10", "memory": str(32 << 30)},
        "limits": {"memory": str(32 << 30), "nvidia.com/gpu": "4"},
    }
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"zone": "a"}, "low")
    assert (pod["serviceAccountName"], pod["restartPolicy"]) == ("trainer", "Never")
    assert pod["tolerations"][0] == {
        "key": "gpu",
        "operator": "Equal",
        "value": "yes",
        "effect": "NoSchedule",
    }
    assert {"name": "pvc-data", "mountPath": "/data", "readOnly": True} in ranks["volumeMounts"]
    assert {"name": "pvc-data", "persistentVolumeClaim": {"claimName": "data"}} in pod["volumes"]
    assert {"name": "jupyter-dist-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in pod[
        "volumes"
    ]


def _checked(make: Callable[..., Job], options: dict[str, Any]) -> None:
    job = make(**{"np": 3, **options})
    Kubernetes().check(job.world_size, job.options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory": "lots"}, "--memory needs an amount such as 8Gi or 500M"),
        ({"pvc": "data"}, "--pvc needs NAME:/path"),
        ({"namespace": "Team"}, "--namespace needs a name as Kubernetes has them"),
        ({"gpus_per_worker": 0.5}, "--gpus-per-worker 0.5 --processes-per-host 2"),
        ({"kind": "pod"}, "--kind needs"),
        ({"remote_dir": "~/x"}, "--remote-dir needs a path that begins with /"),
        ({"toleration": "a b"}, "--toleration needs KEY"),
        ({"pod_template": "/nowhere.yaml"}, "--pod-template: '/nowhere.yaml' cannot be read"),
        ({"np": 2, "ps": 2}, "leaves no rank for a worker"),
        ({**ELASTIC, "min_np": 4}, "--min-np 4 is more than -np 3"),
        ({**ELASTIC, "max_np": 2}, "--max-np 2 is less than -np 3"),
        ({"min_np": 2}, "work only with --kind pytorchjob, because the pods of --kind job cannot change"),
        ({**ELASTIC, "chief": True}, "-np cannot be combined with --chief. Ranks of an elastic run have no"),
        ({"kind": "pytorchjob", "reset_limit": 1}, "--reset-limit works only with --min-np or --max-np"),
    ],
)
def test_bad_input_is_one_clear_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        _checked(asked_job, options)
    assert said in str(raised.value)


def test_an_elastic_pytorchjob_asks_for_all_pods_that_there_may_be_and_no_master() -> None:
    """The operator makes no more by itself, and has no use for a job whose master is gone."""
    spec = job_object(asked_job(processes_per_host=4, **ELASTIC, max_np=12), 0)["spec"]
    assert spec["elasticPolicy"] == {"minReplicas": 1, "maxReplicas": 3}
    assert spec["runPolicy"]["schedulingPolicy"] == {"minAvailable": 2}
    (worker,) = spec["pytorchReplicaSpecs"].values()
    assert (worker["replicas"], worker["restartPolicy"]) == (3, "ExitCode")


def test_a_rank_computes_with_the_threads_that_it_has_asked_for() -> None:
    """Not with all that its node has: a pod sees all of them."""
    assert KubernetesOptions(cpus_per_worker=2.5).wanted().threads == 3
    assert KubernetesOptions(cpus_per_worker=0).wanted().threads is None


def test_a_dry_run_shows_both_objects_and_asks_nobody(stub: Stub) -> None:
    shown = json.loads(json.dumps(Kubernetes().request(asked_job(2))))
    assert (shown["job"]["kind"], shown["service"]["kind"]) == ("Job", "Service")
    assert [rank["env"]["RANK"] for rank in shown["ranks"]] == ["0", "1"]
    assert stub.asked == []


def test_a_busy_api_server_is_asked_again_later(stub: Stub) -> None:
    """429 may pass, as 5xx do: the supervisor makes the call again. What is refused is not."""
    stub.answers["GET pods"] = [(429, {"message": "too many requests"}), (503, b"down"), (200, {"items": []})]
    cluster = Cluster()
    for said in ("429 (too many requests)", "503 (down)"):
        with pytest.raises(Unreachable) as raised:
            cluster.ask("GET", "/api/v1/namespaces/team/pods")
        assert said in str(raised.value)
    assert cluster.ask("GET", "/api/v1/namespaces/team/pods") == {"items": []}
    stub.answers["GET pods"] = [(403, {"reason": "Forbidden", "message": "you may not"})]
    with pytest.raises(Refusal):
        cluster.ask("GET", "/api/v1/namespaces/team/pods")
    stub.close()
    with pytest.raises(Unreachable, match="does not answer"):
        Cluster().ask("GET", "/version")


def test_a_token_that_is_no_longer_taken_is_asked_for_anew(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exec plugin, such as those of the clouds, gives another one each time."""
    plugin = tmp_path / "plugin"
    program = tmp_path / "plugin.py"
    plugin.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}"\n')
    program.write_text(
        f"import json, pathlib\ncount = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = len(count.read_text()) + 1 if count.exists() else 1\ncount.write_text('x' * number)\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f'token-{number}'}}))\n"
    )
    plugin.chmod(0o700)
    how = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    kubeconfig(tmp_path / "kubeconfig", stub.url, {"exec": how})
    stub.answers["GET version"] = [(200, {}), (401, {"message": "Unauthorized"}), (200, {"gitVersion": "v1"})]
    cluster = Cluster()
    cluster.ask("GET", "/version")
    assert cluster.ask("GET", "/version") == {"gitVersion": "v1"}
    assert [token for _, _, token in stub.asked] == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


def test_in_a_pod_it_is_the_pods_own_account(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "ca.crt").write_text("certificate")
    (tmp_path / "namespace").write_text("notebooks\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(cluster_module, "_ACCOUNT", tmp_path)
    monkeypatch.setattr(cluster_module, "_pool", lambda settings: None)
    cluster = Cluster()
    assert (cluster.namespace, cluster.url) == ("notebooks", "https://10.0.0.1:443")
    assert cluster._credentials()["Authorization"].lower() == "bearer of-the-pod"


def test_no_way_to_a_cluster_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(LaunchError, match="KUBECONFIG"):
        _ = Cluster().namespace
    kubeconfig(tmp_path / "none", "http://127.0.0.1:1", {})
    with pytest.raises(LaunchError, match="the context 'other'"):
        _ = Cluster("other").namespace
    assert "does not answer" in str(Kubernetes().detect()["no_site"])


def test_a_context_that_is_not_there_is_refused_before_anything_starts(stub: Stub) -> None:
    with pytest.raises(InputError, match=r"--context there: '.*kubeconfig' has here"):
        _checked(asked_job, {"context": "there"})
    _checked(asked_job, {"context": "here"})
    assert stub.asked == []


def test_a_submission_that_was_cut_off_is_gone_on_with(stub: Stub, tmp_path: Path) -> None:
    """The Job is there (409): its service is made, and nothing twice."""
    made = {"metadata": {"uid": "u1", "name": "jd-x"}}
    stub.answers["POST jobs"] = [(409, {"reason": "AlreadyExists", "message": "it exists"})]
    stub.answers["GET jd-20260101-120000-abcd"] = [(200, made)]
    stub.answers["POST services"] = [(201, {})]
    stub.answers["GET pods"] = [(200, {"metadata": {"resourceVersion": "1"}, "items": []})]
    job = asked_job(2)
    room = PodAllocation(new_handle(job, 0), job, RunFolder(tmp_path))
    room.ask()
    room.leave()
    keys = [key for key, _, _ in stub.asked if "pods" not in key]
    assert keys == ["POST jobs", "GET jd-20260101-120000-abcd", "POST services"]


def test_a_version_that_is_too_old_has_the_pods_listed_anew(stub: Stub, wait_for: Callable[..., Any]) -> None:
    """410, as an event of a watch, and as the answer to one."""

    def listed(version: int, *uids: str) -> Answer:
        items = [{"metadata": {"uid": uid, "name": uid}} for uid in uids]
        return 200, {"metadata": {"resourceVersion": str(version)}, "items": items}

    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    stub.answers["GET pods"] = [listed(1, "a"), listed(2, "a", "b"), listed(3, "c")]
    changed = {"type": "ADDED", "object": {"metadata": {"uid": "d", "name": "d"}}}
    stub.answers["GET pods watch"] = [
        (200, json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"),
        (410, gone),
        (200, json.dumps(changed).encode() + b"\n"),
    ]
    watch = PodWatch(Cluster(), "jupyter-dist/run=run,jupyter-dist/attempt=0")
    wait_for(lambda: set(watch.pods or ()) == {"c", "d"}, "what the third list and a change tell")
    watch.close()
    versions = [path.split("resourceVersion=")[1][0] for key, path, _ in stub.asked if key.endswith("watch")]
    assert versions[:3] == ["1", "2", "3"]


def test_its_options_are_declared_without_its_client() -> None:
    assert backends.declared("kubernetes").options is KubernetesOptions


def test_the_name_of_a_run_names_its_objects(stub: Stub, tmp_path: Path) -> None:
    """Exactly, where it can be one. Another's object of that name is not taken for its own, nor deleted."""
    plan = run_plan.make_plan({"backend": "kubernetes", "name": "mnist", "np": 1})
    job = asked_job(**plan.options.model_dump(mode="json"))
    assert job_object(job, 0)["metadata"]["name"] == "mnist"
    assert job_object(job, 1)["metadata"]["name"] == "mnist-1"
    trial = dataclasses.replace(job, trial={"of": "x", "number": 3})
    assert job_object(trial, 0)["metadata"]["name"] == "mnist-t3"
    for name in ("My run", "x" * 46):
        free = run_plan.make_plan({"backend": "kubernetes", "name": name, "np": 1})
        assert free.options.model_dump()["job_name"] is None
    theirs = {"metadata": {"name": "mnist", "uid": "u", "labels": {"app": "theirs"}}}
    stub.answers = {"POST jobs": [(409, {"message": "exists"})], "GET mnist": [(200, theirs)]}
    allocation = PodAllocation(new_handle(job, 0), job, RunFolder(tmp_path))
    assert not allocation.asked()
    with pytest.raises(LaunchError, match=r"already has a Job 'mnist'\. Nothing was started\. Choose"):
        allocation.ask()
    allocation.free()
    assert [key for key, *_ in stub.asked if key.startswith("DELETE")] == []
    ours = {"metadata": {**theirs["metadata"], "labels": {"jupyter-dist/run": job.id}}}
    stub.answers |= {"GET mnist": [(200, ours)], "DELETE mnist": [(200, {})]}
    assert allocation.asked()
    allocation.free()
    assert [key for key, *_ in stub.asked if key.startswith("DELETE")] == ["DELETE mnist"]


@pytest.mark.parametrize("kind", ["pytorchjob", "tfjob", "mpijob"])
def test_the_restart_policy_is_in_the_object_of_the_operator(kind: str) -> None:
    (specs,) = [
        value
        for key, value in job_object(asked_job(2, kind=kind, restart_policy="OnFailure"), 0)["spec"].items()
        if key.endswith("ReplicaSpecs")
    ]
    assert {each["restartPolicy"] for each in specs.values()} == {"OnFailure"}
    given = {"backend": "kubernetes", "np": 2, "restart_policy": "OnFailure"}
    with pytest.raises(InputError, match="--restart-policy works only with --kind pytorchjob"):
        run_plan.make_plan(given)
    with pytest.raises(InputError, match="need --restart-policy ExitCode"):
        run_plan.make_plan({**given, **ELASTIC})
