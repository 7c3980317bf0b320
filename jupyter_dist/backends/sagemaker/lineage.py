"""The lineage of a run: artifacts of its inputs and its model, and their associations with its entry.

They are those of the SDK's `Run`.

https://docs.aws.amazon.com/sagemaker/latest/dg/lineage-tracking-entities.html
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from ...errors import LaunchError
from .account import AwsAccount

__all__ = ["note_lineage"]

_MOST = 120


def note_lineage(account: AwsAccount, entry: str, inputs: Mapping[str, str], model: str | None) -> None:
    """Associate the entry with its inputs and its model. Repeatable. Blocks. Raises DistError.

    `entry`: the ARN of the run's component. `inputs`, `model`: their addresses.
    """
    for name, address in inputs.items():
        _associate(account, _artifact(account, name, "DataSet", address), entry, "ContributedTo")
    if model is not None:
        _associate(account, entry, _artifact(account, "model", "Model", model), "Produced")


def _artifact(account: AwsAccount, name: str, kind: str, address: str) -> str:
    """Return the ARN of the artifact with that address. It is created if there is none."""
    with account.asking(f"look for the artifact {address}") as client:
        known = client.list_artifacts(SourceUri=address, ArtifactType=kind)["ArtifactSummaries"]
    if known:
        return str(known[0]["ArtifactArn"])
    called = re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-")[:_MOST] or kind
    with account.asking(f"make the artifact {address}") as client:
        made = client.create_artifact(
            ArtifactName=called, ArtifactType=kind, Source={"SourceUri": address, "SourceTypes": []}
        )
        return str(made["ArtifactArn"])


def _associate(account: AwsAccount, source: str, destination: str, kind: str) -> None:
    with contextlib.suppress(_AlreadyThere), account.asking("note what a run has used and made") as client:
        try:
            client.add_association(SourceArn=source, DestinationArn=destination, AssociationType=kind)
        except client.exceptions.ClientError as error:
            if "already exist" in str(error):
                raise _AlreadyThere from error
            raise


class _AlreadyThere(LaunchError):
    """An earlier call has made it."""
