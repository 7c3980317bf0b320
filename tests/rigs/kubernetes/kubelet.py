"""A node: registers itself, runs the pods bound to it as processes, and serves their logs and exec.

python kubelet.py NAME NUMBER PORT        with KUBE_… in the environment (plane.py); its end is the node's

An image whose name begins with `missing/` cannot be pulled. The annotation `test/evict` on a pod, with a
message, has the node evict it as one that lacks memory does. What is real here is what the API server sees of
a node.
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from tests.rigs.kubernetes.api import Api, Refusal
from tests.rigs.kubernetes.exec_server import serve_exec
from tests.rigs.kubernetes.pod import Network, Pod

__all__ = ["Node", "main"]

_HEARTBEAT_S = 1.0
_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _conditions(*, ready: bool) -> list[dict[str, str]]:
    holds = {"Initialized": True, "Ready": ready, "ContainersReady": ready, "PodScheduled": True}
    return [
        {"type": kind, "status": str(value), "lastTransitionTime": _now()} for kind, value in holds.items()
    ]


def _is_ready(told: Mapping[str, Any]) -> bool:
    conditions = told["status"].get("conditions") or []
    return all(one["status"] == "True" for one in conditions if one["type"] == "Ready")


def _hears_sigterm(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError, ValueError):
        caught = Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
    return True  # it has ended


class Node:
    """What one kubelet knows."""

    def __init__(self, name: str, number: int, port: int) -> None:
        self.name, self._port = name, port
        self._api = Api(os.environ["KUBE_URL"], os.environ["KUBE_TOKEN"], Path(os.environ["KUBE_CA"]))
        self._network = Network(int(os.environ["KUBE_SLOT"]), number)
        self._folder = Path(os.environ["KUBE_FOLDER"]) / name
        self._capacity = {"cpu": os.environ.get("KUBE_CPUS", "8"), "memory": "16Gi", "pods": "60"}
        self._born = _now()
        self.pods: dict[str, Pod] = {}
        self._ending: set[str] = set()
        self._begun: set[str] = set()
        self._refused: set[str] = set()
        self._evicted: dict[str, str] = {}

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The newest of that name."""
        pods = reversed(list(self.pods.values()))
        return next((p for p in pods if (p.namespace, p.name) == (namespace, name)), None)

    def beat(self) -> None:
        """Its lease and its status, as long as it lives."""
        while True:
            try:
                self._beat()
            except Exception as error:
                print("beat:", type(error).__name__, str(error)[:200], flush=True)
            time.sleep(_HEARTBEAT_S)

    def _beat(self) -> None:
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": self._born,
        }
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "conditions": [ready],
        }
        try:
            self._api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status})
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            labels = {"kubernetes.io/hostname": self.name}
            self._api.post("/api/v1/nodes", {"metadata": {"name": self.name, "labels": labels}})
            return self._beat()
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": _now()}
        try:
            self._api.patch(f"{leases}/{self.name}", {"spec": spec})
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            self._api.post(leases, {"metadata": {"name": self.name}, "spec": spec})

    def follow(self) -> None:
        """Start and end pods as the API server says, as long as it lives."""
        while True:
            try:
                for kind, told in self._api.watch("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}"):
                    if kind in ("ADDED", "MODIFIED"):
                        self._look(told)
            except Exception as error:
                print("watch:", type(error).__name__, str(error)[:200], flush=True)
            time.sleep(0.3)

    def _look(self, told: Mapping[str, Any]) -> None:
        uid, meta = told["metadata"]["uid"], told["metadata"]
        evicted = meta.get("annotations", {}).get("test/evict")
        if meta.get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending.add(uid)
                threading.Thread(target=self._end, args=(told,), daemon=True).start()
        elif evicted and uid not in self._evicted:
            self._evicted[uid] = evicted
            threading.Thread(target=self._terminate, args=(uid, 5.0), daemon=True).start()
        elif uid in self.pods and not self.pods[uid].over and not _is_ready(told):
            # The cluster had not heard of this node for a while, and took its pods for lost.
            self._report(meta, conditions=_conditions(ready=True))
        elif uid not in self._begun and told["status"]["phase"] == "Running":
            # It ran here before this node was away: nothing of it is left, and how it ended is not known.
            self._begun.add(uid)
            end = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": _now()}
            before = told["status"]["containerStatuses"][0]
            ended = {**before, "ready": False, "state": {"terminated": end}}
            conditions = _conditions(ready=False)
            self._report(meta, phase="Failed", conditions=conditions, containerStatuses=[ended])
        elif uid not in self._begun | self._refused and told["status"]["phase"] == "Pending":
            self._begun.add(uid)
            threading.Thread(target=self._run, args=(told,), daemon=True).start()

    def _run(self, told: Mapping[str, Any]) -> None:
        meta, container = told["metadata"], told["spec"]["containers"][0]
        seen = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        if container["image"].startswith("missing/"):
            self._begun.remove(meta["uid"])
            self._refused.add(meta["uid"])
            return self._not_pulled(meta, seen)
        pod, address = self._started(told)
        began = _now()
        self.pods[pod.uid] = pod
        running = {**seen, "ready": True, "started": True, "state": {"running": {"startedAt": began}}}
        self._report(
            meta,
            phase="Running",
            podIP=address,
            podIPs=[{"ip": address}],
            hostIP="127.0.0.1",
            startTime=began,
            conditions=_conditions(ready=True),
            containerStatuses=[running],
        )
        code = pod.wait()
        reason = "Completed" if code == 0 else "OOMKilled" if code == 137 else "Error"
        end = {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": _now()}
        ended = {**seen, "ready": False, "started": False, "state": {"terminated": end}}
        evicted = self._evicted.get(pod.uid)
        self._report(
            meta,
            phase="Failed" if code or evicted else "Succeeded",
            conditions=_conditions(ready=False),
            containerStatuses=[ended],
            **({"reason": "Evicted", "message": evicted} if evicted else {}),
        )

    def _started(self, told: Mapping[str, Any]) -> tuple[Pod, str]:
        """As a kubelet does, try again what did not start."""
        for pause_s in (0.5, 1.0, 2.0):
            pod = Pod(self._api, self._network, self._folder, self.name, told)
            try:
                return pod, pod.start()
            except Exception as error:
                print("start:", type(error).__name__, str(error)[:200], flush=True)
                shutil.rmtree(self._folder / pod.uid, ignore_errors=True)
                time.sleep(pause_s)
        pod = Pod(self._api, self._network, self._folder, self.name, told)
        return pod, pod.start()

    def _not_pulled(self, meta: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        why = f'Back-off pulling image "{seen["image"]}"'
        waiting = {"reason": "ImagePullBackOff", "message": why}
        status = {**seen, "ready": False, "started": False, "state": {"waiting": waiting}}
        self._report(meta, phase="Pending", hostIP="127.0.0.1", containerStatuses=[status])
        said = f'Failed to pull image "{seen["image"]}": not found'
        about = {key: meta[key] for key in ("name", "namespace", "uid")}
        event = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", **about},
            **{"type": "Warning", "reason": "Failed", "message": said, "count": 1},
            **{"firstTimestamp": _now()[:-8] + "Z", "lastTimestamp": _now()[:-8] + "Z"},
            "source": {"component": "kubelet", "host": self.name},
        }
        with contextlib.suppress(Exception):
            self._api.post(f"/api/v1/namespaces/{meta['namespace']}/events", event)

    def _report(self, meta: Mapping[str, Any], **status: Any) -> None:
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        _until_heard("report", lambda: self._api.patch(path, body))

    def _terminate(self, uid: str, grace_s: float) -> None:
        deadline = time.monotonic() + 30
        while uid in self._begun and uid not in self.pods and time.monotonic() < deadline:
            time.sleep(0.02)  # it is being started
        pod = self.pods.get(uid)
        if pod is None or pod.over or pod.process is None:
            return
        # Its first process ignores SIGTERM without a handler, as in real containers; but there it is its own
        # program when it counts as started, and here a shell is on the way to be that.
        deadline = time.monotonic() + 1
        while not _hears_sigterm(pod.init) and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pod.init, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            pod.process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pod.init, signal.SIGKILL)
        pod.process.wait()

    def _end(self, told: Mapping[str, Any]) -> None:
        meta = told["metadata"]
        self._terminate(meta["uid"], float(meta.get("deletionGracePeriodSeconds") or 0))
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        # With a body, the parameters of the query would be ignored.
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        _until_heard("end", lambda: self._api.delete(path, body))


def _until_heard(what: str, say: Callable[[], object]) -> None:
    """The API server may be away: as a kubelet does, go on until it has heard of a pod's change."""
    for _ in range(120):
        try:
            say()
            return
        except Refusal as refusal:
            # Another conflict than with a pod that took its name is one of two changes at once.
            if refusal.status == 404 or (refusal.status == 409 and "UID" in str(refusal)):
                return
        except Exception as error:
            print(f"{what}:", type(error).__name__, flush=True)
        time.sleep(0.5)


def _handler(node: Node) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            asked = urlparse(self.path)
            every = parse_qs(asked.query)
            query = {name: values[0] for name, values in every.items()}
            words = asked.path.split("/")
            pod = node.pod(words[2], words[3]) if len(words) > 4 else None
            if pod is None:
                self.send_error(404)
            elif words[1] == "exec" and pod.over:
                self.send_error(500, "container not running")
            elif words[1] == "exec":
                serve_exec(self, pod.inside(every["command"]), query, _PROTOCOLS)
            elif words[1] == "containerLogs":
                self._log(pod, query)
            else:
                self.send_error(404)

        do_POST = do_GET

        def _log(self, pod: Pod, query: Mapping[str, str]) -> None:
            follow, stamped = query.get("follow") == "true", query.get("timestamps") == "true"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if stamped:
                return self._stamped(pod, query.get("sinceTime"), follow=follow)
            with pod.log.open("rb") as file:
                while True:
                    over = pod.over
                    data = file.read(65536)
                    if data:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                        self.wfile.flush()
                    elif over or not follow:
                        break
                    else:
                        time.sleep(0.05)
            self.wfile.write(b"0\r\n\r\n")

        def _stamped(self, pod: Pod, since: str | None, *, follow: bool) -> None:
            """Whole lines, each behind its time, as the runtime has them; none from before `since`."""
            for when, lines in pod.stamped(follow=follow):
                stamp = datetime.datetime.fromtimestamp(when, datetime.timezone.utc)
                early = since and stamp < datetime.datetime.fromisoformat(since.replace("Z", "+00:00"))
                if lines and not early:
                    before = stamp.strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode()
                    data = b"".join(before + line for line in lines)
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    return Handler


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client: Any) -> None:
        assert isinstance(request, socket.socket)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.environ["KUBE_CA"], os.environ["KUBE_KEY"])
        # The handshake in the connection's own thread.
        with contextlib.suppress(OSError):
            secured = context.wrap_socket(request, server_side=True)
            super().finish_request(secured, client)
            secured.close()


def main(name: str, number: str, port: str) -> None:
    node = Node(name, int(number), int(port))
    server = _Server(("127.0.0.1", int(port)), _handler(node))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=node.beat, daemon=True).start()
    node.follow()


if __name__ == "__main__":
    main(*sys.argv[1:])
