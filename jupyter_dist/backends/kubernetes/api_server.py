"""Requests to a Kubernetes API server as one user, in one namespace. Bodies are JSON.

Kubernetes' own client reads the kubeconfig, runs what issues tokens (exec plugins, OIDC), and uses a pod's
service account. This module sends the requests. https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ...errors import InputError, LaunchError, MissingEngine, Unreachable

__all__ = ["Cluster", "Refusal", "WayIn", "check_context"]

_CONNECT_S, _READ_S = 5.0, 20.0
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAY_PASS = (408, 429, 500, 502, 503, 504)


class Refusal(Exception):
    """An error answer of the API server that a retry will not change."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True)
class WayIn:
    """What a client needs to open a WebSocket to the API server and run commands in pods."""

    url: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None


def check_context(name: str) -> None:
    """Raise InputError if the kubeconfig has no such context. Sends no request, and runs no plugin."""
    from kubernetes import config

    file, there = _kubeconfig()
    if not there:
        raise InputError(f"--context {name}: there is no {file!r}")
    known = [name]
    with contextlib.suppress(Exception):  # the first use reports a faulty file
        known = [str(one["name"]) for one in config.list_kube_config_contexts(file)[0]]
    if name not in known:
        raise InputError(f"--context {name}: {file!r} has {', '.join(known)}")


def _kubeconfig() -> tuple[str, bool]:
    """Return the path of the kubeconfig, or several as in PATH, and whether one of them exists."""
    file = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return file, any(Path(path).expanduser().is_file() for path in file.split(os.pathsep) if path)


class Cluster:
    """A cluster as one user sees it. For several threads.

    Every call may block. It raises Unreachable if nobody answers, and Refusal if the answer is an error. It
    raises LaunchError if no request can be made.
    """

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        self._context, self._asked = context, namespace
        self._lock = threading.Lock()
        self._settings: Any = None
        self._stale = True
        self._pool: Any = None
        self._namespace = ""

    @property
    def namespace(self) -> str:
        """The given namespace, else the namespace of the context or of this pod, else `default`."""
        self._connect()
        return self._namespace

    @property
    def url(self) -> str:
        """The URL of the API server."""
        self._connect()
        return str(self._settings.host)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: str | int) -> Any:
        """Return the answer as JSON.

        If the server rejects a token, the request is repeated once with a new one.
        """
        return json.loads(self._ask(method, path, body, query))

    def read(self, path: str, **query: str | int) -> str:
        """Return the answer as text, such as a pod's log."""
        return self._ask("GET", path, None, query).decode(errors="replace")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any]) -> bytes:
        try:
            return self._taken(self._send(method, path, body, query, _READ_S))
        except Refusal as refusal:
            if refusal.status != 401:
                raise
        self.renew()
        return self._taken(self._send(method, path, body, query, _READ_S))

    def has(self, path: str) -> bool:
        """Return whether the API has such a group. Software in the cluster adds groups of its own."""
        try:
            self.ask("GET", path)
        except Refusal as refusal:
            if refusal.status in (403, 404):
                return False
            raise
        return True

    def watch(self, path: str, version: str, wait_s: float, **query: str | int) -> Iterator[dict[str, Any]]:
        """Yield the changes of a list after that version, as events. The iterator ends after about `wait_s`.

        An event of the type ERROR has a status, such as 410: that version is too old.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
        """
        asked = {**query, "watch": 1, "resourceVersion": version, "timeoutSeconds": int(wait_s)}
        with self._opened(path, asked, wait_s + 5) as answer:
            for line in answer:
                yield json.loads(line)

    def follow(self, path: str, read_s: float, **query: str | int) -> Iterator[bytes]:
        """Yield the answer in pieces as they arrive, such as a growing log.

        Raises Unreachable if the connection is lost, or nothing arrives for `read_s`.
        """
        with self._opened(path, query, read_s) as answer:
            yield from answer.stream(65536)

    @contextlib.contextmanager
    def _opened(self, path: str, query: Mapping[str, str | int], read_s: float) -> Iterator[Any]:
        """Open an answer that arrives in pieces. Raises Unreachable if the connection is lost."""
        answer = self._send("GET", path, None, query, read_s, whole=False)
        import urllib3

        try:
            if answer.status != 200:
                self._taken(answer)
            yield answer
        except urllib3.exceptions.HTTPError as error:
            raise self._away(error) from error
        finally:
            answer.close()

    def way_in(self, pod: str, container: str, command: Sequence[str]) -> WayIn:
        """Return how to run a command in a pod's container."""
        self._connect()
        settings = self._settings
        asked = [("container", container), *(("command", word) for word in command)]
        asked += [(stream, "true") for stream in ("stdin", "stdout", "stderr")]
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/exec?{urlencode(asked)}"
        tls = None
        if settings.host.startswith("https"):
            tls = ssl.create_default_context(cafile=settings.ssl_ca_cert or None)
            if settings.cert_file:
                tls.load_cert_chain(settings.cert_file, settings.key_file)
            if not settings.verify_ssl:
                tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        url = settings.host.replace("http", "ws", 1) + path
        return WayIn(url, self._credentials(), tls, settings.tls_server_name or None, settings.proxy or None)

    def renew(self) -> None:
        """Read the user's credentials again before the next request: a token may have been replaced."""
        self._stale = True

    def _connect(self) -> None:
        with self._lock:
            if self._stale:
                self._settings, self._namespace = self._read()
                self._pool = _pool(self._settings)
                self._stale = False

    def _read(self) -> tuple[Any, str]:
        try:
            import yaml
            from kubernetes import client, config
        except ImportError as error:
            cure = 'pip install "jupyter-dist[kubernetes]"'
            raise MissingEngine(f"the backend 'kubernetes' needs its client ({error}): {cure}") from None
        settings = client.Configuration()
        file, there = _kubeconfig()
        try:
            if not there and self._context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(settings)
                return settings, self._asked or (_ACCOUNT / "namespace").read_text().strip()
            if not there:
                raise LaunchError(
                    f"there is no {file!r}, and this machine is not a pod of a cluster. Name the file in "
                    "the variable KUBECONFIG, and check it with `kubectl config view`. Nothing was "
                    "started."
                )
            config.load_kube_config(file, self._context, settings)
            contexts, active = config.list_kube_config_contexts(file)
            named = next((one for one in contexts if one["name"] == self._context), active)
            return settings, self._asked or named["context"].get("namespace") or "default"
        except (config.ConfigException, yaml.YAMLError, OSError, KeyError, TypeError) as error:
            said = " ".join(str(error).split())[:300]
            about = f"the context {self._context!r}" if self._context else "its current context"
            raise LaunchError(f"{file!r} does not lead to {about}: {said}. Nothing was started.") from None

    def _credentials(self) -> dict[str, str]:
        settings = self._settings
        if settings.refresh_api_key_hook is not None:
            settings.refresh_api_key_hook(settings)  # tokens of plugins and service accounts expire
        # Older clients use another key.
        token = settings.api_key.get("BearerToken") or settings.api_key.get("authorization")
        return {"Authorization": token} if token else {}

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, Any],
        read_s: float,
        *,
        whole: bool = True,
    ) -> Any:
        self._connect()
        import urllib3

        asked = f"?{urlencode(query)}" if query else ""
        try:
            return self._pool.request(
                method,
                f"{self._settings.host}{path}{asked}",
                body=None if body is None else json.dumps(body),
                headers={**self._credentials(), "Content-Type": "application/json"},
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=read_s),
                preload_content=whole,
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> Exception:
        import urllib3

        why = getattr(error, "reason", None) or error
        said = " ".join(str(why).split())[:300]
        if isinstance(why, urllib3.exceptions.SSLError):
            return LaunchError(f"the API server at {self._settings.host} cannot be trusted: {said}")
        return Unreachable(f"the API server at {self._settings.host} does not answer: {said}")

    def _taken(self, answer: Any) -> bytes:
        data = bytes(answer.data)
        if answer.status < 300:
            return data
        try:
            told = json.loads(data)
            reason, message = str(told.get("reason") or ""), str(told.get("message") or "")
        except (ValueError, AttributeError):
            reason, message = "", data.decode(errors="replace")[:300]
        message = " ".join((message or str(answer.reason)).split())
        if answer.status in _MAY_PASS and reason != "AlreadyExists":
            about = f"the API server at {self._settings.host} answers {answer.status}"
            raise Unreachable(f"{about} ({message})")
        raise Refusal(answer.status, reason, message)


def _pool(settings: Any) -> Any:
    """Return the connection pool, without retries of its own: the user could not see them."""
    import urllib3

    told: dict[str, Any] = {
        "maxsize": 8,
        "retries": False,
        "cert_reqs": "CERT_REQUIRED" if settings.verify_ssl else "CERT_NONE",
        "ca_certs": settings.ssl_ca_cert or None,
        "cert_file": settings.cert_file or None,
        "key_file": settings.key_file or None,
    }
    if settings.tls_server_name:
        told |= {"server_hostname": settings.tls_server_name, "assert_hostname": settings.tls_server_name}
    if not settings.verify_ssl:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    if settings.proxy:
        return urllib3.ProxyManager(settings.proxy, proxy_headers=settings.proxy_headers, **told)
    return urllib3.PoolManager(**told)
