"""The manifests of one attempt: an Indexed Job with its pods' headless service, or a Kubeflow job. Pure.

Kubeflow's operator creates the services of its jobs.
https://kubernetes.io/docs/concepts/workloads/controllers/job/ and
https://kubernetes.io/docs/concepts/services-networking/service/#headless-services
"""

from __future__ import annotations

import copy
import hashlib
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...hosts.bootstrap import courier_program
from ...job import Job
from ...worker.launchers.mpi_slot import LENT
from . import mailbox, mpi_launcher_program, mpi_slot_program, pod_program
from .job_kinds import KINDS
from .options import KubernetesOptions, bytes_of

__all__ = ["ATTEMPT", "RUN", "called", "job_object", "labelled", "replicas", "secret_name", "service_object"]

RUN, ATTEMPT = "jupyter-dist/run", "jupyter-dist/attempt"
_QUEUE = "kueue.x-k8s.io/queue-name"
_JOBSET = "jobset.sigs.k8s.io"
_NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""Istio's proxy would outlive the ranks. Kubeflow's own SDK leaves it out too."""
_KEPT_S = 86400
_AGENT_S = 15
"""Seconds after its end when the cluster deletes a job that nobody deleted."""
_IDLE_S = 120.0
"""Seconds that a pod waits for its first agent: other pods of the run may still be pending."""
# Images call the interpreter python3 or python, and the program runs with any version. The shell stays the
# first process: it sets a handler for SIGTERM sooner than Python could. A pod that is asked to end counts as
# failed, whatever exit code its program has.
_START = (
    'told=; trap "told=143; kill -TERM \\$keeper 2>/dev/null || exit 143" TERM; '
    'for python in "$0" python3 python /opt/conda/bin/python /usr/local/bin/python3; do '
    'if "$python" -I -S -c "" 2>/dev/null; then "$python" -I -S -c "$@" & keeper=$!; '
    "while kill -0 $keeper 2>/dev/null; do wait $keeper; code=$?; done; exit ${told:-$code}; fi; done; "
    'echo "jupyter-dist: this image has no Python" >&2; exit 69'
)
# mpirun connects from the launcher's pod through this sshd. The operator mounts the Secret with its key as a
# folder with rights that sshd rejects. The operator's own images know this.
_SSHD = (
    "mkdir -p /run/sshd; ssh-keygen -A >/dev/null 2>&1; /usr/sbin/sshd -o StrictModes=no || "
    '{ echo "jupyter-dist: this image has no sshd that runs, which mpirun needs" >&2; exit 69; }; '
)
_LENT = "lent"
"""Folder of the mpirun processes that lend their places, beside the runs' folders."""


def called(job: Job, attempt: int) -> str:
    """Return the name of an attempt's objects: the chosen name itself, for the first attempt of a run."""
    chosen = KubernetesOptions(**job.options).job_name
    if chosen is None:
        return secret_name(job, attempt)
    trial = "" if job.trial is None else f"-t{job.trial['number']}"
    return chosen + trial + (f"-{attempt}" if attempt else "")


def secret_name(job: Job, attempt: int) -> str:
    """Return the name of an attempt's Secret. It is unique, because we may not read other people's."""
    return f"jd-{job.id}" + (f"-{attempt}" if attempt else "")


def labelled(job: Job, attempt: int) -> str:
    """Return the label selector of an attempt's pods."""
    if KINDS[KubernetesOptions(**job.options).kind].by_runtime:
        # https://jobset.sigs.k8s.io/docs/concepts/: Kubeflow's Trainer creates one. Initializers are left
        # out.
        return f"{_JOBSET}/jobset-name={called(job, attempt)},{_JOBSET}/replicatedjob-name=node"
    return f"{RUN}={job.id},{ATTEMPT}={attempt}"


def job_object(job: Job, attempt: int) -> dict[str, Any]:
    asked, name = KubernetesOptions(**job.options), called(job, attempt)
    kind = KINDS[asked.kind]
    pods = len(asked.most(job.world_size))
    labels = {RUN: job.id, ATTEMPT: str(attempt), "app.kubernetes.io/managed-by": "jupyter-dist"}
    queue = {} if asked.queue is None else {_QUEUE: asked.queue}
    slots = max(asked.most(job.world_size))
    template = _pod(asked, name, secret_name(job, attempt), labels, slots)
    if job.stop_grace_s is not None:
        # The agent needs some seconds more than the ranks when the cluster itself removes a pod.
        wait_s = math.ceil(job.stop_grace_s) + _AGENT_S
        template["spec"].setdefault("terminationGracePeriodSeconds", max(30, wait_s))
    head = {
        "apiVersion": kind.group,
        "kind": kind.title,
        "metadata": {"name": name, "labels": {**labels, **queue}},
    }
    if kind.by_runtime:
        return {**head, "spec": _trainer(asked, template["spec"]["containers"][0], pods, slots)}
    if kind.is_kubeflows:
        return {**head, "spec": _kubeflows(job, asked, template, slots)}
    return {
        **head,
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            # If one pod fails, its Job must not end the others: their ranks may still report errors.
            "backoffLimit": pods + 6,
            "ttlSecondsAfterFinished": _KEPT_S,
            # Only Kueue resumes a suspended job.
            **({} if asked.queue is None else {"suspend": True}),
            "template": template,
        },
    }


def replicas(asked: KubernetesOptions, world_size: int) -> dict[str, int]:
    """Return the number of pods of each of Kubeflow's types, in the ranks' order. It is empty for a Job."""
    pods = len(asked.most(world_size))
    if asked.is_elastic:
        found = {"Worker": pods}  # the job could not survive the loss of a master
    elif asked.kind == "pytorchjob":
        found = {"Master": 1, "Worker": pods - 1}
    elif asked.kind == "tfjob" and asked.wanted().has_roles:
        found = {"Chief": int(asked.chief), "Worker": 0, "PS": asked.ps, "Evaluator": int(asked.evaluator)}
        found["Worker"] = pods - sum(found.values())
    elif asked.kind == "mpijob":
        found = {"Worker": pods, "Launcher": 1}
    else:
        found = {"Worker": pods} if asked.kind == "tfjob" else {}
    return {name: count for name, count in found.items() if count}


def _kubeflows(job: Job, asked: KubernetesOptions, template: Mapping[str, Any], slots: int) -> dict[str, Any]:
    # jupyter-dist reports failures and deletes the job: until then the other ranks may report errors.
    policy: dict[str, Any] = {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": _KEPT_S}
    if asked.queue is not None:
        policy["suspend"] = True
    # Another pod replaces one that was killed. A pod that ends by itself is not needed any more.
    restarts = asked.restart_policy or ("ExitCode" if asked.is_elastic else "Never")
    of_each: dict[str, Any] = {
        name: {"replicas": count, "restartPolicy": restarts, "template": copy.deepcopy(template)}
        for name, count in replicas(asked, job.world_size).items()
    }
    if asked.kind == "tfjob":
        return {"runPolicy": policy, "tfReplicaSpecs": of_each}
    if asked.kind == "mpijob":
        of_each["Launcher"]["template"]["spec"]["containers"][0] |= _launching(asked, job.world_size)
        return {
            "runPolicy": {**policy, "backoffLimit": 0},
            "mpiImplementation": "OpenMPI",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "slotsPerWorker": slots,
            "mpiReplicaSpecs": of_each,
        }
    found = {"runPolicy": policy, "nprocPerNode": str(slots), "pytorchReplicaSpecs": of_each}
    limits = asked.limits(job.world_size)
    if limits is not None:
        policy["schedulingPolicy"] = {"minAvailable": len(asked.slots(job.world_size))}
        least, most = (len(asked.slots(np)) for np in (limits.min_np, limits.max_np))
        found["elasticPolicy"] = {"minReplicas": least, "maxReplicas": most}
    return found


def _trainer(asked: KubernetesOptions, container: Mapping[str, Any], pods: int, slots: int) -> dict[str, Any]:
    """Return a TrainJob's specification. The runtime defines the rest, such as volumes.

    https://www.kubeflow.org/docs/components/trainer/
    """
    told = {field: container[field] for field in ("image", "command", "env")}
    if asked.image is None:
        del told["image"]
    nodes = {"numNodes": pods, "numProcPerNode": slots, "resourcesPerNode": container["resources"]}
    return {
        "runtimeRef": {"kind": "ClusterTrainingRuntime", "name": asked.runtime},
        "trainer": {**told, **nodes},
        **({} if asked.queue is None else {"suspend": True}),
    }


def _launching(asked: KubernetesOptions, ranks: int) -> dict[str, Any]:
    """Return how the launcher's container differs from the workers': it computes nothing."""
    launcher, place = Path(mpi_launcher_program.__file__), Path(mpi_slot_program.__file__)
    told = [launcher.read_text(), place.read_text(), _lent(asked), str(ranks)]
    return {"command": ["/bin/sh", "-c", _START, asked.python or "python3", *told], "resources": {}}


def _lent(asked: KubernetesOptions) -> str:
    return f"{asked.agent_settings().remote_dir}/{_LENT}"


def service_object(job: Job, attempt: int, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headless service. The cluster deletes it with `owner`, the created Job."""
    name = called(job, attempt)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["metadata"]["uid"]}
    labels = {RUN: job.id, ATTEMPT: str(attempt)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
        },
    }


def _pod(
    asked: KubernetesOptions, name: str, secret: str, labels: Mapping[str, str], slots: int
) -> dict[str, Any]:
    """Return the pod's template. All pods are equal, even one with fewer ranks than the others."""
    template = copy.deepcopy(asked.template())
    meta, spec = template.get("metadata", {}), template.get("spec", {})
    kind = KINDS[asked.kind]
    if not kind.is_kubeflows:  # Kubeflow's operator sets these
        spec = {**spec, "restartPolicy": "Never", "subdomain": name}
    containers = list(spec.get("containers") or [{}])
    containers[0] = _container(asked, secret, containers[0], slots)
    spec["containers"] = containers
    spec["tolerations"] = [*spec.get("tolerations", []), *asked.tolerations()]
    if asked.node_selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **asked.node_selector}
    named = {"serviceAccountName": asked.service_account, "priorityClassName": asked.priority_class}
    spec |= {field: value for field, value in named.items() if value is not None}
    spec["volumes"] = [*spec.get("volumes", []), *_volumes(asked)]
    told = {
        "labels": {**(meta.get("labels") or {}), **labels},
        "annotations": {**_NO_SIDECAR, **(meta.get("annotations") or {})},
    }
    return {"metadata": told, "spec": spec}


def _container(asked: KubernetesOptions, secret: str, given: Mapping[str, Any], slots: int) -> dict[str, Any]:
    own = f"python:{sys.version_info[0]}.{sys.version_info[1]}"
    idle_s = max(asked.grace, _IDLE_S)
    by_mpi = KINDS[asked.kind].by_mpi
    start, program = _START, [Path(pod_program.__file__).read_text(), f"{idle_s:g}"]
    if asked.mailbox is not None:
        start, program = mailbox.NUMBERED + _START, [courier_program()]
    start = _SSHD + start if by_mpi else start
    mail = [] if asked.mailbox is None else mailbox.mail_env(secret)
    fields = {"JUPYTER_DIST_POD_UID": "metadata.uid", "JUPYTER_DIST_ADDRESS": "status.podIP"}
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    lent = [{"name": LENT, "value": _lent(asked)}] if by_mpi else []
    resources: dict[str, Any] = copy.deepcopy(given.get("resources") or {})
    for kind, amounts in _resources(asked, slots).items():
        resources[kind] = {**resources.get(kind, {}), **amounts}
    return {
        **given,
        "name": KINDS[asked.kind].container or given.get("name") or "ranks",
        "image": asked.image or given.get("image") or own,
        "command": ["/bin/sh", "-c", start, asked.python or "python3", *program],
        "args": [],
        "env": [*mail, *given.get("env", []), *env, *lent],
        "resources": resources,
        "volumeMounts": [*given.get("volumeMounts", []), *_mounts(asked, given)],
    }


def _resources(asked: KubernetesOptions, slots: int) -> dict[str, dict[str, str]]:
    requests, limits = {}, {}
    if asked.cpus_per_worker:
        requests["cpu"] = f"{asked.cpus_per_worker * slots:g}"
    if asked.memory is not None:
        requests["memory"] = asked.memory if slots == 1 else str(bytes_of(asked.memory) * slots)
        limits["memory"] = requests["memory"]
    if asked.gpus_per_worker:
        limits["nvidia.com/gpu"] = str(round(asked.gpus_per_worker * slots))
    return {kind: amounts for kind, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _volumes(asked: KubernetesOptions) -> list[dict[str, Any]]:
    shared = {"medium": "Memory", **({} if asked.shm_size is None else {"sizeLimit": asked.shm_size})}
    found: list[dict[str, Any]] = [
        {"name": "jupyter-dist", "emptyDir": {}},
        {"name": "jupyter-dist-shm", "emptyDir": shared},
    ]
    for claim in dict.fromkeys(claim for claim, _, _ in asked.claims()):
        found.append({"name": _volume(claim), "persistentVolumeClaim": {"claimName": claim}})
    return found


def _volume(claim: str) -> str:
    """Return the name of a claim's volume: at most 63 of a-z, 0-9 and -. A claim's name may have more.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names
    """
    name = f"pvc-{claim}"
    if len(name) <= 63 and "." not in name and not name.endswith("-"):
        return name
    return f"pvc-{hashlib.sha256(claim.encode()).hexdigest()[:16]}"


def _mounts(asked: KubernetesOptions, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    there = {mount.get("mountPath") for mount in given.get("volumeMounts", [])}
    found: list[dict[str, Any]] = [
        {"name": "jupyter-dist", "mountPath": asked.agent_settings().remote_dir},
        {"name": "jupyter-dist-shm", "mountPath": "/dev/shm"},
    ]
    for claim, path, reads in asked.claims():
        found.append({"name": _volume(claim), "mountPath": path, **({"readOnly": True} if reads else {})})
    return [mount for mount in found if mount["mountPath"] not in there]
