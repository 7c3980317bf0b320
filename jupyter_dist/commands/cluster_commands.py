"""The commands `clusters` and `use`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict, Field

from .. import backends, clusters
from ..backends import detection
from ..clusters import Cluster
from ..errors import DistError, InputError
from ..flags import Flag, flags_of
from ..options import NOT_SAVED
from ..plan.run_plan import make_plan, meant, read_command_line, run_flags
from ..showing import display
from ..text.table import Message, Table
from .run_commands import Command, Context, Empty, about_site, command

__all__ = ["CLUSTER_COMMANDS"]

_FRESH_S = 15.0
"""Within this time, a second list of the clusters shows the earlier results."""
_NOT_IN_ADD = tuple(name for name in NOT_SAVED if name != "backend")


class _Add(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    replace: bool = Field(False, description="Replace the cluster if this name is already saved")


class _Use(Empty):
    none: bool = Field(False, description="Use no cluster")


def _list(context: Context, _: Empty, __: tuple[str, ...]) -> Table:
    rows = []
    saved = clusters.load()
    sites = _sites({cluster.backend for cluster in saved.values()})
    for cluster in saved.values():
        said = clusters.problem(cluster) or ("in use" if cluster.name == clusters.used() else "")
        site = detection.site_of(cluster.options, sites.get(cluster.backend, ()))
        told = "; ".join(filter(None, (said, "" if site is None else about_site(site))))
        rows.append((cluster.name, cluster.backend, _options(cluster), told))
    columns = ("cluster", "backend", "options", "")
    return Table(
        columns,
        rows,
        data=list(saved.values()),
        empty=f"No cluster is saved. Save one with `{display.command()} clusters add NAME --backend B …`",
    )


def _sites(names: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the sites that these backends find. Backends that do not look for sites are left out."""
    asked = []
    for name in names:
        with contextlib.suppress(DistError):  # the list shows this error beside the cluster
            if backends.declared(name).capabilities.sites:
                asked.append(name)
    return {name: found.sites for name, found in detection.ask(asked, fresh_s=_FRESH_S).items()}


def _options(cluster: Cluster) -> str:
    # Values of --env can be secrets, and people often show this list to others.
    shown = {k: "{…}" if k == "env" else v for k, v in cluster.options.items()}
    return ", ".join(f"{key} = {value}" for key, value in shown.items())


def _add(context: Context, tokens: Sequence[str]) -> Message:
    own = flags_of(_Add)
    line = read_command_line(tokens, leave_out=_NOT_IN_ADD, more=own)
    if len(line.rest) != 1:
        raise InputError(
            "clusters add needs one NAME" + (f", got {' '.join(line.rest)!r}" if line.rest else "")
        )
    name = clusters.check_name(line.rest[0])
    given = dict(line.given)
    replace = bool(given.pop("replace", False))
    given.pop("backend", None)
    given |= meant(line.backend, given.get("np"))  # -np -2 of spark, which no saved np can have
    plan = make_plan({**given, "backend": line.backend.name}, cluster=False, now=False)
    values = clusters.to_save(given, plan.run, plan.options)
    clusters.add(Cluster(name, line.backend.name, values), replace=replace)
    return Message(f"Saved. Use it with %%distribute --cluster {name}")


def _add_flags() -> Sequence[tuple[str, Sequence[Flag]]]:
    run = [flag for flag in run_flags() if flag.field not in _NOT_IN_ADD]
    local = flags_of(backends.declared("local").options)
    return [("flags", [*flags_of(_Add), *run]), ("flags of the backend 'local'", local)]


def _rm(context: Context, _: Empty, names: tuple[str, ...]) -> Message:
    clusters.remove(names[0])
    return Message(f"removed {names[0]}")


def _show(context: Context, _: Empty, names: tuple[str, ...]) -> Message:
    cluster = clusters.get(names[0])
    launched = {} if cluster.launched_from is None else {"launched_from": cluster.launched_from}
    text = tomlkit.dumps({"backend": cluster.backend, **launched, **cluster.options}).strip()
    return Message(text)


def _use(context: Context, flags: _Use, names: tuple[str, ...]) -> Any:
    if context.terminal:
        raise InputError(
            "`use` works only in a notebook, because it sets the cluster of a kernel. In a "
            "terminal, write `jupyter dist run --cluster NAME SCRIPT`"
        )
    if names and flags.none:
        raise InputError("use accepts a NAME or --none, but not both")
    if names or flags.none:
        clusters.use(names[0] if names else None)
    name = clusters.used()
    return Message(f"this notebook uses the cluster {name!r}" if name else "this notebook uses no cluster")


_CHILDREN = (
    command("list", "", "List the saved clusters.", _list),
    Command("add", "add NAME [flags]", "Save a backend and flags under a name.", _add, _add_flags),
    command("show", "NAME", "Show the settings of a cluster.", _show, at_least=1, at_most=1),
    command("rm", "NAME", "Delete a saved cluster.", _rm, at_least=1, at_most=1),
)
CLUSTER_COMMANDS = (
    Command(
        "clusters",
        "clusters [list|add|show|rm] …",
        "Saved backends with their flags, for %%distribute --cluster NAME.",
        _CHILDREN[0].do,
        children=_CHILDREN,
    ),
    command(
        "use",
        "[NAME]",
        "Make a cluster the default of this notebook. JupyterLab saves the choice in the notebook. In other "
        "programs it ends with the kernel.",
        _use,
        _Use,
        at_most=1,
    ),
)
