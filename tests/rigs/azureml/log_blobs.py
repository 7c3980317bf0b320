"""The blobs that a job's processes print into, which grow while somebody asks for them.

The service has them in a container of the workspace's own, and names each with an address that may be read.
"""

from __future__ import annotations

import datetime
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from tests.rigs.kept_plane import Faults

from .azurite import ACCOUNT, KEY

if TYPE_CHECKING:
    from .command_run import CommandRun

__all__ = ["LogBlobs"]

_EVERY_S = 0.1
_MOST = 1 << 20
"""Of one append."""


class LogBlobs:
    """Of one job. `container`: a client of the one that all lie in, which is called so."""

    container: ClassVar[str] = "azureml"

    def __init__(self, job: CommandRun, container: Any, late_s: float, own_faults: Faults) -> None:
        """`late_s`: so long after the job's end comes what it has printed last."""
        self._job, self._container, self._late_s, self._own_faults = job, container, late_s, own_faults
        self._sizes: dict[str, int] = {}
        self._write()
        threading.Thread(target=self._work, name=f"logs of {job.name}", daemon=True).start()

    def addresses(self, store: str, good_for_s: float) -> dict[str, str]:
        """Of each log, and of one that is no process's."""
        from azure.storage.blob import generate_blob_sas

        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=good_for_s)
        found = {}
        for name in ["system_logs/lifecycler/lifecycler.log", *list(self._sizes)]:
            blob = self._blob(name)
            signature = generate_blob_sas(
                ACCOUNT, self.container, blob, account_key=KEY, permission="r", expiry=until
            )
            found[name] = f"{store}/{blob}?{signature}"
        return found

    def _blob(self, name: str) -> str:
        return f"ExperimentRun/dcid.{self._job.name}/{name}"

    def _work(self) -> None:
        try:
            self._follow()
        except Exception:
            self._own_faults.note(f"logs of {self._job.name}")

    def _follow(self) -> None:
        goes_on = True
        while goes_on:
            time.sleep(_EVERY_S)
            goes_on = self._job.active  # before what is written last
            if not goes_on:
                time.sleep(self._late_s)
            self._write()

    def _write(self) -> None:
        for name, printed in list(self._job.printed.items()):
            blob = self._container.get_blob_client(self._blob(name))
            if name not in self._sizes:
                blob.create_append_blob()
                self._sizes[name] = 0
            while new := bytes(printed[self._sizes[name] : self._sizes[name] + _MOST]):
                blob.append_block(new)
                self._sizes[name] += len(new)
