"""A workspace of Azure Machine Learning, and the user's credentials for it, which azure-identity finds.

They come from where all of Azure's tools have them: the environment, the identity of the machine, `az login`.
https://learn.microsoft.com/python/api/azure-identity/azure.identity.defaultazurecredential

The calls are few, and plain REST: Microsoft's own package for them is forty packages and seconds of imports.
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
from ..platform_job import CredentialsExpired

__all__ = ["InUse", "MlWorkspace", "NotAllowed", "NotThere", "WorkspaceId", "workspace_here"]

_TIMES = (5.0, 30.0)
"""Seconds to connect, and for an answer. Whoever calls here asks again for much longer."""
_CODES_VERSION, _JOBS_VERSION, _VERSION = "2023-04-01", "2025-01-01-preview", "2024-04-01"
_SWEEPS_VERSION = "2024-01-01-preview"
"""Of the API: those with which Azure's own SDK asks for the same (tests/golden/azureml_requests.json)."""
_CLOUDS = {
    "AzureCloud": ("https://management.azure.com", "https://ml.azure.com"),
    "AzureChinaCloud": ("https://management.chinacloudapi.cn", "https://ml.azure.cn"),
    "AzureUSGovernment": ("https://management.usgovcloudapi.net", "https://ml.azure.us"),
}
"""By the names that AZUREML_CURRENT_CLOUD takes: who manages resources there, and the studio."""


class NotThere(LaunchError):
    """What was asked for is not in the workspace."""


class NotAllowed(LaunchError):
    """The user has no right to it."""


class InUse(LaunchError):
    """There is one of that name already."""


@dataclass(frozen=True)
class WorkspaceId:
    """Which workspace."""

    subscription: str
    resource_group: str
    workspace: str

    @property
    def id(self) -> str:
        """As Azure Resource Manager names it."""
        return (
            f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"
            f"/providers/Microsoft.MachineLearningServices/workspaces/{self.workspace}"
        )


def workspace_here(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Options of the workspace that a compute instance is of, or that config.json above a folder names, which
    the studio gives out for download. Nothing where there is none."""
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
    """Where Azure's SDK looks for it, in the same order."""
    for above in (folder, *folder.parents):
        for inside in (".azureml", "aml_config", "."):
            yield above / inside / "config.json"


class MlWorkspace:
    """A workspace. It is signed in to when it is asked first, and again once it has refused: its user may
    have signed in anew meanwhile. For several threads."""

    def __init__(self, where: WorkspaceId) -> None:
        self.where = where
        cloud = os.environ.get("AZUREML_CURRENT_CLOUD") or "AzureCloud"
        if cloud not in _CLOUDS:
            raise InputError(f"AZUREML_CURRENT_CLOUD is one of {', '.join(_CLOUDS)}, and it is {cloud!r:.80}")
        manager, self.studio = _CLOUDS[cloud]
        self._scope = f"{manager}/.default"
        # The one with which Azure's own SDK is led elsewhere.
        self._manager = os.environ.get("AZUREML_DEV_URL_MFE") or manager
        self._lock = threading.Lock()
        self._credential: Any = None
        self._not_before = 0.0
        self._about: dict[str, Any] | None = None

    def credential(self) -> Any:
        """What Azure's clients take as such."""
        with self._lock:
            if self._credential is None:
                from azure.identity import DefaultAzureCredential

                self._credential = DefaultAzureCredential()
            return self._credential

    def codes(self, method: str, path: str, what: str, body: Any = None) -> Any:
        """Of a version of a job's code, such as `NAME/versions/1`."""
        return self._manage(method, f"{self.where.id}/codes/{path}", _CODES_VERSION, what, body)

    def jobs(self, method: str, path: str, what: str, body: Any = None, *, on_behalf: bool = False) -> Any:
        """Of a job, by its name. `on_behalf`: it will act as the user, whose token it gets therefore."""
        return self._jobs(method, path, _JOBS_VERSION, what, body, on_behalf)

    def sweeps(self, method: str, path: str, what: str, body: Any = None, *, on_behalf: bool = False) -> Any:
        """Of a sweep job, as `jobs`."""
        return self._jobs(method, path, _SWEEPS_VERSION, what, body, on_behalf)

    def _jobs(self, method: str, path: str, version: str, what: str, body: Any, on_behalf: bool) -> Any:
        more = {"x-azureml-token": self._token(f"{self.studio}/.default", what)} if on_behalf else {}
        return self._manage(method, f"{self.where.id}/jobs/{path}", version, what, body, more)

    def other(self, method: str, path: str, what: str, body: Any = None) -> Any:
        """Of anything else in the workspace; an empty path is the workspace itself."""
        return self._manage(method, f"{self.where.id}{path}", _VERSION, what, body)

    def history(self, path: str, what: str) -> Any:
        """Of what the workspace has noted of a run."""
        return self._ask("GET", f"{self._service(what)}/history/v1.0{self.where.id}/{path}", what, None, {})

    def mlflow(self, path: str, what: str, body: Any) -> Any:
        """Of the workspace's MLflow, such as `runs/log-batch`."""
        place = f"{self._service(what)}/mlflow/v1.0{self.where.id}/api/2.0/mlflow"
        return self._ask("POST", f"{place}/{path}", what, body, {})

    def _service(self, what: str) -> str:
        """The workspace's own service, which is not Azure's manager."""
        if self._about is None:
            self._about = self.other("GET", "", what)["properties"]
        return str(self._about["discoveryUrl"]).rpartition("/discovery")[0]

    def page(self, job: str) -> str:
        """The page of a job in the studio."""
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
        """What it answers. `what` is told after `cannot` where it fails, such as `start a job`.

        Raises InUse, NotAllowed, NotThere, CredentialsExpired, LaunchError for any other answer that will not
        change by itself, and Unreachable."""
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
        except ClientAuthenticationError as error:  # of which a lack of credentials is one
            raise self._signed_out(what, str(error.message)) from error
        except AzureError as error:
            raise Unreachable(f"nobody can be signed in to Azure at the moment: {error.message}") from error

    def _signed_out(self, what: str, said: str) -> CredentialsExpired:
        with self._lock:
            self._credential = None
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        # What does the chain of credentials say of the last one, which is the user's own?
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
