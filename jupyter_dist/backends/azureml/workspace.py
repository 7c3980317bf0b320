"""An Azure Machine Learning workspace and the user's credentials, which azure-identity finds.

The credentials have the same sources as for all of Azure's tools: the environment, the machine's identity,
`az login`.
https://learn.microsoft.com/python/api/azure-identity/azure.identity.defaultazurecredential

The calls are few, and plain REST. Microsoft's own package for them needs forty packages and seconds of
imports.
https://learn.microsoft.com/rest/api/azureml/
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DistError, InputError, LaunchError, Unreachable
from ..job_watch import CredentialsExpired, InUse, NotThere

__all__ = ["MlWorkspace", "NotAllowed", "WorkspaceId", "workspace_here"]

_TIMES = (5.0, 30.0)
"""Seconds to connect, and for an answer. The callers here retry much longer."""
_CODES_VERSION, _JOBS_VERSION, _VERSION = "2023-04-01", "2025-01-01-preview", "2024-04-01"
_SWEEPS_VERSION, _ENVIRONMENTS_VERSION = "2024-01-01-preview", "2023-04-01-preview"
"""API versions of Azure's own SDK for the same requests (tests/golden/azureml_requests.json)."""
_CLOUDS = {
    "AzureCloud": ("https://management.azure.com", "https://ml.azure.com", "login.microsoftonline.com"),
    "AzureChinaCloud": (
        "https://management.chinacloudapi.cn",
        "https://ml.azure.cn",
        "login.chinacloudapi.cn",
    ),
    "AzureUSGovernment": (
        "https://management.usgovcloudapi.net",
        "https://ml.azure.us",
        "login.microsoftonline.us",
    ),
}
"""Azure's resource manager, the studio and the sign-in, by the values of AZUREML_CURRENT_CLOUD.

https://learn.microsoft.com/python/api/azure-identity/azure.identity.azureauthorityhosts
"""


class NotAllowed(LaunchError):
    """The user lacks the permission."""


@dataclass(frozen=True)
class WorkspaceId:
    """The address of a workspace."""

    subscription: str
    resource_group: str
    workspace: str

    @property
    def id(self) -> str:
        """The workspace's id in Azure Resource Manager."""
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"
            f"/providers/Microsoft.MachineLearningServices/workspaces/{self.workspace}"
        )


def workspace_here(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the options of the compute instance's workspace, or of a config.json above the folder.

    The studio offers config.json for download. Returns nothing if there is neither.
    """
    ours = {
        "subscription": environ.get("AZUREML_ARM_SUBSCRIPTION"),
        "resource_group": environ.get("AZUREML_ARM_RESOURCEGROUP"),
        "workspace": environ.get("AZUREML_ARM_WORKSPACE_NAME"),
    }
    if all(ours.values()):
        return {name: str(value) for name, value in ours.items()}
    for path in _config_files(folder):
        try:
            told = json.loads(path.read_bytes())
            return {
                "subscription": str(told["subscription_id"]),
                "resource_group": str(told["resource_group"]),
                "workspace": str(told["workspace_name"]),
            }
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}


def _config_files(folder: Path) -> Iterator[Path]:
    """Yield the paths of config.json that Azure's SDK tries, in the same order."""
    for above in (folder, *folder.parents):
        for inside in (".azureml", "aml_config", "."):
            yield above / inside / "config.json"


class MlWorkspace:
    """A workspace. For several threads.

    The first request signs in. After a rejection, the next request signs in again, because the user may have
    renewed the credentials.
    """

    def __init__(self, where: WorkspaceId) -> None:
        self.where = where
        cloud = os.environ.get("AZUREML_CURRENT_CLOUD") or "AzureCloud"
        if cloud not in _CLOUDS:
            raise InputError(f"AZUREML_CURRENT_CLOUD is one of {', '.join(_CLOUDS)}, and it is {cloud!r:.80}")
        manager, self.studio, self._authority = _CLOUDS[cloud]
        self._scope = f"{manager}/.default"
        # Azure's own SDK uses this variable to select another service.
        self._manager = os.environ.get("AZUREML_DEV_URL_MFE") or manager
        self._lock = threading.Lock()
        self._credential: Any = None
        self._not_before = 0.0
        self._about: dict[str, Any] | None = None

    def credential(self) -> Any:
        """Return a credential object for Azure's clients."""
        with self._lock:
            if self._credential is None:
                from azure.identity import DefaultAzureCredential

                authority = os.environ.get("AZURE_AUTHORITY_HOST") or self._authority
                self._credential = DefaultAzureCredential(authority=authority)
            return self._credential

    def codes(self, method: str, path: str, what: str, body: Any = None) -> Any:
        """Send a request about a version of a job's code, such as `NAME/versions/1`."""
        return self._manage(method, f"{self.where.id}/codes/{path}", _CODES_VERSION, what, body)

    def jobs(self, method: str, path: str, what: str, body: Any = None, *, on_behalf: bool = False) -> Any:
        """Send a request about a job, by its name.

        `on_behalf`: the job acts as the user, and gets the user's token.
        """
        return self._jobs(method, path, _JOBS_VERSION, what, body, on_behalf)

    def sweeps(self, method: str, path: str, what: str, body: Any = None, *, on_behalf: bool = False) -> Any:
        """Send a request about a sweep job, as `jobs` does."""
        return self._jobs(method, path, _SWEEPS_VERSION, what, body, on_behalf)

    def _jobs(self, method: str, path: str, version: str, what: str, body: Any, on_behalf: bool) -> Any:
        more = {"x-azureml-token": self._token(f"{self.studio}/.default", what)} if on_behalf else {}
        return self._manage(method, f"{self.where.id}/jobs/{path}", version, what, body, more)

    def other(self, method: str, path: str, what: str, body: Any = None) -> Any:
        """Send a request about any other object of the workspace. The empty path is the workspace itself."""
        return self._manage(method, f"{self.where.id}{path}", _VERSION, what, body)

    def environments(self, method: str, path: str, what: str, body: Any = None) -> Any:
        """Send a request about a version of an environment, such as `/environments/NAME/versions/1`."""
        return self._manage(method, f"{self.where.id}{path}", _ENVIRONMENTS_VERSION, what, body)

    def history(self, path: str, what: str) -> Any:
        """Return the workspace's run history at that path."""
        return self._ask("GET", f"{self._service(what)}/history/v1.0{self.where.id}/{path}", what, None, {})

    def mlflow(self, path: str, what: str, body: Any) -> Any:
        """Send a request to the workspace's MLflow, such as `runs/log-batch`."""
        place = f"{self._service(what)}/mlflow/v1.0{self.where.id}/api/2.0/mlflow"
        return self._ask("POST", f"{place}/{path}", what, body, {})

    def _service(self, what: str) -> str:
        """Return the address of the workspace's own service, which is not Azure's manager."""
        if self._about is None:
            self._about = self.other("GET", "", what)["properties"]
        return str(self._about["discoveryUrl"]).rpartition("/discovery")[0]

    def page(self, job: str) -> str:
        """Return the page of a job in the studio."""
        return f"{self.studio}/runs/{job}?wsid={self.where.id}"

    def _manage(
        self,
        method: str,
        path: str,
        version: str,
        what: str,
        body: Any,
        more: Mapping[str, str] | None = None,
    ) -> Any:
        url = f"{self._manager}{path}{'&' if '?' in path else '?'}api-version={version}"
        return self._ask(method, url, what, body, more or {})

    def _ask(self, method: str, url: str, what: str, body: Any, more: Mapping[str, str]) -> Any:
        """Return the answer. `what` completes the error text after `cannot`, such as `start a job`.

        Raises InUse, NotAllowed, NotThere, CredentialsExpired, LaunchError for any other permanent error, and
        Unreachable.
        """
        import requests

        wait_s = self._not_before - time.monotonic()
        if wait_s > 0:
            raise Unreachable(
                f"Azure ML does not {what} at the moment: it wants {wait_s:.0f} s of silence (429)"
            )
        headers = {"authorization": f"Bearer {self._token(self._scope, what)}", **more}
        try:
            answer = requests.request(method, url, json=body, headers=headers, timeout=_TIMES)
        except requests.RequestException as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise Unreachable(f"Azure ML does not {what} at the moment: {why}") from error
        if answer.ok:
            return answer.json() if answer.content else None
        raise self._refusal(what, answer)

    def _token(self, scope: str, what: str) -> str:
        from azure.core.exceptions import AzureError, ClientAuthenticationError

        try:
            return str(self.credential().get_token(scope).token)
        except ClientAuthenticationError as error:  # this kind includes missing credentials
            raise self._signed_out(what, str(error.message)) from error
        except AzureError as error:
            raise Unreachable(f"nobody can be signed in to Azure at the moment: {error.message}") from error

    def _signed_out(self, what: str, said: str) -> CredentialsExpired:
        with self._lock:
            self._credential = None
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        # Find what the chain of credentials reports about the last one, which is the user's own.
        line = next((each for each in reversed(lines) if "az login" in each), lines[0] if lines else "")
        return CredentialsExpired(
            f"cannot {what}: Azure knows no such user now: {line.rstrip('.')[:300]}. In a terminal: az "
            "login; or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET where JupyterLab is "
            "started, and never in a notebook"
        )

    def _refusal(self, what: str, answer: Any) -> DistError:
        status = int(answer.status_code)
        try:
            told = answer.json()["error"]
            code, said = str(told.get("code", "")), str(told.get("message", ""))
        except (ValueError, KeyError, AttributeError, TypeError):
            code, said = "", str(answer.text)
        said = " ".join(said.split()).rstrip(".")[:500]
        if status == 401:
            return self._signed_out(what, f"{code}: {said}")
        if status == 429:
            asked = answer.headers.get("retry-after", "")
            wait_s = float(asked) if re.fullmatch(r"\d+", asked) else 5.0
            self._not_before = time.monotonic() + wait_s
            return Unreachable(f"Azure ML does not {what} at the moment: too many requests (429)")
        if status == 408 or status >= 500:
            return Unreachable(f"Azure ML does not {what} at the moment: {code or status}: {said}")
        if status == 404:
            return NotThere(f"cannot {what}: it is not there ({code or 404}): {said}")
        if re.search("quota", f"{code} {said}", re.IGNORECASE):
            return LaunchError(
                f"cannot {what}: the subscription's quota: {said}. Ask for more in the studio, under Quota"
            )
        if status == 409:
            return InUse(f"cannot {what}: {said}")
        if status == 403:
            return NotAllowed(f"cannot {what}: it is not allowed ({code or 403}): {said}")
        return LaunchError(f"cannot {what}: Azure ML answers {code or status}: {said}")
