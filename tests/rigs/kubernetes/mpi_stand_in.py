"""A stand-in for Kubeflow's MPI operator: it makes an MPIJob's workers, their list, a key, and a launcher.

The real one is a Go program that is not to be had here. This one was written after what that one makes:
https://github.com/kubeflow/mpi-operator/blob/master/pkg/controller/mpi_job_controller.go. It knows Open MPI
alone, and nothing of suspending, restarts, clean-up, pod groups or a launcher that works as well.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rigs.kubernetes.api import Api, Refusal
from tests.rigs.kubernetes.operating import decide_by, owned_by, set_conditions

__all__ = ["PATH", "make"]

PATH = "/apis/kubeflow.org/v2beta1/mpijobs"
_LABEL = "training.kubeflow.org"
_WITHIN_S = 300.0


def _labels(name: str, role: str) -> dict[str, str]:
    about = {"operator-name": "mpi-operator", "job-name": name, "job-role": role}
    return {f"{_LABEL}/{key}": value for key, value in about.items()}


def _key() -> dict[str, str]:
    """A new pair, as a Secret has it."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", f"{folder}/key"]
        subprocess.run(argv, check=True)
        pair = {"ssh-privatekey": "key", "ssh-publickey": "key.pub"}
        return {
            name: base64.b64encode(Path(folder, file).read_bytes()).decode() for name, file in pair.items()
        }


def _pod(told: Mapping[str, Any], role: str, hostname: str, env: Mapping[str, str]) -> dict[str, Any]:
    """The pod of a replica spec, as the operator completes it."""
    meta, spec = told["metadata"], told["spec"]["mpiReplicaSpecs"][role]
    template: dict[str, Any] = copy.deepcopy(spec["template"])
    pod: dict[str, Any] = template["spec"]
    given: dict[str, Any] = template.setdefault("metadata", {})
    pod |= {"hostname": hostname, "subdomain": meta["name"]}
    pod["restartPolicy"] = spec.get("restartPolicy", "Never")
    container = pod["containers"][0]
    told_env = [{"name": "K_MPI_JOB_ROLE", "value": role.lower()}]
    told_env += [{"name": name, "value": value} for name, value in env.items()]
    container["env"] = [*container.get("env", []), *told_env]
    path = told["spec"].get("sshAuthMountPath", "/root/.ssh")
    files = {"id_rsa": "ssh-privatekey", "id_rsa.pub": "ssh-publickey", "authorized_keys": "ssh-publickey"}
    items = [{"key": key, "path": file} for file, key in files.items()]
    mode = {"defaultMode": 0o600} if path == "/root/.ssh" else {}
    secret = {"secretName": f"{meta['name']}-ssh", "items": items, **mode}
    pod["volumes"] = [*pod.get("volumes", []), {"name": "ssh-auth", "secret": secret}]
    mounts = [*container.get("volumeMounts", []), {"name": "ssh-auth", "mountPath": path}]
    container["volumeMounts"] = mounts
    given["labels"] = {**given.get("labels", {}), **_labels(meta["name"], role.lower())}
    return template


def _launcher(told: Mapping[str, Any]) -> dict[str, Any]:
    name = f"{told['metadata']['name']}-launcher"
    slots = str(told["spec"].get("slotsPerWorker", 1))
    env = {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": slots,
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
    }
    template = _pod(told, "Launcher", name, env)
    items = [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]
    listed = {"name": f"{told['metadata']['name']}-config", "items": items}
    template["spec"]["volumes"].append({"name": "mpi-job-config", "configMap": listed})
    mount = {"name": "mpi-job-config", "mountPath": "/etc/mpi"}
    template["spec"]["containers"][0]["volumeMounts"].append(mount)
    policy = told["spec"].get("runPolicy", {})
    kept = {key: policy[key] for key in ("ttlSecondsAfterFinished", "backoffLimit") if key in policy}
    return {
        "metadata": {"name": name, "labels": {"app": told["metadata"]["name"]}, **owned_by(told)},
        "spec": {**kept, "template": template},
    }


def make(api: Api, told: Mapping[str, Any]) -> None:
    """All parts of one job; returns when its launcher has ended, which decides on the job."""
    meta, spec = told["metadata"], told["spec"]
    name, space, owned = meta["name"], meta["namespace"], owned_by(told)
    core = f"/api/v1/namespaces/{space}"
    count, slots = spec["mpiReplicaSpecs"]["Worker"]["replicas"], spec.get("slotsPerWorker", 1)
    workers = [f"{name}-worker-{index}" for index in range(count)]
    listed = "".join(f"{worker}.{name}.{space}.svc slots={slots}\n" for worker in workers)
    selector = {key: value for key, value in _labels(name, "").items() if not key.endswith("role")}
    about = {"labels": {"app": name}, **owned}
    service = {"spec": {"clusterIP": "None", "selector": selector}}
    parts: list[tuple[str, str, dict[str, Any]]] = [
        ("services", name, service),
        ("configmaps", f"{name}-config", {"data": {"hostfile": listed}}),
        ("secrets", f"{name}-ssh", {"type": "kubernetes.io/ssh-auth", "data": _key()}),
    ]
    for kind, called, part in parts:
        _post(api, f"{core}/{kind}", {**part, "metadata": {"name": called, **about}})
    set_conditions(api, PATH, told, {"type": "Created", "reason": "MPIJobCreated"})
    for index, worker in enumerate(workers):
        pod = _pod(told, "Worker", worker, {})
        pod["metadata"]["labels"][f"{_LABEL}/replica-index"] = str(index)
        _post(api, f"{core}/pods", {**pod, "metadata": {**pod["metadata"], "name": worker, **owned}})
    if spec.get("launcherCreationPolicy") == "WaitForWorkersReady" and not _ready(api, core, workers):
        return
    jobs = f"/apis/batch/v1/namespaces/{space}/jobs"
    _post(api, jobs, _launcher(told))
    decide_by(api, f"{jobs}/{name}-launcher", PATH, told, {"Complete": "Succeeded", "Failed": "Failed"})


def _post(api: Api, path: str, body: Mapping[str, Any]) -> None:
    try:
        api.post(path, body)
    except Refusal as refusal:
        if refusal.status != 409:  # it was made before
            raise


def _ready(api: Api, core: str, workers: list[str]) -> bool:
    """Wait until all are; False where one is not there any more."""
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        with contextlib.suppress(Refusal):
            pods = [api.get(f"{core}/pods/{worker}") for worker in workers]
            conditions = [pod["status"].get("conditions") or [] for pod in pods]
            if all(any(_holds(one, "Ready") for one in each) for each in conditions):
                return True
        time.sleep(0.1)
    return False


def _holds(condition: Mapping[str, str], kind: str) -> bool:
    return condition["type"] == kind and condition["status"] == "True"
