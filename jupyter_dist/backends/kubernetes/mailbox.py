"""The mailbox of a run's pods, for clusters that forbid exec into pods.

The mailbox is a folder or a bucket that the pods and the driver share. Each pod then runs a mailbox relay
(agent/mailbox_relay.py) in place of its main program.

A relay's number follows from its pod's UID, so no other pod reads the messages for a deleted pod. A Secret of
the Job has the mailbox's address and the run's key.
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
"""Seconds that a running pod may need to fetch our code and to answer."""
_WAITS_S = 20.0
"""Seconds that a pod waits for the mailbox to appear. Its content is uploaded before the pod is created."""
_TOLD = ("MAILBOX", "MAILBOX_RUN", "MAILBOX_KEY", "MAILBOX_CODE")
_WHERE = {
    "AWS_ENDPOINT_URL": ("AWS_ENDPOINT_URL",),
    "AWS_ENDPOINT_URL_S3": ("AWS_ENDPOINT_URL_S3",),
    "AWS_REGION": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""Variables with the bucket's address, which is no secret. The pods' template may override them."""
# Kubernetes replaces `$(NAME)` in a command by its own variables.
NUMBERED = NOT_OURS + (
    "uid=$JUPYTER_DIST_POD_UID; rest=${uid#*-}; "
    "JUPYTER_DIST_MAILBOX_NODE=`printf %d 0x${uid%%-*}${rest%%-*}`; export JUPYTER_DIST_MAILBOX_NODE; "
)
"""Shell code that computes the relay's number, as `number_of` does."""


def number_of(uid: str) -> int:
    """Return a pod's number in the mailbox: the first 48 bits of its UID, which are random."""
    first, second, *_ = uid.split("-")
    return int(first + second, 16)


def mail_env(name: str) -> list[dict[str, Any]]:
    """Return a container's variables from the Secret of that name.

    A template's variables follow them, and override them.
    """
    found = [(f"JUPYTER_DIST_{each}", False) for each in _TOLD] + [(each, True) for each in _WHERE]
    waits = {"name": "JUPYTER_DIST_MAILBOX_WAITS_S", "value": f"{_WAITS_S:g}"}
    return [waits] + [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": optional}}}
        for key, optional in found
    ]


class PodMailbox:
    """The mailbox, on the driver's side."""

    def __init__(self, url: str, folder: RunFolder) -> None:
        self._mailbox = Mailbox(url, folder, opening_s=_OPENING_S)
        self._has_none = False

    @property
    def trouble(self) -> str | None:
        return self._mailbox.trouble

    def leave_files(self) -> None:
        """Upload what the pods need into the mailbox. Raises LaunchError."""
        try:
            self._mailbox.upload()
        except StoreError as error:
            self._has_none = True
            raise LaunchError(
                f"--mailbox {self._mailbox.url}: nothing can be left there ({error}). Nothing was started."
            ) from None

    def close(self) -> None:
        """Remove what is left in the run's mailbox. Repeatable. Never raises."""
        if not self._has_none:
            self._mailbox.close()

    def secret(self, owner: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return the Secret with the mailbox's address and key for the pods.

        The cluster deletes the Secret with its `owner`, the created Job. Both have the same labels.
        """
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
            "metadata": {"name": name, "labels": kept["labels"], "ownerReferences": [reference]},
            "stringData": told,
        }

    def reach(self, site: Site, wish: Mapping[str, Any], files: Sequence[Shipped]) -> Link:
        link = self._mailbox.reach(site.host, wish, files)
        link.node = number_of(site.uid)
        return link
