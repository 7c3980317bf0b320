"""The plane: the machines, the blobs, and the stand-in of Azure Resource Manager."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port
from tests.rigs.hosts import Hosts, missing
from tests.rigs.kept_plane import Faults

from .azurite import ACCOUNT, KEY, azurite, lacking
from .command_run import NODES, CommandRun, Machines
from .endpoint import Fault, Front, Refusal
from .log_blobs import LogBlobs
from .sweep_run import SweepRun

__all__ = ["AzurePlane"]

_AZ = """\
#!/bin/sh
# In place of the command line of Azure, which azure-identity asks for the user's token.
[ -s {token} ] || {{ echo "ERROR: Please run 'az login' to setup account." >&2; exit 1; }}
expires=$(($(date +%s) + 3600))
echo "{{\\"accessToken\\": \\"$(cat {token})\\", \\"expires_on\\": $expires, \\"tenant\\": \\"t\\"}}"
"""


class AzurePlane:
    """A context manager."""

    subscription, group, workspace = "00000000-0000-0000-0000-000000000001", "rg", "ws"
    compute, environment_name = "cpu-cluster", "train:1"

    def __init__(self, folder: Path) -> None:
        if why := missing() or lacking():
            pytest.skip(why)
        self.folder = folder
        self.own_faults = Faults()
        self.jobs: dict[str, CommandRun] = {}
        self.bodies: dict[str, dict[str, Any]] = {}
        """What was put, by the path below the workspace."""
        self.inputs: dict[str, dict[str, bytes]] = {}
        """What lies at a URI: files by name."""
        self.charted: dict[str, list[dict[str, Any]]] = {}
        """What MLflow has of each job."""
        self.for_jobs: dict[str, str] = {}
        """Variables of every job's containers."""
        self.secrets: dict[str, str] = {"secretsType": "AccountKey", "key": KEY}
        self.machines = Machines()
        """All there are: a job takes both, unless a sweep has started it."""
        self.sweeps: dict[str, SweepRun] = {}
        self.signed_for_s = 8 * 3600.0
        """How long the address of a log is good."""
        self.logs_late_s = 0.0
        """How long after a job's end its logs are whole."""
        self._logs: dict[str, LogBlobs] = {}
        self._containers: dict[str, str] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> AzurePlane:
        with contextlib.ExitStack() as stack:
            self.hosts = stack.enter_context(Hosts(self.folder / "hosts", NODES))
            self._blobs = port = take_port()
            argv = [str(azurite()), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
            argv += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
            blobs = subprocess.Popen(argv, cwd=self.folder, stdout=subprocess.DEVNULL)
            stack.callback(blobs.wait)
            stack.callback(blobs.kill)
            self.front = Front(port, self._answer, _signature, self.own_faults)
            stack.callback(self.front.close)
            self.url = f"http://{self.hosts.driver_address}:{self.front.port}"
            self._await(blobs, port)
            self.container("azureml-blobstore")
            tools = self.folder / "bin"
            tools.mkdir()
            (tools / "az").write_text(_AZ.format(token=self.folder / "token"))
            (tools / "az").chmod(0o755)
            self.sign_in()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self.sweeps, *self.jobs]:
            self.cancel(name)
        deadline = Deadline()
        while self.active() and not deadline.passed():
            time.sleep(0.05)
        self._stack.close()

    @staticmethod
    def _await(blobs: subprocess.Popen[bytes], port: int) -> None:
        deadline = Deadline()
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            if blobs.poll() is not None or deadline.passed():
                pytest.fail("Azure's emulator of blobs did not start")
            time.sleep(0.05)

    @property
    def id(self) -> str:
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/"
            f"Microsoft.MachineLearningServices/workspaces/{self.workspace}"
        )

    @contextlib.contextmanager
    def machines_have_an_identity(self) -> Iterator[None]:
        """As a compute cluster has one that somebody has given it."""
        self.for_jobs |= {"MSI_ENDPOINT": f"{self.url}/msi/token", "MSI_SECRET": self.front.secret}
        try:
            yield
        finally:
            self.for_jobs.clear()

    @property
    def config(self) -> dict[str, str]:
        """config.json, as the studio gives it for download."""
        where = {"subscription_id": self.subscription, "resource_group": self.group}
        return {**where, "workspace_name": self.workspace}

    @property
    def flags(self) -> dict[str, Any]:
        """Of a run."""
        where = {"subscription": self.subscription, "resource_group": self.group}
        return {
            **where,
            "workspace": self.workspace,
            "compute": self.compute,
            "environment": self.environment_name,
        }

    def environment(self, path: str) -> dict[str, str]:
        """What clients on this machine need, whose PATH is `path`."""
        return {
            "AZUREML_DEV_URL_MFE": self.url,
            "AZURE_TOKEN_CREDENTIALS": "AzureCliCredential",
            "PATH": f"{self.folder / 'bin'}:{path}",
        }

    def sign_in(self, token: str = "token-of-ada") -> None:
        """As `az login` does; an empty token signs out."""
        (self.folder / "token").write_text(token)
        self.token = token

    def expire(self) -> None:
        """The token that everybody has is good no longer, and there is no other until `sign_in`."""
        (self.folder / "token").write_text("")
        self.token = "another one"

    def lives(self, host: str, pid: int) -> bool:
        """Whether a process still runs on a machine. Our backend calls them node-0 and node-1."""
        own = {f"node-{number}": name for number, name in enumerate(NODES)}
        return any(each.own_pid == pid for each in self.hosts.pids(own.get(host, host)))

    def fail(self, pattern: str, status: int, code: str, message: str = "as wished", **more: Any) -> None:
        """Answer so whatever matches METHOD PATH; see `Fault`."""
        self.front.faults.append(Fault(pattern, status, code, message, **more))

    def heal(self) -> None:
        """Take all faults away."""
        self.front.faults.clear()

    @contextlib.contextmanager
    def hold(self, pattern: str) -> Iterator[threading.Event]:
        """Do what such a request asks for, and have its answer wait; the event tells that there was one."""
        reached, go_on = threading.Event(), threading.Event()
        self.front.held[pattern] = reached, go_on
        try:
            yield reached
        finally:
            del self.front.held[pattern]
            go_on.set()

    def active(self) -> list[CommandRun | SweepRun]:
        known: list[CommandRun | SweepRun] = [*self.sweeps.values(), *self.jobs.values()]
        return [job for job in known if job.active]

    def stuck(self) -> list[str]:
        """The names of jobs that are still active."""
        return [job.name for job in self.active()]

    def ending(self) -> list[str]:
        """The names of active jobs that were told to end."""
        return [job.name for job in self.active() if job.asked.is_set()]

    def cancel(self, name: str) -> None:
        """As somebody does in the studio."""
        job = self._job(name)
        if job.active:
            job.status = "CancelRequested"
            job.asked.set()

    def container(self, name: str) -> Any:
        """A client of a container of blobs, which is made where it is not there. Sees no fault."""
        from azure.core.exceptions import ResourceExistsError
        from azure.storage.blob import ContainerClient

        credential = {"account_name": ACCOUNT, "account_key": KEY}
        found = ContainerClient(f"http://127.0.0.1:{self._blobs}/{ACCOUNT}", name, credential=credential)
        with contextlib.suppress(ResourceExistsError):
            found.create_container()
        return found

    def files(self, address: str) -> dict[str, bytes]:
        """The blobs below an address, by name."""
        container, _, folder = address.removeprefix(f"{self.url}/{ACCOUNT}/").partition("/")
        client = self.container(container)
        names = list(client.list_blob_names(name_starts_with=f"{folder}/"))
        return {name[len(folder) + 1 :]: client.download_blob(name).readall() for name in names}

    def mail(self) -> list[str]:
        """What lies in the mailbox."""
        return list(self.container("azureml-blobstore").list_blob_names(name_starts_with="jupyter-dist/"))

    def _answer(self, method: str, asked: str, token: str, body: Any) -> tuple[int, Any]:
        path, _, query = asked.partition("?")
        if token != self.token:
            raise Refusal(
                401, "ExpiredAuthenticationToken", "The access token expiry UTC time is in the past"
            )
        if path.startswith("/mlflow/v1.0"):
            return 200, self._log(path.rpartition("/api/2.0/mlflow/")[2], body)
        if path.startswith("/history/v1.0"):
            return 200, self._history(path.rpartition("/runs/")[2])
        if not path.startswith(self.id):
            raise Refusal(404, "ResourceNotFound", f"The Resource '{path}' was not found.")
        if "api-version" not in urllib.parse.parse_qs(query):
            raise Refusal(400, "MissingApiVersionParameter", "The api-version query parameter is required")
        below = path[len(self.id) :]
        if below == "":
            about = {"discoveryUrl": f"{self.url}/discovery", "workspaceId": "w"}
            return 200, {"id": self.id, "name": self.workspace, "properties": about}
        kind, _, rest = below[1:].partition("/")
        answers: Mapping[str, Any] = {
            "codes": self._codes,
            "jobs": self._jobs,
            "datastores": self._datastores,
            "environments": self._environments,
        }
        if kind not in answers:
            raise Refusal(404, "ResourceNotFound", below)
        told: tuple[int, Any] = answers[kind](method, rest, body)
        return told

    def _codes(self, method: str, rest: str, body: Any) -> tuple[int, Any]:
        if rest.endswith("/startPendingUpload"):
            name = "code-" + rest.partition("/")[0]
            self.container(name)
            signature = _signature(name)
            blob = f"{self.url}/{ACCOUNT}/{name}"
            told = {"credentialType": "SAS", "sasUri": f"{blob}?{signature}"}
            reference = {"blobUri": blob, "storageAccountArmId": "/x", "credential": told}
            return 200, {
                "blobReferenceForConsumption": reference,
                "pendingUploadType": body["pendingUploadType"],
            }
        return self._kept(method, f"codes/{rest}", body)

    def _environments(self, method: str, rest: str, body: Any) -> tuple[int, Any]:
        if rest.endswith("/versions"):
            known = self.environment_name.partition(":")
            found = [{"name": known[2]}] if rest == f"{known[0]}/versions" else []
            return 200, {"value": found}
        return self._kept(method, f"environments/{rest}", body)

    def _datastores(self, method: str, rest: str, body: Any) -> tuple[int, Any]:
        name, _, verb = rest.partition("/")
        if name != "workspaceblobstore":
            raise Refusal(404, "UserError", f"Datastore {name} not found")
        if verb == "listSecrets":
            return 200, self.secrets
        about = {
            "datastoreType": "AzureBlob",
            "accountName": ACCOUNT,
            "containerName": "azureml-blobstore",
            "endpoint": self.url.removeprefix("http://"),
            "protocol": "http",
            "credentials": {"credentialsType": self.secrets["secretsType"]},
        }
        return 200, {"id": f"{self.id}/datastores/{name}", "name": name, "properties": about}

    def _kept(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        with self._lock:
            if method == "PUT":
                if path in self.bodies:
                    raise Refusal(409, "UserError", f"{path} already exists")
                self.bodies[path] = body
            if path not in self.bodies:
                raise Refusal(404, "UserError", f"{path} not found")
            told = {"id": f"{self.id}/{path}", "name": path.rpartition("/")[2], **self.bodies[path]}
            return 201 if method == "PUT" else 200, told

    def _jobs(self, method: str, rest: str, body: Any) -> tuple[int, Any]:
        name, _, verb = rest.partition("/")
        with self._lock:
            if method == "PUT":
                if name in self.jobs or name in self.sweeps:
                    raise Refusal(409, "UserError", f"A job with this name already exists: {name}")
                self._begin(name, body["properties"])
                self.bodies[f"jobs/{name}"] = body
            job = self._job(name)
            if verb == "cancel":
                self.cancel(name)
                return 200, None
            told = {"id": f"{self.id}/jobs/{name}", "name": name, "properties": job.told()}
            return 201 if method == "PUT" else 200, json.loads(json.dumps(told))

    def _begin(self, name: str, asked: dict[str, Any]) -> None:
        compute = asked.get("computeId")
        if asked["jobType"] == "Sweep":
            self.sweeps[name] = SweepRun(self, name, asked, self._code_of(asked["trial"], compute))
        elif asked["jobType"] == "Command":
            self.jobs[name] = CommandRun(self, name, asked, self._code_of(asked, compute))
        else:
            raise Refusal(400, "UserError", asked["jobType"])

    def _job(self, name: str) -> CommandRun | SweepRun:
        found = self.sweeps.get(name) or self.jobs.get(name)
        if found is None:
            raise Refusal(404, "UserError", f"Run with id {name} not found")
        return found

    def _code_of(self, asked: dict[str, Any], compute: str | None) -> str:
        """Where its code lies. Raises Refusal for what the service refuses at once."""
        if not asked.get("environmentId"):
            raise Refusal(400, "UserError", "no environment")
        if compute is not None and compute != f"{self.id}/computes/{self.compute}":
            raise Refusal(404, "ComputeNotFound", f"Compute {compute.rpartition('/')[2]} not found")
        match = re.fullmatch(re.escape(self.id) + r"/(codes/.*)", asked["codeId"])
        if match is None or match[1] not in self.bodies:
            raise Refusal(400, "UserError", f"no code {asked['codeId']}")
        return str(self.bodies[match[1]]["properties"]["codeUri"])

    def _log(self, call: str, body: Any) -> dict[str, Any]:
        if call != "runs/log-batch" or body["run_id"] not in self.jobs or len(body["metrics"]) > 1000:
            raise Refusal(400, "INVALID_PARAMETER_VALUE", call)
        self.charted.setdefault(body["run_id"], []).extend(body["metrics"])
        for sweep in self.sweeps.values():
            sweep.judge(body["run_id"])
        return {}

    def _history(self, path: str) -> dict[str, Any]:
        name, _, details = path.partition("/")
        job = self._job(name)
        if not details:
            return {"runId": name, "status": job.status, "tags": job.tags}
        error = {"error": {"code": "UserError", "message": job.error}} if job.error else None
        told: dict[str, Any] = {"runId": name, "status": job.status, "error": error, "logFiles": {}}
        if isinstance(job, CommandRun):
            with self._lock:
                if name not in self._logs:
                    self._logs[name] = LogBlobs(
                        job, self.container(LogBlobs.container), self.logs_late_s, self.own_faults
                    )
            store = f"{self.url}/{ACCOUNT}/{LogBlobs.container}"
            told["logFiles"] = self._logs[name].addresses(store, self.signed_for_s)
            told["startTimeUtc"], told["endTimeUtc"] = (_stamp(when) for when in (job.began, job.over))
        return told


def _stamp(when: float | None) -> str | None:
    if when is None:
        return None
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f7Z")


def _signature(container: str) -> str:
    from azure.storage.blob import generate_container_sas

    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    made: str = generate_container_sas(ACCOUNT, container, account_key=KEY, permission="rwlcd", expiry=until)
    return made
