"""A Databricks workspace on this machine: the REST calls of databricks-sdk, and real Spark behind Jobs.

    with DatabricksWorkspace(tmp_path) as workspace:
        WorkspaceClient(host=workspace.url, token=workspace.token)
        workspace.fail("/fs/files/.*/up/", 503)      # what the service then answers, until `heal`
        workspace.cancel(run); workspace.delete(run)  # as somebody does on the run's page
        workspace.terminate("c1", "INACTIVITY")      # as a policy does

Clusters run on a host of the rig (hosts.py), which shares nothing with this machine but the Volumes: there
they are the folder /Volumes, here they are `workspace.volumes`. The cluster of the id `c1` has two workers of
one task slot, and starts when it is first used; for runs that ask for a new cluster one is made. A worker's
executor is a thread of the cluster's only JVM, and its tasks are processes of their own, as there.

The fixture `databricks_workspace` has a cluster that runs, which the modules of a group share.
"""

from __future__ import annotations

import contextlib
import email.parser
import email.policy
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import wait_for_exit
from tests.rigs.hosts import Hosts, missing

__all__ = ["RUNTIME", "DatabricksWorkspace", "Run", "databricks_workspace"]

# What the mount of a Volume is like: no renames, no links, nothing is appended, a file is there once it is
# closed. https://docs.databricks.com/aws/en/volumes/volume-files
_FUSE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define ON_VOLUME(path) (!strncmp(path, "/Volumes/", 9))
static struct { char part[512], path[512]; } written[1024];
static int begin(const char *path, int flags, int mode, int (*real)(const char *, int, ...)) {
  char part[512];
  const char *name = strrchr(path, '/');
  if (!ON_VOLUME(path) || !(flags & O_CREAT)) return real(path, flags, mode);
  if (flags & O_APPEND) { errno = EOPNOTSUPP; return -1; }
  snprintf(part, sizeof part, "%.*s/.fuse-%d-%s", (int)(name - path), path, getpid(), name + 1);
  int fd = real(part, flags & ~O_EXCL, mode);
  if (fd < 0 || fd >= 1024) return fd;
  strcpy(written[fd].part, part);
  strcpy(written[fd].path, path);
  return fd;
}
#define OPEN(name) int name(const char *path, int flags, ...) { \
  va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
  return begin(path, flags, mode, (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name)); }
OPEN(open)
OPEN(open64)
int close(int fd) {
  int failed = REAL(close)(fd);
  if (fd >= 0 && fd < 1024 && written[fd].path[0]) {
    REAL(rename)(written[fd].part, written[fd].path);
    written[fd].path[0] = 0;
  }
  return failed;
}
int rename(const char *from, const char *to) {
  if (ON_VOLUME(from)) { errno = ENOSYS; return -1; }
  return REAL(rename)(from, to);
}
int link(const char *from, const char *to) {
  if (ON_VOLUME(to)) { errno = ENOSYS; return -1; }
  return REAL(link)(from, to);
}
"""
_FUSE_BUILT = (
    "cc -O1 -shared -fPIC -w -x c - -o /usr/local/lib/volumes.so -ldl && "
    "echo /usr/local/lib/volumes.so > /etc/ld.so.preload"
)
_SCRIPT = Path(__file__).with_name("cluster.py")
RUNTIME = {"3.10": "14.3", "3.11": "15.4", "3.12": "16.4"}.get(
    f"{sys.version_info[0]}.{sys.version_info[1]}", "99.0"
) + ".x-cpu-ml-scala2.12"
"""The runtime that has this Python."""
_START_S = 240.0
"""Of a JVM, on a machine that has much else to do."""


@dataclass
class Run:
    """A job run as the workspace knows it."""

    number: int
    asked: dict[str, Any]
    life: str = "PENDING"
    result: str | None = None
    message: str = "Waiting for cluster"
    code: str | None = None
    error: str | None = None
    cluster: _Cluster | None = None
    began_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    @property
    def active(self) -> bool:
        return self.life != "TERMINATED"

    def end(self, result: str, message: str, code: str, error: str | None = None) -> None:
        if self.active:
            self.life, self.result = "TERMINATED", result
            self.message, self.code, self.error = message, code, error


class _Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class _Cluster:
    """A Spark on the rig's host; its programs end in the runs they belong to."""

    def __init__(self, workspace: DatabricksWorkspace, workers: int) -> None:
        self.state = "PENDING"
        self._runs: dict[int, Run] = {}
        log = (workspace.folder / "clusters.log").open("ab")
        argv = [sys.executable, str(_SCRIPT), f"local[{max(workers, 1)}]"]
        self._process = workspace.hosts.popen(
            "c1", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        log.close()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.ready = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, run: Run, program: str) -> None:
        self._runs[run.number] = run
        self._tell({"run": run.number, "program": program})

    def cancel(self, run: Run) -> None:
        self._tell({"cancel": run.number})

    def close(self, message: str = "Cluster terminated", code: str = "CLUSTER_ERROR") -> None:
        """End it, and the runs on it."""
        self.state = "TERMINATED"
        for run in self._runs.values():
            run.end("FAILED", message, code)
        with contextlib.suppress(OSError):
            # A process that a test has forked may hold the pipe too, so its end alone may not be heard.
            self._tell({"end": True})
            self._stdin.close()
        wait_for_exit(self._process)
        self._stdout.close()

    def _tell(self, told: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(told).encode() + b"\n")
        self._stdin.flush()

    def _listen(self) -> None:
        for line in self._stdout:
            told = json.loads(line)
            if "ready" in told:
                self.state = "RUNNING"
                self.ready.set()
                continue
            run, error = self._runs[told["run"]], told["error"]
            if error is None:
                run.end("SUCCESS", "", "SUCCESS")
            else:
                run.end("FAILED", "Workload failed, see run output for details", "RUN_EXECUTION_ERROR", error)
        self.ready.set()


class DatabricksWorkspace:
    """A context manager. Its user is `user`."""

    token = "dapi0123456789abcdef"
    user = "ada@example.com"

    def __init__(self, folder: Path) -> None:
        lacking = missing() or (
            None if shutil.which("java") else "Spark needs a JRE: apt-get install default-jre"
        )
        if lacking:
            pytest.skip(lacking)
        self.folder = folder
        self.volumes, self.files = folder / "cloud" / "Volumes", folder / "cloud" / "Workspace"
        self.runs: dict[int, Run] = {}
        self.details: dict[str, Any] = {
            "cluster_id": "c1",
            "cluster_name": "shared by the team",
            "data_security_mode": "SINGLE_USER",
            "spark_version": RUNTIME,
            "num_workers": 2,
        }
        self.read_only: set[str] = set()
        """Volumes, as main/default/NAME."""
        self._faults: dict[str, tuple[int, str]] = {}
        self._tokens: dict[str, int] = {}
        self._clusters: dict[str, _Cluster] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> DatabricksWorkspace:
        for name in ("jd", "ro"):
            (self.volumes / "main" / "default" / name).mkdir(parents=True)
        self.read_only.add("main/default/ro")
        self.files.mkdir()
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            shared = [self.folder / "cloud"]
            self.hosts = stack.enter_context(Hosts(self.folder / "rig" / "hosts", ("c1",), shared=shared))
            mount = f"mkdir /Volumes && mount --bind {self.volumes} /Volumes"
            self.hosts.exec("c1", ["sh", "-c", f"{mount} && {_FUSE_BUILT}"], input=_FUSE)
            server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for cluster in list(self._clusters.values()):
            cluster.close()
        self._stack.close()

    def lives(self, _: str, pid: int) -> bool:
        """Whether a rank's process still runs on the cluster."""
        return any(process.own_pid == pid for process in self.hosts.pids("c1"))

    def fail(self, pattern: str, status: int, code: str = "") -> None:
        """Answer so whatever matches: a regular expression of METHOD PATH."""
        self._faults[pattern] = status, code

    def heal(self) -> None:
        self._faults.clear()

    def warm_up(self) -> None:
        """Have the cluster `c1` run, which takes Spark some seconds."""
        assert self._cluster("c1").ready.wait(_START_S), (self.folder / "clusters.log").read_text()

    def terminate(self, cluster: str, reason: str) -> None:
        """End a cluster under its runs; it can be started again."""
        message = f"Cluster {cluster} became unusable during the run since it was terminated: {reason}"
        with self._lock:
            ended = self._clusters.pop(cluster)
        ended.close(message)

    def cancel(self, number: int) -> None:
        run = self.runs[number]
        with self._lock:
            if not run.active:
                return
            cluster, began = run.cluster, run.life == "RUNNING"
            run.end("CANCELED", "Run cancelled.", "USER_CANCELED")
        if cluster is not None and began:
            cluster.cancel(run)

    def delete(self, number: int) -> None:
        if self.runs[number].active:
            raise _Refusal(400, "INVALID_STATE", f"Run {number} is active.")
        del self.runs[number]

    def active(self) -> list[Run]:
        return [run for run in list(self.runs.values()) if run.active]

    def _cluster(self, name: str, workers: int = 2) -> _Cluster:
        with self._lock:
            if name not in self._clusters:
                self._clusters[name] = _Cluster(self, workers)
            return self._clusters[name]

    # What the REST calls do.

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, kind: str) -> Any:
        for pattern, (status, code) in list(self._faults.items()):  # a test may change them meanwhile
            if re.search(pattern, f"{method} {path}"):
                raise _Refusal(status, code or f"STATUS_{status}", "as the test wishes")
        if path.startswith("/api/2.0/fs/"):
            what, _, name = path.removeprefix("/api/2.0/fs/").partition("/")
            return self._fs(method, what, "/" + urllib.parse.unquote(name), body)
        if path == "/api/2.0/preview/scim/v2/Me":
            return {"userName": self.user}
        told = {**query, **(json.loads(body) if kind == "application/json" and body else {})}
        if path == "/api/2.0/workspace/import":
            return self._import(_form(kind, body) if kind.startswith("multipart/") else told)
        if path == "/api/2.0/workspace/mkdirs":
            return self._in_workspace(told["path"]).mkdir(parents=True, exist_ok=True)
        if path == "/api/2.0/workspace/delete":
            place = self._in_workspace(told["path"])
            if not place.exists():
                raise _Refusal(404, "RESOURCE_DOES_NOT_EXIST", f"Path ({told['path']}) doesn't exist.")
            return place.unlink()
        if re.fullmatch(r"/api/2\.\d/clusters/get", path):
            if told["cluster_id"] != "c1":
                name = told["cluster_id"]
                raise _Refusal(400, "INVALID_PARAMETER_VALUE", f"Cluster {name} does not exist")
            there = self._clusters.get("c1")
            return {**self.details, "state": there.state if there else "TERMINATED"}
        return self._jobs(re.sub(r"^/api/2\.\d/jobs/", "", path), told)

    def _jobs(self, call: str, told: dict[str, Any]) -> Any:
        if call == "runs/submit":
            return {"run_id": self._submit(told)}
        if call == "runs/list":
            listed = [run for run in list(self.runs.values()) if run.active or not told.get("active_only")]
            return {"runs": [self._told(run) for run in listed]}
        number = int(told.get("run_id", 0))
        number = number // 1000 if call == "runs/get-output" else number
        run = self.runs.get(number)
        if run is None:
            raise _Refusal(400, "INVALID_PARAMETER_VALUE", f"Run {number} does not exist.")
        if call == "runs/get":
            return self._told(run)
        if call == "runs/get-output":
            return {"error": run.error, "logs": "", "metadata": self._told(run)}
        if call == "runs/cancel":
            return self.cancel(number)
        raise _Refusal(404, "ENDPOINT_NOT_FOUND", f"No API found for {call!r}")

    def _submit(self, asked: dict[str, Any]) -> int:
        task = asked["tasks"][0]
        if not self._in_workspace(task["spark_python_task"]["python_file"]).is_file():
            raise _Refusal(400, "INVALID_PARAMETER_VALUE", "the Python file does not exist")
        if len(asked["idempotency_token"]) > 64:
            raise _Refusal(400, "INVALID_PARAMETER_VALUE", "the token is too long")
        with self._lock:
            number = self._tokens.setdefault(asked["idempotency_token"], 700 + len(self._tokens))
            if number in self.runs:
                return number
            self.runs[number] = run = Run(number, asked)
        threading.Thread(target=self._work, args=(run, task), daemon=True).start()
        return number

    def _work(self, run: Run, task: dict[str, Any]) -> None:
        program = str(self._in_workspace(task["spark_python_task"]["python_file"]))
        name, new = task.get("existing_cluster_id"), task.get("new_cluster")
        cluster = self._cluster(name or f"job-{run.number}", new["num_workers"] if new else 2)
        cluster.ready.wait(_START_S)
        with self._lock:
            run.cluster = cluster
            if run.active:
                run.life, run.message = "RUNNING", "In run"
                cluster.start(run, program)
        while new and run.active:
            time.sleep(0.05)
        with self._lock:
            made = self._clusters.pop(f"job-{run.number}", None)  # a policy may have been faster
        if made is not None:
            made.close()

    def _told(self, run: Run) -> dict[str, Any]:
        details = {"code": run.code, "message": run.message, "type": "CLIENT_ERROR"}
        ended = {} if run.active else {"termination_details": details}
        return {
            "run_id": run.number,
            "job_id": 1,
            "run_name": run.asked["run_name"],
            "run_type": "SUBMIT_RUN",
            "start_time": run.began_ms,
            "run_page_url": f"{self.url}/?o=1#job/1/run/{run.number}",
            "state": {"life_cycle_state": run.life, "result_state": run.result, "state_message": run.message},
            "status": {"state": run.life, **ended},
            "tasks": [{**run.asked["tasks"][0], "run_id": run.number * 1000}],
        }

    def _in_workspace(self, path: str) -> Path:
        return self.files / path.removeprefix("/Workspace").lstrip("/")

    def _import(self, told: dict[str, Any]) -> None:
        place = self._in_workspace(told["path"])
        if not place.parent.is_dir():
            raise _Refusal(
                404, "RESOURCE_DOES_NOT_EXIST", f"The parent folder ({place.parent}) does not exist."
            )
        place.write_text(told["content"])

    def _fs(self, method: str, what: str, name: str, body: bytes) -> Any:
        place = self.volumes / name.removeprefix("/Volumes/")
        volume = "/".join(name.split("/")[2:5])
        if not (self.volumes / volume).is_dir():
            raise _Refusal(404, "NOT_FOUND", f"Volume '{volume.replace('/', '.')}' does not exist.")
        if method != "GET" and volume in self.read_only:
            why = f"User does not have WRITE VOLUME on Volume '{volume.replace('/', '.')}'."
            raise _Refusal(403, "PERMISSION_DENIED", why)
        if method == "PUT" and what == "directories":
            return place.mkdir(parents=True, exist_ok=True)
        if method == "PUT":
            part = place.with_name(f".{threading.get_ident()}-{place.name}")
            part.write_bytes(body)
            os.replace(part, place)
            return None
        if what == "files":
            return place.read_bytes() if method == "GET" else place.unlink()
        if method == "DELETE":
            return place.rmdir()
        listed = [
            {"path": f"{name.rstrip('/')}/{entry.name}", "is_directory": entry.is_dir(), "name": entry.name}
            for entry in place.iterdir()
        ]
        return {"contents": listed}


@pytest.fixture(scope="session")
def databricks_workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabricksWorkspace]:
    """A workspace whose cluster `c1` runs."""
    with DatabricksWorkspace(tmp_path_factory.mktemp("databricks")) as workspace:
        workspace.warm_up()
        yield workspace


def _form(kind: str, body: bytes) -> dict[str, Any]:
    message = email.parser.BytesParser(policy=email.policy.default).parsebytes(
        f"content-type: {kind}\r\n\r\n".encode() + body
    )
    parts: Iterator[Any] = message.iter_parts()
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True).decode()
        for part in parts
    }


def _handler(workspace: DatabricksWorkspace) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path, _, rest = self.path.partition("?")
            query = dict(urllib.parse.parse_qsl(rest))
            try:
                if path == "/.well-known/databricks-config":
                    raise _Refusal(404, "NOT_FOUND", "not here")
                if self.headers.get("authorization") != f"Bearer {workspace.token}":
                    raise _Refusal(401, "UNAUTHENTICATED", "Invalid access token.")
                told = workspace.answer(
                    self.command, path, query, body, self.headers.get("content-type") or ""
                )
            except _Refusal as refusal:
                error = {"error_code": refusal.code, "message": str(refusal)}
                return self._answer(refusal.status, json.dumps(error).encode())
            except (FileNotFoundError, NotADirectoryError):
                error = {"error_code": "NOT_FOUND", "message": f"{path} does not exist."}
                return self._answer(404, json.dumps(error).encode())
            if isinstance(told, bytes):
                return self._answer(200, told, "application/octet-stream")
            self._answer(200, json.dumps(told or {}).encode())

        do_GET = do_PUT = do_POST = do_DELETE = _serve

        def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
