"""Access of this machine and a job's hosts to the blob container of a workspace's datastore.

This machine requests the datastore's key or signature from the workspace, as Azure's own SDK does. If there
is none, it uses the user's identity. Hosts get a signature for this container alone, or none if the job has
an identity.
https://learn.microsoft.com/rest/api/azureml/datastores/list-secrets
"""

from __future__ import annotations

import datetime
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any

from ...agent.stores.blob_store import container_of
from ...agent.stores.store import StoreError
from ...errors import DistError, LaunchError, Unreachable
from ...hosts.stores.azure_container import ContainerStore
from .workspace import MlWorkspace, NotAllowed

__all__ = ["LIFE", "MailboxAccess", "life_of"]

_FOLDER = "jupyter-dist"
LIFE = datetime.timedelta(days=7)
"""Lifetime of a signature: the longest that a user's own right allows."""
_SKEW = datetime.timedelta(minutes=15)
"""Largest difference between this machine's clock and Azure's for which a user's own signature is valid."""
_RIGHTS = "rcwdl"


def life_of(signature: str) -> float | None:
    """Return for how many seconds a signature is valid, by its field `se`. None: a policy determines it.

    https://learn.microsoft.com/rest/api/storageservices/create-service-sas
    """
    said = urllib.parse.parse_qs(signature.lstrip("?")).get("se")
    if not said:
        return None
    try:
        until = datetime.datetime.fromisoformat(said[0].replace("Z", "+00:00"))
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=datetime.timezone.utc)
    return (until - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def _life(secrets: Mapping[str, Any]) -> datetime.timedelta:
    """Return the lifetime of a signature that this machine makes.

    Azure refuses a user's own key that expires more than seven days after Azure's present time.
    https://learn.microsoft.com/rest/api/storageservices/get-user-delegation-key
    """
    return LIFE if secrets.get("key") else LIFE - _SKEW


class MailboxAccess:
    """Access to the datastore folder that contains the mailboxes of all runs. For several threads."""

    def __init__(self, workspace: MlWorkspace, datastore: str) -> None:
        self.workspace, self._name = workspace, datastore
        self._lock = threading.Lock()
        self._about: dict[str, Any] | None = None
        self._secrets: dict[str, Any] | None = None

    def store(self) -> ContainerStore:
        """Return the store for this machine. Blocks. Raises StoreError."""
        try:
            return ContainerStore(self.url(), self._credential)
        except DistError as error:
            raise StoreError(str(error)) from error

    def url(self) -> str:
        """Return the URL of the folder. Blocks. Raises DistError."""
        about = self._datastore()
        domain, account = str(about["endpoint"]), about["accountName"]
        # The emulator is recognized by its address, and has the account's name in the path.
        emulated = domain.partition(":")[0].replace(".", "").isdecimal()
        host = f"{domain}/{account}" if emulated else f"{account}.blob.{domain}"
        return f"{about.get('protocol') or 'https'}://{host}/{about['containerName']}/{_FOLDER}"

    def signature(self) -> str:
        """Return the signature for hosts without an identity. Blocks. Raises DistError."""
        from azure.core.exceptions import AzureError, HttpResponseError
        from azure.storage.blob import BlobServiceClient, generate_container_sas

        about, secrets = self._datastore(), self._keys()
        if "sasToken" in secrets:
            return str(secrets["sasToken"]).lstrip("?")
        now = datetime.datetime.now(datetime.timezone.utc)
        until = now + _life(secrets)
        by: dict[str, Any] = {"account_key": secrets.get("key")}
        if not by["account_key"]:
            service = container_of(self.url())[0].rpartition("/")[0]
            try:
                client = BlobServiceClient(service, credential=self.workspace.credential())
                by = {"user_delegation_key": client.get_user_delegation_key(now - _SKEW, until)}
            except HttpResponseError as error:
                raise LaunchError(
                    f"the datastore {self._name!r} has no key, and you may not sign for its hosts: "
                    f"{error.error_code}. You need the role 'Storage Blob Data Contributor' on the "
                    f"storage account {about['accountName']!r}. Or add --identity managed or user"
                ) from error
            except AzureError as error:
                raise Unreachable(f"the storage account does not answer: {error.message}") from error
        return str(
            generate_container_sas(
                about["accountName"], about["containerName"], permission=_RIGHTS, expiry=until, **by
            )
        )

    def life_s(self) -> float | None:
        """Return for how many seconds a signature of now allows hosts to write. None: unknown.

        Blocks. Raises DistError.
        """
        secrets = self._keys()
        return life_of(str(secrets["sasToken"])) if "sasToken" in secrets else _life(secrets).total_seconds()

    def _credential(self) -> Any:
        """Return new credentials after the store has rejected the earlier ones.

        Keys are rotated now and then.
        """
        with self._lock:
            self._secrets = None
        secrets = self._keys()
        if "sasToken" in secrets:
            return str(secrets["sasToken"])
        if secrets.get("key"):
            return {"account_name": self._datastore()["accountName"], "account_key": secrets["key"]}
        return self.workspace.credential()

    def _datastore(self) -> dict[str, Any]:
        with self._lock:
            if self._about is None:
                told = self.workspace.other(
                    "GET", f"/datastores/{self._name}", f"use the datastore {self._name!r}"
                )
                about = told["properties"]
                if about.get("datastoreType") != "AzureBlob":
                    raise LaunchError(
                        f"the datastore {self._name!r} is of the kind {about.get('datastoreType')}, and the "
                        "mailbox of a run needs one of blobs: --datastore workspaceblobstore"
                    )
                self._about = about
            return self._about

    def _keys(self) -> dict[str, Any]:
        """Return the datastore's secrets, kept only in memory. Empty if the user may not read them."""
        about = self._datastore()
        with self._lock:
            if self._secrets is None:
                kind = (about.get("credentials") or {}).get("credentialsType")
                if kind not in ("AccountKey", "Sas"):
                    self._secrets = {}
                    return self._secrets
                what = f"read the key of the datastore {self._name!r}"
                try:
                    told = self.workspace.other("POST", f"/datastores/{self._name}/listSecrets", what)
                except NotAllowed:
                    told = {}
                self._secrets = dict(told)
            return self._secrets
