"""The options of the backend `torchrun`, and the resulting number of ranks on each host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from ...cluster_form import Form
from ...errors import InputError
from ...hosts.openssh import LOCAL
from ...option_fields import flag, matching
from ...worker.gpus.devices import visible_gpus
from ..ranks.default_environment import cores
from ..shared_options.gpus import LauncherGpuOptions
from ..shared_options.hosts import LauncherHostOptions

__all__ = ["LAST_CALL_S", "Layout", "TorchrunOptions", "layout"]

LAST_CALL_S = 2
"""Seconds that a rendezvous with enough nodes waits for more.

Torch's default of 30 s delays every restart.
"""
_MEETING = (
    "works only with --rdzv-backend static. Set the address of the rendezvous with --rdzv-endpoint HOST:PORT"
)
_PAIRS = "NAME=VALUE pairs such as last_call_timeout=5,join_timeout=60"
_OUTPUT = (
    "has no effect here, because each rank's output is in a log of its own. Read it with "
    "`%dist logs --rank N`"
)
_PROGRAM = "has no effect here, because the workers run the cell. Remove it"
_INSTEAD = {
    **dict.fromkeys(("--master-addr", "--master-port", "--node-rank"), _MEETING),
    **dict.fromkeys(("--redirects", "-r", "--tee", "-t", "--log-dir", "--logs-specs"), _OUTPUT),
    **dict.fromkeys(("--local-ranks-filter", "--duplicate-stdout-filters"), _OUTPUT),
    "--duplicate-stderr-filters": _OUTPUT,
    **dict.fromkeys(("--module", "-m", "--no-python", "--run-path", "--start-method"), _PROGRAM),
    "--local-addr": "is not needed, because jupyter-dist finds the address of each host. Remove it",
    "--event-log-handler": (
        "has no effect here, because torchrun's messages are in its own log, beside the logs "
        "of the ranks. Remove it"
    ),
    "--signals-to-handle": "has no effect here, because `%dist stop` ends a run. Remove it",
}
"""Flags of torchrun, each with its replacement here."""


def _nodes(value: object) -> object:
    text = str(value)
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2] or match[1]):
        raise ValueError(f"needs a number of nodes such as 2, or MIN:MAX such as 1:4, got {text!r}")
    return text


def _processes(value: object) -> object:
    """Convert torchrun's words for the machine's devices, such as `gpu`."""
    counts = {"gpu": len(visible_gpus()), "cpu": cores(), "auto": len(visible_gpus()) or cores()}
    if isinstance(value, str) and value in counts:
        if not counts[value]:
            raise ValueError(f"is {value!r}, but this machine has none. Write the number of workers")
        return counts[value]
    return value


class TorchrunOptions(LauncherHostOptions, LauncherGpuOptions):
    """Options of the backend `torchrun`, under torchrun's own names."""

    form: ClassVar[Form] = Form(
        first=("np", "hosts", "nproc_per_node", "max_restarts", "env"),
        sections={
            "Nodes": "nnodes standalone role",
            "Rendezvous": "rdzv_backend rdzv_endpoint rdzv_conf rdzv_id",
            "Processes": "monitor_interval shutdown_timeout numa_binding virtual_local_rank",
        },
    )
    nnodes: Annotated[str, BeforeValidator(_nodes)] | None = flag(
        None,
        "Nodes",
        "The number of hosts, or MIN:MAX for a run that continues with fewer hosts when "
        "hosts are lost. The run may restart once for each lost host. Default: all named hosts",
        value=("N|MIN:MAX", "a number of nodes such as 2, or 1:4"),
        ranks=True,
    )
    nproc_per_node: Annotated[int, BeforeValidator(_processes), Field(ge=1)] | None = flag(
        None,
        "Workers per node",
        "The number of workers on each host, or gpu, cpu or auto: as many as this machine has of them, "
        "if no other hosts are named",
        value=("N|gpu|cpu|auto", "a whole number of at least 1, gpu, cpu or auto"),
        ranks=True,
    )
    rdzv_backend: str = flag(
        "c10d", "Rendezvous", "The rendezvous backend of torchrun: c10d (torch's own), etcd-v2, …"
    )
    rdzv_endpoint: str | None = flag(
        None,
        "Rendezvous endpoint",
        "HOST:PORT of the rendezvous. Default: a free port of the first host",
        metavar="HOST:PORT",
    )
    rdzv_conf: Annotated[str, matching(r"(\s*\w+=\s*[^=,\s][^=,]*(,(?!$)|$))*", _PAIRS)] = flag(
        "",
        "Rendezvous settings",
        f"More settings of the rendezvous. Default: last_call_timeout={LAST_CALL_S}",
        metavar="K=V,K=V",
    )
    monitor_interval: float = flag(
        0.1, "Monitor interval", "How often torchrun checks its workers, in seconds", gt=0
    )
    standalone: bool = flag(
        False, "Standalone", "Use only this machine. This is the default if no hosts are named"
    )
    rdzv_id: str | None = flag(
        None, "Rendezvous id", "The id of the rendezvous. Default: the id of the run", metavar="ID"
    )
    role: str | None = flag(None, "Role", "The role name of the workers in torchrun (ROLE_NAME)")
    shutdown_timeout: int | None = flag(
        None,
        "Shutdown timeout",
        "How long torchrun waits for workers to end before it kills them, in seconds",
        ge=0,
    )
    numa_binding: Literal["node", "socket", "exclusive", "core-complex"] | None = flag(
        None, "NUMA binding", "Bind workers to the CPUs that are near their GPU"
    )
    virtual_local_rank: bool = flag(
        False, "Virtual local rank", "Each worker sees only its own GPU, with LOCAL_RANK 0"
    )

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        return _INSTEAD.get(flag.replace("_", "-"))

    @model_validator(mode="before")
    @classmethod
    def _count_here(cls, given: Any) -> Any:
        """Refuse a word for the devices of other hosts: the ranks are counted before any connection."""
        if not isinstance(given, Mapping) or given.get("nproc_per_node") not in ("gpu", "cpu", "auto"):
            return given
        if any(host["name"] != LOCAL for host in given.get("hosts") or ()):
            raise ValueError(
                f"--nproc-per-node {given['nproc_per_node']} counts the devices of this machine, and -H or "
                "--hostfile names other hosts. Write the number of workers on each host"
            )
        return given

    @property
    def ranks(self) -> int | None:
        try:
            return layout(None, self).ranks
        except InputError:
            return 1  # `check` reports the error


@dataclass(frozen=True)
class Layout:
    """The number of ranks on each host, and the number of hosts."""

    per_node: tuple[int, ...]
    least: int
    """Smallest number of hosts with which the run can continue."""

    @property
    def ranks(self) -> int | None:
        return sum(self.per_node) or None

    @property
    def nodes(self) -> str:
        most = len(self.per_node)
        return str(most) if self.least == most else f"{self.least}:{most}"


def layout(np: int | None, options: TorchrunOptions) -> Layout:
    """Return the placement of the ranks. Without -np and other numbers, the ranks are not counted yet (0).

    Raises InputError if the given numbers contradict each other.
    """
    hosts, each = options.hosts, options.nproc_per_node
    least, _, most = (options.nnodes or "1").partition(":")
    here = max(1, len(hosts))
    if options.nnodes is None:
        nodes = least_nodes = here
        if np is not None and each is None and hosts:
            # As mpirun does: host after host, each up to its slots.
            filled: list[int] = []
            for host in hosts:
                filled.append(min(int(host["slots"]), np - sum(filled)))
            filled = [count for count in filled if count]
            return Layout(tuple(filled), len(filled))
        if each is not None and np is not None and np % each == 0:
            nodes = least_nodes = min(np // each, here)
    else:
        least_nodes, nodes = int(least), min(int(most or least), here)
    if least_nodes > here:
        where = "this machine is the only one" if not hosts else f"only {len(hosts)} are named"
        raise InputError(
            f"--nnodes {options.nnodes} needs more hosts, but {where}. Name them with -H node1:4,node2:4"
        )
    if each is None and np is None:
        return Layout(tuple(int(host["slots"]) for host in hosts[:nodes]), least_nodes)
    if each is None:
        assert np is not None
        if np % nodes:
            raise InputError(
                f"-np {np} cannot be divided evenly among --nnodes {nodes}. Use a multiple of {nodes}"
            )
        each = np // nodes
    elif np is not None and each * nodes != np:
        raise InputError(
            f"-np {np} is not --nnodes {nodes} times --nproc-per-node {each}, which is "
            f"{nodes * each}. Remove one of these flags"
        )
    return Layout((each,) * nodes, least_nodes)
