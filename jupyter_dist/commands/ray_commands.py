"""The command `ray`: running Ray clusters, and clusters launched from a cluster-launcher file."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import Field

from ..backends.ray import cluster_discovery
from ..start import finish, ray_clusters
from ..start.ray_clusters import Verb
from ..text.table import Table
from .run_commands import Command, Context, Empty, about_site, command

__all__ = ["RAY_COMMANDS"]

_OPEN_LIMIT_S = 60.0


class _Launch(Empty):
    name: str | None = Field(
        None,
        description="The name under which the cluster is saved. Default: the name in the file",
        json_schema_extra={"metavar": "NAME"},
    )
    detach: bool = Field(False, description="Return at once. The run continues in the background")


def _list(context: Context, _: Empty, __: tuple[str, ...]) -> Table:
    found = cluster_discovery.detect()
    rows = [(site["name"], about_site(site)) for site in found.get("sites", ())]
    version = f"Ray {found['Ray']}: " if found else "Ray is not installed: pip install 'jupyter-dist[ray]'"
    return Table(("address", "what it has"), rows, data=found, empty=version + found.get("no_site", ""))


def _launch(verb: Verb, context: Context, flags: _Launch, words: tuple[str, ...]) -> Any:
    run = ray_clusters.begin(verb, words[0], flags.name)
    if flags.detach:
        return run
    if verb != "attach":
        return finish(run)
    if context.terminal:
        from ..showing import live

        live.follow(run, interrupt="leave", result=True)
    elif not ray_clusters.wait_until_open(run, _OPEN_LIMIT_S):
        run.raise_for_state()
    return run


_FILE = "CLUSTER.yaml"
_CHILDREN = (
    command("list", "", "List the running Ray clusters: nodes, CPUs, GPUs, memory.", _list),
    command(
        "up",
        _FILE,
        "Launch a cluster from its file, and save it for %%distribute --cluster NAME.",
        partial(_launch, "up"),
        _Launch,
        at_least=1,
        at_most=1,
    ),
    command(
        "attach",
        _FILE,
        "Keep a connection to a launched cluster open, and show its autoscaler's log, until "
        "you stop the run.",
        partial(_launch, "attach"),
        _Launch,
        at_least=1,
        at_most=1,
    ),
    command(
        "down",
        _FILE,
        "Terminate the nodes of a launched cluster, and delete the saved cluster.",
        partial(_launch, "down"),
        _Launch,
        at_least=1,
        at_most=1,
    ),
)
RAY_COMMANDS = (
    Command(
        "ray",
        "ray [list|up|attach|down] …",
        "Running Ray clusters, and clusters launched from a cluster-launcher file.",
        _CHILDREN[0].do,
        children=_CHILDREN,
    ),
)
