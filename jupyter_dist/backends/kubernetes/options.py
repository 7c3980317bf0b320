"""The options of the backend `kubernetes`."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from ...cluster_form import Form
from ...errors import InputError
from ...hosts.settings import HostSettings
from ...option_fields import SEVERAL, flag, matching
from ..elastic.options import ElasticOptions
from ..elastic.rounds import Elastic
from ..ranks.placement import RankEnvironmentOptions
from ..shared_options.agent import Line, LocalFile, OtherPythonOptions, read_yaml
from ..shared_options.gpus import GpusPerWorker

__all__ = ["KubernetesOptions", "bytes_of"]

_REMOTE_DIR = "/jupyter-dist"
_RUNTIME = "torch-distributed"
_OF_RUNTIME = ("pvc", "node_selector", "toleration", "service_account", "priority_class", "shm_size")
"""Options that a TrainJob leaves to its runtime, like everything in a pod template."""
_OBJECT_NAME = re.compile(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?")
"""A name that leaves room for what operators append to the names of pods and services, which have 63."""
_BUCKET = re.compile(r"s3://[a-z0-9][-a-z0-9.]+(/.*)?")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_PVC = re.compile(r"([a-z0-9][-a-z0-9.]*):(/[^:]*)(:ro)?")
_TOLERATION = re.compile(
    r"([A-Za-z0-9._/-]+)(?:=([A-Za-z0-9._-]*))?(?::(NoSchedule|PreferNoSchedule|NoExecute))?"
)
_UNITS = {
    "": 1.0,
    **{unit: 1e3 ** (i + 1) for i, unit in enumerate("kMGTP")},
    **{f"{unit}i": 1024.0 ** (i + 1) for i, unit in enumerate("KMGTP")},
}


def _quantity(value: str | None) -> str | None:
    if value is not None and not (_QUANTITY.fullmatch(value) and bytes_of(value)):
        raise ValueError(f"needs an amount such as 8Gi or 500M, got {value!r:.100}")
    return value


def _mailbox(value: str | None) -> str | None:
    if value is None or _BUCKET.fullmatch(value):
        return value
    path = value.removeprefix("file://")
    if not os.path.isabs(path):
        raise ValueError(f"needs s3://BUCKET/PREFIX, or a path that begins with /, got {value!r:.100}")
    return f"file://{path}"


def bytes_of(quantity: str) -> int:
    """Return the bytes of an amount of memory."""
    found = _QUANTITY.fullmatch(quantity)
    assert found is not None
    return round(float(found[1]) * _UNITS[found[2] or ""])


Name = Annotated[
    str | None,
    matching(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "a name as Kubernetes has them, of a-z, 0-9 and -"),
]
ObjectName = Annotated[
    str | None, matching(_OBJECT_NAME, "a name of at most 45 a-z, 0-9 and - that begins with a letter")
]
Toleration = matching(_TOLERATION, "KEY, KEY=VALUE or KEY=VALUE:NoSchedule")
Claim = matching(_PVC, "NAME:/path or NAME:/path:ro")
Quantity = Annotated[str | None, AfterValidator(_quantity)]


class KubernetesOptions(OtherPythonOptions, ElasticOptions):
    """Options of the backend `kubernetes`."""

    form: ClassVar[Form] = Form(
        first=("np", "image", "gpus_per_worker", "context", "namespace"),
        places=("context",),
        sections={
            "Pods": "kind runtime processes_per_host cpus_per_worker memory shm_size pod_template",
            "Where": "job_name restart_policy node_selector toleration queue priority_class",
            "Account and volumes": "service_account pvc python other_python mailbox",
        },
    )

    kind: Literal["job", "pytorchjob", "tfjob", "mpijob", "trainjob"] = flag(
        "job",
        "Kind",
        "The kind of job in the cluster. job: an Indexed Job, which needs no operator. The "
        "other kinds need Kubeflow's operators. With mpijob, Horovod and mpi4py use MPI. "
        "Default: job",
    )
    job_name: ObjectName = flag(
        None,
        "Job name",
        "The name of the objects in the cluster (metadata.name). Default: --name, if it is a name as "
        "Kubernetes has them, else jd- and the run's id",
        metavar="NAME",
    )
    restart_policy: Literal["Never", "OnFailure", "ExitCode"] | None = flag(
        None,
        "Restart policy",
        "The restartPolicy of each replica, with --kind pytorchjob, tfjob or mpijob, whose operator restarts "
        "pods. Default: Never, or ExitCode with --min-np",
    )
    runtime: Name = flag(
        _RUNTIME,
        "Runtime",
        "With --kind trainjob: the ClusterTrainingRuntime of Kubeflow's Trainer that defines "
        f"the pods. Default: {_RUNTIME}",
        metavar="NAME",
    )
    context: Line = flag(
        None,
        "Context",
        "The context of your kubeconfig. Default: the current one; inside a pod without a "
        "kubeconfig, the pod's own service account",
        value=("NAME", "the name of a context"),
    )
    namespace: Name = flag(
        None,
        "Namespace",
        "The namespace of the pods. Default: the context's namespace, or the pod's own",
        metavar="NAME",
    )
    image: Line = flag(
        None,
        "Image",
        "The image of the pods. It needs the notebook's version of Python and your "
        f"libraries. Default: python:{sys.version_info[0]}.{sys.version_info[1]}, which has "
        "no libraries",
        value=("IMAGE", "the name of an image"),
    )
    processes_per_host: int = flag(
        1,
        "Ranks per pod",
        "The number of ranks in each pod, as torchrun's --nproc-per-node. Default: 1",
        ge=1,
        metavar="N",
        ranks=True,
    )
    gpus_per_worker: GpusPerWorker = flag(
        0,
        "GPUs per worker",
        "The GPUs that each rank requests (nvidia.com/gpu). Default: 0",
        value=("N", "a whole number of at least 0, or a part such as 0.5"),
    )
    cpus_per_worker: float = flag(
        1,
        "CPUs per worker",
        "The CPUs that each rank requests. It can use more if more are free. Default: 1",
        ge=0,
        metavar="N",
    )
    memory: Quantity = flag(
        None,
        "Memory per worker",
        "The memory of each rank, such as 8Gi. It is reserved, and it is also the limit",
        value=("SIZE", "an amount such as 8Gi or 500M"),
    )
    node_selector: dict[str, str] = flag(
        {}, "Node selector", "Run only on nodes with this label. Repeatable", metavar="LABEL=VALUE"
    )
    toleration: Annotated[tuple[str, ...], SEVERAL, Toleration] = flag(
        (),
        "Tolerations",
        "Run also on nodes with this taint: KEY, KEY=VALUE, KEY=VALUE:NoSchedule. Repeatable",
        value=("TAINT", "KEY, KEY=VALUE or KEY=VALUE:NoSchedule"),
    )
    service_account: Name = flag(
        None,
        "Service account",
        "The service account of the pods. Default: the namespace's default",
        metavar="NAME",
    )
    pvc: Annotated[tuple[str, ...], SEVERAL, Claim] = flag(
        (),
        "Volumes",
        "A PersistentVolumeClaim and its path in the pods: data:/data, or data:/data:ro. Repeatable",
        value=("NAME:/path", "NAME:/path or NAME:/path:ro"),
    )
    shm_size: Quantity = flag(
        None,
        "Shared memory",
        "The size of /dev/shm, which the workers of a DataLoader need. Default: the memory of the pod",
        value=("SIZE", "an amount such as 8Gi or 500M"),
    )
    queue: Name = flag(None, "Queue", "The LocalQueue of Kueue that admits the Job", metavar="NAME")
    priority_class: Name = flag(None, "Priority class", "The PriorityClass of the pods", metavar="NAME")
    pod_template: LocalFile = flag(
        None,
        "Pod template",
        "A YAML file with a Pod. These options override it, and everything else in it is "
        "kept. Its first container runs the ranks",
        value=("FILE", "the path of a YAML file"),
    )
    python: Line = flag(
        None,
        "Python",
        "The Python in the image. Default: the first one of the notebook's version on its PATH",
        value=("PATH", "the path of a Python"),
    )
    mailbox: Annotated[Line, AfterValidator(_mailbox)] = flag(
        None,
        "Mailbox",
        "The mailbox between the pods and the notebook, if exec into pods is not allowed. "
        "Use a folder that both share, such as a volume, or s3://BUCKET/PREFIX. The pods "
        "access S3 with their own account",
        value=("URL", "s3://BUCKET/PREFIX or the path of a folder"),
    )
    remote_dir: Annotated[Line, matching(r"(?s)/.*", "a path that begins with /")] = flag(
        _REMOTE_DIR,
        "Remote folder",
        f"The folder for the run's files in the pods while the run lasts. Default: {_REMOTE_DIR}",
        value=("DIR", "the path of a folder"),
    )

    @classmethod
    def named_by(cls, name: str) -> dict[str, Any]:
        return {"job_name": name} if _OBJECT_NAME.fullmatch(name) else {}

    def agent_settings(self) -> HostSettings:
        return HostSettings(self.remote_dir or _REMOTE_DIR, self.grace, other_python=self.other_python)

    def wanted(self) -> RankEnvironmentOptions:
        """The options for the ranks' environments.

        A pod owns its GPUs. It sees all CPUs of its node, but has requested only some.
        """
        return RankEnvironmentOptions(
            self.gpus_per_worker,
            share_gpus=True,
            ps=self.ps,
            chief=self.chief,
            evaluator=self.evaluator,
            threads=math.ceil(self.cpus_per_worker) or None,
            horovod=self.kind != "mpijob",  # Horovod uses MPI there
        )

    def limits(self, world_size: int) -> Elastic | None:
        """Return the limits of an elastic run, or None. Torch's ranks restart if their number changes."""
        limits = super().limits(world_size)
        return None if limits is None else dataclasses.replace(limits, anew=True)

    def slots(self, world_size: int) -> list[int]:
        """Return how many ranks each pod has."""
        each = self.processes_per_host
        return [min(each, world_size - first) for first in range(0, world_size, each)]

    def most(self, world_size: int) -> list[int]:
        """Return how many ranks each requested pod has. An elastic run begins before all of them run."""
        return self.slots(max(world_size, self.max_np or 0))

    def claims(self) -> list[tuple[str, str, bool]]:
        """The claim, the path and the read-only flag of each volume."""
        found = [_PVC.fullmatch(each) for each in self.pvc]
        return [(one[1], one[2], one[3] is not None) for one in found if one is not None]

    def tolerations(self) -> list[dict[str, Any]]:
        """Return the pod's tolerations. An unresponsive node is tolerated for as long as our agents are."""
        found: list[dict[str, Any]] = []
        for each in self.toleration:
            words = _TOLERATION.fullmatch(each)
            assert words is not None
            how = {"operator": "Exists"} if words[2] is None else {"operator": "Equal", "value": words[2]}
            found.append({"key": words[1], **how, **({"effect": words[3]} if words[3] else {})})
        for taint in ("not-ready", "unreachable"):
            waits = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": round(self.grace)}
            found.append({"key": f"node.kubernetes.io/{taint}", **waits})
        return found

    def template(self) -> dict[str, Any]:
        """Return the user's pod template, as `metadata` and `spec`. Raises InputError."""
        if self.pod_template is None:
            return {}
        found = read_yaml("--pod-template", self.pod_template)
        if isinstance(found, dict) and found.get("kind") == "PodTemplate":
            found = found.get("template")
        spec = found.get("spec") if isinstance(found, dict) else None
        if not isinstance(spec, dict) or not isinstance(spec.get("containers", []), list):
            raise InputError(
                f"--pod-template: {self.pod_template!r} must be a Pod, with metadata and spec. `kubectl run "
                "try --image=python --dry-run=client -o yaml` writes one"
            )
        return {"metadata": found.get("metadata") or {}, "spec": spec}

    @property
    def no_session(self) -> str | None:
        if self.kind not in ("job", "pytorchjob"):
            return f"--session is possible only with --kind job and --kind pytorchjob, not with {self.kind}"
        return super().no_session

    def check_ranks(self, world_size: int) -> None:
        """Raise InputError if the ranks cannot be distributed over the pods."""
        self.check_elastic(world_size)
        if self.is_elastic and self.kind != "pytorchjob":
            raise InputError(
                "--min-np and --max-np work only with --kind pytorchjob, because the pods of --kind "
                f"{self.kind} cannot change. Remove them, or change --kind"
            )
        if self.restart_policy is not None and self.kind not in ("pytorchjob", "tfjob", "mpijob"):
            raise InputError(
                "--restart-policy works only with --kind pytorchjob, tfjob and mpijob, because nothing "
                f"restarts the pods of --kind {self.kind}. Use --max-restarts, or change --kind"
            )
        if self.restart_policy == "ExitCode" and self.kind == "mpijob":
            raise InputError(
                "--restart-policy ExitCode does not work with --kind mpijob. Use OnFailure or Never"
            )
        if self.is_elastic and self.restart_policy not in (None, "ExitCode"):
            raise InputError("--min-np and --max-np need --restart-policy ExitCode. Remove --restart-policy")
        if self.kind == "tfjob" and self.wanted().has_roles and self.processes_per_host > 1:
            raise InputError("--kind tfjob has a pod for each role. Remove --processes-per-host")
        given = [name for name in (*_OF_RUNTIME, "pod_template") if getattr(self, name)]
        if self.kind == "trainjob" and given:
            flag = "--" + given[0].replace("_", "-")
            raise InputError(
                f"{flag} does not work with a TrainJob, because its runtime {self.runtime!r} defines "
                "it. Remove it"
            )
        if self.kind != "trainjob" and self.runtime != _RUNTIME:
            raise InputError("--runtime works only with --kind trainjob. Remove it, or change --kind")
        for slots in set(self.most(world_size)):
            if self.gpus_per_worker * slots % 1:
                total = self.gpus_per_worker * slots
                raise InputError(
                    f"--gpus-per-worker {self.gpus_per_worker:g} makes {total:g} GPUs in a pod with "
                    f"{slots} of the {world_size} ranks, but a pod has whole GPUs. Share more of them, as "
                    "in --gpus-per-worker 0.5 --processes-per-host 2"
                )
