"""A real Kubernetes for tests: etcd, API server, scheduler, controllers, a name server, and two nodes.

    with shared_plane(tmp_path_factory) as plane:      # the one of all tests in the group IN_SHARED
        with plane.as_user(): ...                      # who may do what docs/kubernetes.md says, no more
        plane.api.get("/api/v1/nodes")                 # as an administrator
        plane.end_node("node-a"); plane.mend()         # nodes, and the API server, come and go

It needs root. The control plane is Kubernetes' own (binaries.py). A pod is a process in namespaces of its
own (pod.py), over a copy of this machine's files, whatever its image is called: `python3` there is the Python
that runs the tests.

Others may run theirs beside it: the ports, the network (198.18.N.0/24) and the names of namespaces are its
own, and what a killed test left is taken away by the next one's start, as with hosts (tests/rigs/hosts.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port
from tests.rigs.hosts import clear_slot, take_slot
from tests.rigs.kubernetes.api import Api, Refusal
from tests.rigs.kubernetes.binaries import binaries, lacking

__all__ = [
    "IN_SHARED",
    "NAMESPACE",
    "Plane",
    "end_shared",
    "mounted_folder",
    "rules",
    "shared_folder",
    "shared_plane",
]

IN_SHARED = "kubernetes"
"""The group (of pytest-xdist) of the tests that use the shared plane: one process runs them all."""
NAMESPACE = "team"
_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parents[2]
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(_REPOSITORY)}
_CONTROLLERS = (
    "job,garbagecollector,namespace,endpoint,nodelifecycle,podgc,ttl-after-finished,resourcequota,disruption"
)


class Plane:
    """One Kubernetes; a context manager. `folder` gets its logs and its data."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.folder = folder
        self.nodes = [f"node-{'abcdefgh'[number]}" for number in range(nodes)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock: Any = None

    def __enter__(self) -> Plane:
        self._programs = binaries()
        self._slot, self._lock = take_slot()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def gateway(self) -> str:
        return f"198.18.{self._slot}.1"

    def close(self) -> None:
        """End all of it, by its processes' ids. Repeatable."""
        for process in reversed(self._running.values()):
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running = {}
        if self._lock is not None:
            clear_slot(self._slot)
            self._lock.close()
            self._lock = None

    def _start(self) -> None:
        bridge = f"jd{self._slot}"
        # An address of its own: else it has the lowest of its pods', another one when that pod goes, and the
        # others reach nobody here until they have noticed, which takes them half a minute.
        commands = (
            f"link add {bridge} address 02:6a:64:00:00:{self._slot:02x} type bridge",
            f"addr add {self.gateway}/24 dev {bridge}",
            f"link set {bridge} up",
        )
        subprocess.run(["ip", "-batch", "-"], input="\n".join(commands) + "\n", text=True, check=True)
        self._token, self.user_token = secrets.token_hex(16), secrets.token_hex(16)
        tokens = f'{self._token},admin,admin,"system:masters"\n{self.user_token},someone,someone\n'
        (self.folder / "tokens.csv").write_text(tokens)
        key = self.folder / "accounts.key"
        argv = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", str(key)]
        subprocess.run(argv, check=True)
        self._etcd_port, self._api_port = take_port(), take_port()
        self._start_etcd()
        self.start_api()
        self._write_kubeconfigs()
        admin = f"--kubeconfig={self.folder / 'admin.yaml'}"
        common = [admin, "--leader-elect=false", "--port=0", "--secure-port=0"]
        self._run("scheduler", [str(self._programs / "kube-scheduler"), *common])
        self._run(
            "controllers",
            [
                str(self._programs / "kube-controller-manager"),
                *common,
                "--kube-api-content-type=application/json",
                f"--controllers={_CONTROLLERS}",
                "--feature-gates=TTLAfterFinished=true",
                "--node-monitor-period=1s",
                "--node-monitor-grace-period=4s",
            ],
        )
        at = [self.url, self._token, str(self.certificate), self.gateway]
        self._run("names", [sys.executable, str(_HERE / "name_server.py"), *at], _ENVIRONMENT)
        self._run("kubeflow", [sys.executable, str(_HERE / "kubeflow_stand_in.py"), *at[:3]], _ENVIRONMENT)
        self.mend()
        self.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    @property
    def certificate(self) -> Path:
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "someone.yaml"

    @property
    def url(self) -> str:
        """Of the API server, here and in pods."""
        return f"https://{self.gateway}:{self._api_port}"

    def _start_etcd(self) -> None:
        at, among = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{take_port()}"
        argv = [
            *(str(self._programs / "etcd"), "--data-dir", str(self.folder / "etcd")),
            *("--listen-client-urls", at, "--advertise-client-urls", at),
            *("--listen-peer-urls", among, "--initial-advertise-peer-urls", among),
            *("--initial-cluster", f"default={among}"),
        ]
        self._run("etcd", argv)

    def start_api(self) -> None:
        """Start the API server, at its first port, and wait until it is ready."""
        key = self.folder / "accounts.key"
        argv = [
            str(self._programs / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--cert-dir={self.certificate.parent}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.gateway}",
            f"--secure-port={self._api_port}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            # indexed.patch knows no protobuf.
            "--storage-media-type=application/json",
        ]
        self._run("api", argv)
        self._until(self._answers, "the API server")

    def _answers(self) -> bool:
        if not self.certificate.exists():
            return False
        self.api = Api(self.url, self._token, self.certificate)
        try:
            return bool(self.api.get("/api/v1/namespaces/default"))
        except Exception:
            return False

    def account_token(self, bound_to: str) -> str:
        """A token of the service account `someone`, which is worth nothing once that Secret is gone."""
        core = f"/api/v1/namespaces/{NAMESPACE}"
        with contextlib.suppress(Refusal):
            self.api.post(f"{core}/serviceaccounts", {"metadata": {"name": "someone"}})
        secret = self.api.post(f"{core}/secrets", {"metadata": {"name": bound_to}})
        bound = {"kind": "Secret", "apiVersion": "v1", "name": bound_to, "uid": secret["metadata"]["uid"]}
        asked = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
        return str(self.api.post(f"{core}/serviceaccounts/someone/token", asked)["status"]["token"])

    def kill_api(self) -> None:
        """SIGKILL: connections break at once. `start_api` brings it back."""
        process = self._running.pop("api")
        process.kill()
        process.wait()

    @contextlib.contextmanager
    def api_hangs(self) -> Iterator[None]:
        """Meanwhile it accepts connections and says nothing."""
        pid = self._running["api"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def mend(self) -> None:
        """Have the API server and all nodes again, after some were ended."""
        if "api" not in self._running:
            self.start_api()
        for name in self.nodes:
            if name not in self._running:
                self._start_node(name)
        self._until(lambda: len(self._ready()) == len(self.nodes), "the nodes")

    def _ready(self) -> list[str]:
        items = self.api.get("/api/v1/nodes")["items"]
        return [node["metadata"]["name"] for node in items if not node["spec"].get("taints")]

    def _start_node(self, name: str) -> None:
        hidden = {tempfile.gettempdir(), str(self.folder.parent), str(self.folder.parents[1])} - {"/tmp"}
        env = {
            **_ENVIRONMENT,
            "KUBE_URL": self.url,
            "KUBE_TOKEN": self._token,
            "KUBE_CA": str(self.certificate),
            "KUBE_KEY": str(self.certificate.with_suffix(".key")),
            "KUBE_SLOT": str(self._slot),
            "KUBE_FOLDER": str(self.folder / "pods"),
            "KUBE_PATH": f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "KUBE_HIDDEN": json.dumps(sorted(hidden)),
            "KUBE_READ": json.dumps([str(_REPOSITORY), sys.prefix, sys.base_prefix]),
        }
        argv = [
            sys.executable,
            str(_HERE / "kubelet.py"),
            name,
            str(self.nodes.index(name)),
            str(take_port()),
        ]
        self._run(name, argv, env)

    def end_node(self, name: str) -> None:
        """Have a node vanish with all that runs on it; `mend` brings it back, empty."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def _run(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd="/",
                start_new_session=True,
            )

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = Deadline()
        while not holds():
            ended = [name for name, process in self._running.items() if process.poll() is not None]
            if ended or deadline.passed():
                logs = {name: self._end_of(name) for name in ended or self._running}
                pytest.fail(f"{what} did not come up; ended: {ended}\n{logs}")
            time.sleep(0.05)

    def _end_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-1500:]

    def _write_kubeconfigs(self) -> None:
        for name, token in (("admin", self._token), ("someone", self.user_token)):
            cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
            context = {"cluster": "test", "user": name, "namespace": NAMESPACE}
            told = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": name, "user": {"token": token}}],
                "contexts": [{"name": "test", "context": context}],
            }
            (self.folder / f"{name}.yaml").write_text(json.dumps(told))

    def grant(self, rules: list[dict[str, Any]], namespace: str = NAMESPACE) -> None:
        """Have the user of `kubeconfig` be allowed this in a namespace, and nothing else there."""
        group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        role = {"metadata": {"name": "training"}, "rules": rules}
        with contextlib.suppress(Refusal):
            self.api.patch(f"{group}/roles/training", role)  # there is no moment without
            return
        self.api.post(f"{group}/roles", role)
        binding = {
            "metadata": {"name": "training"},
            "roleRef": {"kind": "Role", "name": "training", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [
                {"kind": "User", "name": "someone", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "someone", "namespace": namespace},
            ],
        }
        self.api.post(f"{group}/rolebindings", binding)

    @contextlib.contextmanager
    def as_user(self) -> Iterator[None]:
        """Meanwhile this process is that user, who may do what a run needs and nothing else."""
        self.grant(rules())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(self.kubeconfig))
            yield

    def pods(self, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def lives(self, pod: str, pid: int) -> bool:
        """Whether a process of a pod still runs, by the number that it has there."""
        found = next((one for one in self.pods() if one["metadata"]["name"] == pod), None)
        address = None if found is None else found["status"].get("podIP")
        if address is None:
            return False
        space = f"jd{self._slot}-p{address.rpartition('.')[2]}"
        listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
        for here in listed.stdout.split():
            with contextlib.suppress(OSError):
                status = Path("/proc", here, "status").read_text()
                if int(status.split("NSpid:")[1].split("\n")[0].split()[-1]) == pid:
                    return True
        return False


def rules() -> list[dict[str, Any]]:
    """Those of the Role in docs/kubernetes.md."""
    text = (_REPOSITORY / "docs" / "kubernetes.md").read_text()
    for block in text.split("```yaml\n")[1:]:
        for told in yaml.safe_load_all(block.partition("```")[0]):
            if told["kind"] == "Role":
                return list(told["rules"])
    raise LookupError("docs/kubernetes.md has no Role")


@contextlib.contextmanager
def shared_folder() -> Iterator[dict[str, Any]]:
    """The flags of a run that has its mailbox in a folder that the pods see as well, as they see a volume's.
    Below /tmp they see nothing of this machine's."""
    with mounted_folder() as (mail, template):
        yield {"mailbox": str(mail), "pod_template": template}


@contextlib.contextmanager
def mounted_folder() -> Iterator[tuple[Path, str]]:
    """A folder that pods see at the same path as this machine, and the value of --pod-template for it."""
    with tempfile.TemporaryDirectory(prefix="jd-mount-", dir="/var/tmp") as folder:
        mounted = Path(folder, "mounted")
        mounted.mkdir()
        volume = {"name": "mounted", "hostPath": {"path": str(mounted)}}
        mounts = [{"name": "mounted", "mountPath": str(mounted)}]
        spec = {"containers": [{"name": "ranks", "volumeMounts": mounts}], "volumes": [volume]}
        template = Path(folder, "pod.yaml")
        template.write_text(yaml.safe_dump({"kind": "Pod", "spec": spec}))
        yield mounted, str(template)


_shared: list[Plane] = []


@contextlib.contextmanager
def shared_plane(folders: pytest.TempPathFactory) -> Iterator[Plane]:
    """The plane that tests of this process share, for a module of the group IN_SHARED, whole again where a
    test has ended a part of it. conftest.py ends it after the group's last test."""
    why = lacking()
    if why:
        pytest.skip(why)
    if not _shared:
        _shared.append(Plane(folders.mktemp("kubernetes") / "plane").__enter__())
    _shared[0].mend()
    yield _shared[0]


def end_shared() -> None:
    """End the shared plane, where there is one."""
    while _shared:
        plane = _shared.pop()
        plane.close()
        shutil.rmtree(plane.folder / "etcd", ignore_errors=True)  # the logs stay, for whoever looks
