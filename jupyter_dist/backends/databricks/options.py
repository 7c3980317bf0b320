"""The options of the backend `databricks`."""

from __future__ import annotations

import re
import urllib.parse
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from ...cluster_form import Form
from ...option_fields import flag, matching
from ..shared_options.agent import Line, OtherPythonOptions
from ..shared_options.gpus import GpuOptions

__all__ = ["DatabricksOptions"]


_RUNTIME_OF = {"3.10": "14.3.x", "3.11": "15.4.x", "3.12": "16.4.x"}
"""For each Python, the newest runtime with long-term support."""
NEWEST_RUNTIME = "16.4.x"
"""The runtime for a notebook whose Python no runtime has."""


_SECRETS = ("--token", "--client-id", "--client-secret", "--password", "--azure-client-secret")


def _volume(value: str | None) -> str | None:
    if value is None:
        return None
    path = value.removeprefix("dbfs:").rstrip("/")
    if not re.fullmatch(r"/Volumes(/[^/\0\n]+){3,}", path) or ".." in path.split("/"):
        raise ValueError(f"needs the path of a Volume, /Volumes/CATALOG/SCHEMA/VOLUME, got {value!r:.100}")
    return path


def _host(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urllib.parse.urlsplit(value if "//" in value else f"https://{value}")
    here = parts.hostname in ("localhost", "127.0.0.1")
    if not parts.hostname or parts.username or (parts.scheme != "https" and not here):
        raise ValueError("needs the address of a workspace, such as https://adb-1.2.azuredatabricks.net")
    return f"{parts.scheme}://{parts.netloc}"


_KEY = "a runtime's key such as 15.4.x-cpu-ml-scala2.12"
_OF_NEW = ("new_cluster", "node_type", "workers", "runtime", "policy", "spot")


class DatabricksOptions(OtherPythonOptions, GpuOptions):
    """Options of the backend `databricks`."""

    form: ClassVar[Form] = Form(
        first=("profile", "volume", "cluster_id", "new_cluster", "np"),
        places=("profile", "host"),
        sections={
            "New cluster": "node_type workers runtime other_python policy spot",
            "Account": "host",
        },
    )

    profile: Line = flag(
        None,
        "Profile",
        "The profile of ~/.databrickscfg for the login, as `databricks auth login` writes "
        "it. Default: the environment, else DEFAULT",
        value=("NAME", "the name of a profile"),
    )
    host: Annotated[str | None, AfterValidator(_host)] = flag(
        None,
        "Workspace",
        "The address of the workspace, if no profile names it",
        value=("URL", "the address of a workspace"),
    )
    volume: Annotated[str | None, AfterValidator(_volume)] = flag(
        None,
        "Volume",
        "The Unity Catalog Volume for the run's files, which the ranks and this machine share",
        value=("PATH", "the path of a Volume, /Volumes/CATALOG/SCHEMA/NAME"),
    )
    cluster_id: Line = flag(
        None,
        "Cluster",
        "Run on this cluster. Databricks starts the cluster if it is not running",
        value=("ID", "a cluster's id such as 1122-101500-abcdefgh"),
        excludes=dict.fromkeys(_OF_NEW, "It is for a new cluster"),
    )
    new_cluster: bool = flag(False, "New cluster", "Run on a new cluster that is created only for this run")
    node_type: Line = flag(
        None,
        "Node type",
        "The node type of the new cluster, such as g4dn.xlarge",
        value=("TYPE", "the name of a node type"),
    )
    workers: int | None = flag(
        None,
        "Workers of the cluster",
        "The number of machines of the new cluster beside its driver. The ranks are spread "
        "over them evenly. 0: only the driver. Default: 1",
        ge=0,
        ranks=True,
    )
    runtime: Annotated[str | None, matching(r"\d+\.\d+\.x-[\w.-]+", _KEY)] = flag(
        None,
        "Runtime",
        "The Databricks runtime of the new cluster. Default: the ML runtime with this Python",
        value=("KEY", _KEY),
    )
    policy: Line = flag(
        None,
        "Policy",
        "The id of the cluster policy for the new cluster",
        value=("ID", "the id of a cluster policy"),
    )
    spot: bool = flag(
        False, "Spot machines", "Use spot machines for the workers of the new cluster, if any are available"
    )

    @property
    def mailbox(self) -> str:
        """The folder of the Volume that contains the mailboxes of all runs."""
        return f"{self.volume}/jupyter-dist"

    @property
    def nodes(self) -> int:
        """Number of machines of a new cluster that can run ranks."""
        return max(1, 1 if self.workers is None else self.workers)

    @property
    def ranks(self) -> int | None:
        return self.nodes if self.new_cluster else None

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        if flag in _SECRETS:
            return (
                "would be readable in the notebook by everybody. Log in with `databricks auth login` "
                "and name its --profile, or set DATABRICKS_TOKEN when you start JupyterLab"
            )
        return (
            "was replaced by --volume. Write --volume /Volumes/CATALOG/SCHEMA/VOLUME"
            if flag == "--dbfs"
            else None
        )
