"""The mailbox of a run's pods, where exec into pods is not allowed: a folder, or a bucket, that they and we
reach. Each pod then runs a courier (agent/mailbox_relay.py) in place of its keeper.

A courier has its number from its pod's UID: what is meant for a pod that is gone is for no other one. Where
the mailbox is, and the run's key, it has from a Secret that goes with the Job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...agent.stores.store import StoreError
from ...errors import LaunchError
from ...folder import RunFolder
from ...hosts.links.link import Link
from ...hosts.links.mailbox import Mailbox
from ...hosts.staged_files import Shipped
from .exec_transport import NOT_OURS, Site

__all__ = ["NUMBERED", "PodMailbox", "mail_env", "number_of"]

_OPENING_S = 120.0
"""For a pod that is up to fetch our code, and to answer."""
_WAITS_S = 20.0
"""For the mailbox to be there, as a pod sees it: what it needs lies there before the pod is made."""
_TOLD = ("MAILBOX", "MAILBOX_RUN", "MAILBOX_KEY", "MAILBOX_CODE")
_WHERE = {
    "AWS_ENDPOINT_URL": ("AWS_ENDPOINT_URL",),
    "AWS_ENDPOINT_URL_S3": ("AWS_ENDPOINT_URL_S3",),
    "AWS_REGION": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""Where the bucket is, which is no secret: as here, unless the pods' template says otherwise."""
# Kubernetes takes `$(NAME)` in a command for a variable of its own.
NUMBERED = NOT_OURS + (
    "uid=$JUPYTER_DIST_POD_UID; rest=${uid#*-}; "
    "JUPYTER_DIST_MAILBOX_NODE=`printf %d 0x${uid%%-*}${rest%%-*}`; export JUPYTER_DIST_MAILBOX_NODE; "
)
"""A shell gives the courier its number, as `number_of` does."""


def number_of(uid: str) -> int:
    """A pod's number in the mailbox: the first 48 bits of its UID, which are random."""
    first, second, *_ = uid.split("-")
    return int(first + second, 16)


def mail_env(name: str) -> list[dict[str, Any]]:
    """A container's variables, from the Secret of that name. Those that a template has come behind them, and
    before them in importance."""
    found = [(f"JUPYTER_DIST_{each}", False) for each in _TOLD] + [(each, True) for each in _WHERE]
    waits = {"name": "JUPYTER_DIST_MAILBOX_WAITS_S", "value": f"{_WAITS_S:g}"}
    return [waits] + [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": optional}}}
        for key, optional in found
    ]


class PodMailbox:
    """The mailbox, as a run's driver has it."""

    def __init__(self, url: str, folder: RunFolder) -> None:
        self._mailbox = Mailbox(url, folder, opening_s=_OPENING_S)
        self._has_none = False

    @property
    def trouble(self) -> str | None:
        return self._mailbox.trouble

    def leave_files(self) -> None:
        """Have in the mailbox what the pods need. Raises LaunchError."""
        try:
            self._mailbox.upload()
        except StoreError as error:
            self._has_none = True
            raise LaunchError(
                f"--mailbox {self._mailbox.url}: nothing can be left there ({error}). Nothing was started."
            ) from None

    def close(self) -> None:
        """Remove what is left of the run's mail. Repeatable; never raises."""
        if not self._has_none:
            self._mailbox.close()

    def secret(self, owner: Mapping[str, Any]) -> dict[str, Any]:
        """The Secret by which pods find the mailbox. It goes with its `owner`, the Job as it was made, and
        is called and labelled as that is."""
        _, told = self._mailbox.host_program(None)
        told = {f"JUPYTER_DIST_{each}": told[f"JUPYTER_DIST_{each}"] for each in _TOLD}
        for variable, names in _WHERE.items():
            value = next((os.environ[each] for each in names if os.environ.get(each)), None)
            if value is not None:
                told[variable] = value
        kept = owner["metadata"]
        whose = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        reference = {**whose, "name": kept["name"], "uid": kept["uid"]}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": kept["name"], "labels": kept["labels"], "ownerReferences": [reference]},
            "stringData": told,
        }

    def reach(self, site: Site, wish: Mapping[str, Any], files: Sequence[Shipped]) -> Link:
        link = self._mailbox.reach(site.host, wish, files)
        link.node = number_of(site.uid)
        return link
