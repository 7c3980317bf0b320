"""The options of horovodrun, with the names that its users know."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator

from ...cluster_form import Form
from ...hosts.openssh import SshSettings
from ...option_fields import flag
from ...worker.layout import launcher_log
from ..shared_options.agent import Line
from ..shared_options.gpus import LauncherGpuOptions
from ..shared_options.hosts import LauncherHostOptions
from .config_file import read_config

__all__ = ["HorovodOptions", "flags", "interfaces"]


def _range(value: str) -> str:
    match = re.fullmatch(r"\s*(\d+)[\s,:-]+(\d+)\s*", value)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= 3600:
        raise ValueError(f"needs two numbers of seconds from 1 to 3600 such as 5,60, got {value!r}")
    return f"{match[1]},{match[2]}"


def _words(value: str) -> str:
    try:
        shlex.split(value)
    except ValueError:
        raise ValueError(f"needs words quoted as in a shell, got {value!r}: a quote is not closed") from None
    return value


def _interfaces(value: Any) -> Any:
    given = [value] if isinstance(value, str) else value
    names = [name.strip() for part in given for name in str(part).split(",")]
    for name in names:
        if not re.fullmatch(r"[\w.:-]+", name):
            raise ValueError(f"needs names of network interfaces such as eth0,eth1, got {value!r}")
    return names


_WITHOUT_GLOO = {"gloo": "Gloo does not use mpirun"}
_ELASTIC = dict.fromkeys(("min_np", "max_np", "host_discovery_script"), "An elastic run needs Gloo")
_SHOWN = "is not a flag of a run. `%dist backends` shows the installed Horovod and its build options"
_ORDERED = "is not needed, because `%dist logs` shows the lines of all ranks in order of time. Remove it"
_INSTEAD = {
    "--output-filename": (
        "is not needed, because jupyter-dist always keeps the output of each rank. Read it with "
        "`%dist logs --rank N`"
    ),
    "--prefix-output-with-timestamp": _ORDERED,
    "-prefix-timestamp": _ORDERED,
    "--disable-cache": "is not needed, because horovodrun's checks are never cached here. Remove it",
    "--jsrun": (
        "is not available, because Gloo or mpirun starts the ranks, not LSF's jsrun. Use --gloo or --mpi"
    ),
    **dict.fromkeys(("--check-build", "-cb", "--version", "-v"), _SHOWN),
}


class HorovodOptions(LauncherHostOptions, LauncherGpuOptions):
    """Options of the backend `horovod`: those of horovodrun, and those for the connection to hosts."""

    form: ClassVar[Form] = Form(
        first=("np", "hosts", "gpus_per_worker", "network_interfaces", "env"),
        sections={
            "Elastic": (
                "min_np max_np host_discovery_script slots elastic_timeout reset_limit "
                "blacklist_cooldown_range"
            ),
            "Launcher": (
                "gloo mpi mpi_args binding_args tcp mpi_threads_disable gloo_timeout_seconds start_timeout "
                "config_file verbose"
            ),
            "Speed": (
                "fusion_threshold_mb cycle_time_ms cache_capacity hierarchical_allreduce "
                "hierarchical_allgather torus_allreduce num_nccl_streams thread_affinity"
            ),
            "Autotune": (
                "autotune autotune_log_file autotune_warmup_samples autotune_steps_per_sample "
                "autotune_bayes_opt_max_samples autotune_gaussian_process_noise"
            ),
            "Timeline and messages": (
                "timeline timeline_mark_cycles no_stall_check stall_check_warning_time_seconds "
                "stall_check_shutdown_time_seconds log_level log_without_timestamp"
            ),
            "Hosts": "hostfile ssh_identity_file",
        },
    )

    gloo: bool = flag(False, "Gloo", "Coordinate the ranks with Gloo. Default: MPI if it is available")
    mpi: bool = flag(
        False, "MPI", "Coordinate the ranks with MPI, through mpirun", excludes={"gloo": "", **_ELASTIC}
    )
    mpi_args: Annotated[str, AfterValidator(_words)] | None = flag(
        None,
        "Arguments for mpirun",
        "Further arguments for mpirun",
        metavar="ARGS",
        verbatim=True,
        excludes=_WITHOUT_GLOO,
    )
    network_interfaces: Annotated[tuple[str, ...], BeforeValidator(_interfaces)] = flag(
        (),
        "Network interfaces",
        "The network interfaces to use. Each host uses the first one that it has. Default: "
        "the interfaces that connect the hosts",
        "--network-interfaces",
        "--network-interface",
        value=("A,B", "names of interfaces such as eth0"),
    )
    start_timeout: int | None = flag(
        None, "Start timeout", "The seconds within which all ranks must start. Default: 30", ge=1
    )
    min_np: int | None = flag(
        None,
        "Least ranks",
        "Elastic: continue with at least that many ranks if other ranks are lost. Default: -np",
        "--min-np",
        "--min-num-proc",
        ge=1,
        ranks=True,
    )
    max_np: int | None = flag(
        None,
        "Most ranks",
        "Elastic: never start more ranks than that, however many hosts exist",
        "--max-np",
        "--max-num-proc",
        ge=1,
        ranks=True,
    )
    host_discovery_script: Annotated[str, AfterValidator(_words)] | None = flag(
        None,
        "Host discovery script",
        "Elastic: a program that prints the current hosts, as lines such as `node1:4`",
        excludes={"hosts": "The script names the hosts, as -H and --hostfile do"},
        value=("FILE", "the path of a program"),
    )
    slots: int | None = flag(
        None,
        "Slots",
        "Elastic: the number of ranks on a host if the script prints no number. Default: 1",
        "--slots-per-host",
        "--slots",
        ge=1,
    )
    elastic_timeout: int | None = flag(
        None, "Elastic timeout", "Seconds to wait for enough hosts. Default: 600", ge=1
    )
    reset_limit: int | None = flag(
        None, "Resets", "Elastic: how often the ranks may change. Default: no limit", ge=0
    )
    blacklist_cooldown_range: Annotated[str, AfterValidator(_range)] = flag(
        "1,30",
        "Cooldown of failed slots",
        "Elastic: the first and the longest time before a failed slot is used again, in "
        "seconds. Default: 1,30",
        value=("FIRST LONGEST", "two numbers of seconds from 1 to 3600 such as 5,60"),
        words=2,
    )
    fusion_threshold_mb: int | None = flag(
        None,
        "Fusion threshold",
        "Reduce tensors together up to this size in MB. 0: reduce each tensor alone",
        ge=0,
    )
    cycle_time_ms: float | None = flag(None, "Cycle time", "Milliseconds between two reductions", ge=0)
    cache_capacity: int | None = flag(
        None, "Cache capacity", "The number of tensor names that Horovod caches", ge=0
    )
    hierarchical_allreduce: bool | None = flag(
        None, "Hierarchical allreduce", "Reduce within each host first, then between the hosts"
    )
    hierarchical_allgather: bool | None = flag(
        None, "Hierarchical allgather", "Gather within each host first, then between the hosts"
    )
    torus_allreduce: bool | None = flag(
        None, "Torus allreduce", "Reduce with NCCL within each host and between the hosts"
    )
    autotune: bool = flag(False, "Autotune", "Let Horovod find the best values of these settings")
    autotune_log_file: str | None = flag(
        None,
        "Autotune log",
        "A file with the values that autotuning tried. The file is among the run's files",
        metavar="FILE",
    )
    autotune_warmup_samples: int | None = flag(
        None, "Autotune warmup", "The number of first samples that are ignored", ge=0
    )
    autotune_steps_per_sample: int | None = flag(
        None, "Autotune steps", "The number of steps in one sample", ge=1
    )
    autotune_bayes_opt_max_samples: int | None = flag(
        None, "Autotune samples", "The largest number of samples for one optimization", ge=0
    )
    autotune_gaussian_process_noise: float | None = flag(
        None, "Autotune noise", "How much samples may vary by chance, from 0 to 1", ge=0, le=1
    )
    timeline: str | None = flag(
        None,
        "Timeline",
        "A file with the timeline of Horovod, for chrome://tracing. The file is among the run's files",
        "--timeline",
        "--timeline-filename",
        metavar="FILE",
    )
    timeline_mark_cycles: bool = flag(False, "Mark cycles", "Show Horovod's cycles in the timeline")
    no_stall_check: bool = flag(False, "No stall check", "Do not warn about ranks that other ranks wait for")
    stall_check_warning_time_seconds: int | None = flag(
        None, "Stall warning", "Seconds until Horovod warns about ranks that other ranks wait for", ge=0
    )
    stall_check_shutdown_time_seconds: int | None = flag(
        None, "Stall shutdown", "Seconds until Horovod ends the run because of such ranks. 0: never", ge=0
    )
    gloo_timeout_seconds: int | None = flag(
        None, "Gloo timeout", "The timeout of one step of Gloo, in seconds", ge=0
    )
    num_nccl_streams: int | None = flag(
        None, "NCCL streams", "The number of streams for NCCL operations", ge=0
    )
    mpi_threads_disable: bool = flag(False, "No MPI threads", "Initialize MPI without threads")
    tcp: bool = flag(False, "TCP only", "Use only TCP, without InfiniBand")
    binding_args: Annotated[str, AfterValidator(_words)] | None = flag(
        None,
        "Binding arguments",
        "How mpirun binds ranks to cores, instead of `-bind-to none -map-by slot`",
        excludes=_WITHOUT_GLOO,
        metavar="ARGS",
        verbatim=True,
    )
    thread_affinity: int | None = flag(None, "Thread affinity", "The CPU core of Horovod's thread", ge=0)
    log_level: Literal["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"] | None = flag(
        None, "Log level", "The log level of Horovod itself"
    )
    log_without_timestamp: bool = flag(
        False,
        "No times",
        "Leave the time out of Horovod's own log lines",
        "--log-without-timestamp",
        "--log-hide-timestamp",
    )
    config_file: Line = flag(
        None,
        "Configuration file",
        "A YAML file in the format of horovodrun. Flags override its values",
        value=("FILE", "the path of a file"),
    )
    ssh_port: int | None = flag(
        None, "ssh port", "The port of the hosts' sshd", "--ssh-port", "-p", ge=1, le=65535
    )
    ssh_identity_file: Line = flag(
        None,
        "ssh identity",
        "The private key for the login on the hosts",
        "--ssh-identity-file",
        "-i",
        value=("FILE", "the path of a file"),
    )
    verbose: bool = flag(False, "Verbose", f"Write the messages of horovodrun to {launcher_log()}")

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        return _INSTEAD.get(flag)

    @property
    def elastic(self) -> bool:
        return self.min_np is not None or self.max_np is not None or self.host_discovery_script is not None

    def settings(self) -> SshSettings:
        return dataclasses.replace(super().settings(), identity=self.ssh_identity_file)

    @model_validator(mode="before")
    @classmethod
    def _take_config(cls, given: Any) -> Any:
        """Read the file now: later changes to the file must not affect the run."""
        if not isinstance(given, Mapping) or given.get("config_file") is None:
            return given
        own = {name: value for name, value in given.items() if name != "config_file"}
        said = read_config(Path(given["config_file"]).expanduser())
        if own.get("gloo") or own.get("mpi"):
            said = {name: value for name, value in said.items() if name not in ("gloo", "mpi")}
        return {**said, **own}

    @model_validator(mode="after")
    def _fit_together(self) -> HorovodOptions:
        if self.min_np and self.max_np and self.min_np > self.max_np:
            raise ValueError(f"--min-np {self.min_np} is more than --max-np {self.max_np}")
        return self


_OURS = frozenset(
    "form gloo mpi mpi_args network_interfaces min_np max_np host_discovery_script slots elastic_timeout "
    "reset_limit blacklist_cooldown_range autotune_log_file timeline binding_args config_file ssh_port "
    "ssh_identity_file".split()
)
"""Options that jupyter-dist itself applies. It passes all others to horovodrun."""
_SAID = ("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce")
"""Options that autotuning also tries, unless the user has excluded them."""


def flags(options: HorovodOptions) -> Iterator[str]:
    """Yield horovodrun's arguments for the options that it has too. Pure."""
    for name in HorovodOptions.__annotations__:
        value = getattr(options, name)
        if name in _OURS or value is None or (value is False and name not in _SAID):
            continue
        yield ("--no-" if value is False else "--") + name.replace("_", "-")
        if not isinstance(value, bool):
            yield str(value)


def interfaces(options: HorovodOptions) -> dict[str, str]:
    """Return the variables that select the network interfaces of a rank on another host. Pure."""
    names = ",".join(options.network_interfaces)
    return {"GLOO_SOCKET_IFNAME": names, "NCCL_SOCKET_IFNAME": names} if names else {}
