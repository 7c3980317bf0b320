"""The placement of ranks: the host of each rank, and its environment there. Pure."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...hosts.facts import HostFacts
from ...hosts.openssh import LOCAL
from ...hosts.start import Start
from ...job import Job
from ...text.format import count
from ...worker.gpus import by_local_rank
from ...worker.gpus.lease import GpuRequest
from ...worker.horovod.rendezvous import HOW
from ...worker.host.machine import interface_of
from ..interface import Options
from .default_environment import plotting
from .local_gpus import gpu_count, gpu_wish
from .tensorflow_roles import Role, roles, tf_configs

__all__ = [
    "RankEnvironmentOptions",
    "RankPlacement",
    "addresses",
    "environments",
    "gpu_trouble",
    "gpu_wishes",
    "horovod_environments",
    "horovod_network",
    "host_environment",
    "in_url",
    "network",
    "places",
    "ports_needed",
    "rank_starts",
    "taken_gpus",
]


@dataclass(frozen=True)
class RankPlacement:
    """The place of a rank."""

    rank: int
    host: str
    node: int
    local_rank: int
    local_size: int


@dataclass(frozen=True)
class RankEnvironmentOptions:
    """The backend options that affect the environments of its ranks."""

    gpus_per_worker: float | None = None
    """None: the host's GPUs that no other run uses, shared out evenly. 0.5: two ranks share one GPU."""
    share_gpus: bool = False
    """Whether the ranks share GPUs with other runs."""
    wait_for_gpus: bool = False
    """Whether the run waits for GPUs that other runs use."""
    ps: int = 0
    chief: bool = False
    evaluator: bool = False
    synced: bool = False
    """Whether the ranks' working directory is the copy of the user's own files."""
    threads: int | None = None
    """Number of threads of a rank, if its share of the host is smaller than the host's cores suggest."""
    horovod: bool = True
    """Whether the ranks get the variables for `hvd.init()`. Without them, each rank would train alone."""

    @classmethod
    def of(cls, options: Options, **more: Any) -> RankEnvironmentOptions:
        """Read the values from options with the same field names, and from `more`."""
        named = {field.name for field in dataclasses.fields(cls)} & type(options).model_fields.keys()
        return cls(**{**{name: getattr(options, name) for name in named}, **more})

    @property
    def has_roles(self) -> bool:
        """Whether some ranks are not workers."""
        return bool(self.ps or self.chief or self.evaluator)


def places(world_size: int, hosts: Sequence[Mapping[str, Any]]) -> list[RankPlacement]:
    """Place the ranks. They fill the hosts in the given order, each up to its slots."""
    found: list[RankPlacement] = []
    for node, host in enumerate(hosts):
        size = min(int(host["slots"]), world_size - len(found))
        first = len(found)
        found += [RankPlacement(first + local, str(host["name"]), node, local, size) for local in range(size)]
    return found


def ports_needed(where: Sequence[RankPlacement]) -> dict[str, int]:
    """Return how many TCP ports each host needs.

    Each rank needs one for TF_CONFIG. The first host needs one more for MASTER_PORT, and one for Horovod's
    store.
    """
    counts: dict[str, int] = {}
    for place in where:
        counts[place.host] = counts.get(place.host, 0) + 1
    if where:
        counts[where[0].host] += 2
    return counts


def addresses(facts: Mapping[str, HostFacts]) -> dict[str, str]:
    """Return the address of each host, as the others see it."""
    if len(facts) == 1:
        return dict.fromkeys(facts, "127.0.0.1")
    # The other hosts see this machine at the source address of its ssh connection.
    seen = next((about.client for name, about in facts.items() if name != LOCAL and about.client), None)
    return {
        name: about.address or (seen if name == LOCAL else None) or about.hostname
        for name, about in facts.items()
    }


def network(facts: HostFacts, address: str) -> dict[str, str]:
    """Return the variables that select the host's network interface for gloo and NCCL."""
    if address == "127.0.0.1":
        return {"GLOO_SOCKET_IFNAME": "lo"}
    interface = interface_of(address) if facts.name == LOCAL else facts.interface
    return {} if interface is None else {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def environments(
    job: Job,
    attempt: int,
    asked: RankEnvironmentOptions,
    where: Sequence[RankPlacement],
    facts: Mapping[str, HostFacts] | None,
    ports: Mapping[str, Sequence[int]],
) -> list[dict[str, str]]:
    """Return the environment of each rank, as far as it differs from a login's on its host.

    Without `facts`, as for a dry run, names replace addresses, and 0 means "any free port".
    """
    address = (
        {place.host: f"<address of {place.host}>" for place in where} if facts is None else addresses(facts)
    )
    left = {name: list(found) for name, found in ports.items()}
    master = str(left[where[0].host].pop(0)) if facts is not None else "0"
    store = str(left[where[0].host].pop(0)) if facts is not None else "0"
    own = [f"{in_url(address[p.host])}:{left[p.host].pop(0) if facts is not None else 0}" for p in where]
    tasks = roles(job.world_size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
    configs = tf_configs(tasks, own)
    # No file contains their values: only the supervisor that was started with them has them.
    user = {name: os.environ[name] for name in job.env_names if name in os.environ}
    meet: Sequence[Mapping[str, str]] = [{}] * len(where)
    if asked.horovod and not asked.has_roles:
        meet = horovod_environments(where, address[where[0].host], store)
    found = []
    for place, config, hvd in zip(where, configs, meet, strict=True):
        env = {
            "RANK": str(place.rank),
            "LOCAL_RANK": str(place.local_rank),
            "WORLD_SIZE": str(job.world_size),
            "LOCAL_WORLD_SIZE": str(place.local_size),
            "GROUP_RANK": str(place.node),
            "MASTER_ADDR": address[where[0].host],
            "MASTER_PORT": master,
            "TF_CONFIG": config,
            "JUPYTER_DIST_RUN_ID": job.id,
            "JUPYTER_DIST_ATTEMPT": str(attempt),
            "JUPYTER_DIST_CWD": job.cwd,
            **hvd,
        }
        if facts is not None:
            about = facts[place.host]
            gpus = _gpus(job, place, asked, _takers(where, tasks, place.host), about)
            env |= host_environment(place, asked, about, address[place.host], gpus)
            if hvd:
                env |= horovod_network(env)
            if not asked.has_roles and "CUDA_VISIBLE_DEVICES" not in user:
                by_local_rank.offer(env, taken_gpus(about))
        found.append({**env, **user})
    return found


def in_url(address: str) -> str:
    """Return the address as it is written before a port: an IPv6 address gets brackets."""
    return f"[{address}]" if ":" in address else address


def _takers(where: Sequence[RankPlacement], tasks: Sequence[Role], host: str) -> list[int]:
    """Return the ranks of a host that get GPUs. A parameter server gets none."""
    return [p.rank for p in where if p.host == host and tasks[p.rank].type != "ps"]


def _gpus(
    job: Job, place: RankPlacement, asked: RankEnvironmentOptions, takers: Sequence[int], about: HostFacts
) -> tuple[str, ...]:
    """Return the GPUs of one rank, among those that the host's agent has taken for the run."""
    wish = gpu_wish(asked, len(takers), job)
    if wish is None or place.rank not in takers:
        return ()
    return wish.shares_out(taken_gpus(about))[takers.index(place.rank)]


def taken_gpus(about: HostFacts) -> tuple[str, ...]:
    """Return the run's GPUs on a host."""
    return about.gpus if about.leased is None else tuple(map(str, about.leased["gpus"]))


def gpu_wishes(
    job: Job, asked: RankEnvironmentOptions, where: Sequence[RankPlacement], facts: Mapping[str, HostFacts]
) -> dict[str, GpuRequest]:
    """Return the ranks' GPU requests for each host with GPUs."""
    tasks = roles(job.world_size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
    wishes = {
        name: gpu_wish(asked, len(_takers(where, tasks, name)), job)
        for name, about in facts.items()
        if about.gpus
    }
    return {name: wish for name, wish in wishes.items() if wish is not None}


def gpu_trouble(
    job: Job, asked: RankEnvironmentOptions, where: Sequence[RankPlacement], facts: Mapping[str, HostFacts]
) -> str | None:
    """Return why the ranks cannot share the GPUs of the hosts."""
    wanted = asked.gpus_per_worker
    if wanted == 0 or not (wanted or any(about.gpus for about in facts.values())):
        return None
    tasks = roles(job.world_size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
    machines: dict[str, str] = {}
    for name, about in facts.items():
        other = machines.setdefault(about.machine, name)
        if other != name and about.gpus:
            return (
                f"{other} and {name} are the same machine, and the ranks of both would use the same GPUs: "
                "name it once, with the workers of both. Nothing was started."
            )
        wish = gpu_wish(asked, takers := len(_takers(where, tasks, name)))
        if wish is not None and wish.least(len(about.gpus)) > len(about.gpus):
            each = f" with --gpus-per-worker {wanted}" if wanted else ""
            return (
                f"host {name} has {count(len(about.gpus), 'GPU')}, too few for {takers} of the "
                f"workers{each}: give it fewer with -H, or train on the CPU with --gpus-per-worker 0. "
                "Nothing was started."
            )
    return None


def host_environment(
    place: RankPlacement, asked: RankEnvironmentOptions, facts: HostFacts, address: str, gpus: tuple[str, ...]
) -> dict[str, str]:
    """Return the variables of a rank that depend on its host. `address`: the host's, as the others see it."""
    share = max(1, facts.cores // place.local_size)
    env = {
        "JUPYTER_DIST_GPUS": gpu_count(gpus, asked.gpus_per_worker),
        "OMP_NUM_THREADS": str(min(share, asked.threads or share)),
        **network(facts, address),
        **({} if facts.leased is None else facts.leased["env"]),
    }
    if facts.name == LOCAL:
        env |= plotting(os.environ)
    if facts.clock_offset_s:
        env["JUPYTER_DIST_CLOCK_OFFSET_S"] = str(facts.clock_offset_s)
    if facts.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus) or "-1"
    if asked.synced:
        work = os.path.join(facts.stage, "work")
        env["JUPYTER_DIST_CWD"] = work
        more = os.environ.get("PYTHONPATH") if "PYTHONPATH" in os.environ and facts.name == LOCAL else None
        env["PYTHONPATH"] = work if more is None else f"{work}:{more}"
    return env


_TIMEOUT_S = "300"
"""Seconds. Horovod's default of 30 s is too short: a framework's import takes longer on a busy machine."""


def horovod_network(network: Mapping[str, str]) -> dict[str, str]:
    """Return the Horovod variables that all ranks of a host share.

    `network`: gloo's variables (`network`).
    """
    interface = network.get("GLOO_SOCKET_IFNAME")
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": _TIMEOUT_S,
        **({} if interface is None else {"HOROVOD_GLOO_IFACE": interface}),
    }


def horovod_environments(where: Sequence[RankPlacement], address: str, port: str) -> list[dict[str, str]]:
    """Return horovodrun's variables for each rank. `address`, `port`: of the store, which rank 0 serves.

    https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py
    """
    across: dict[int, list[int]] = {}
    for place in where:
        across.setdefault(place.local_rank, []).append(place.node)
    return [
        {
            HOW: "static",
            # The name only distinguishes hosts: a real name may contain characters that a URL forbids.
            "HOROVOD_HOSTNAME": f"host{place.node}",
            "HOROVOD_RANK": str(place.rank),
            "HOROVOD_SIZE": str(len(where)),
            "HOROVOD_LOCAL_RANK": str(place.local_rank),
            "HOROVOD_LOCAL_SIZE": str(place.local_size),
            "HOROVOD_CROSS_RANK": str(across[place.local_rank].index(place.node)),
            "HOROVOD_CROSS_SIZE": str(len(across[place.local_rank])),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        }
        for place in where
    ]


_READ_AT_START = ("DYLD_", "GLIBC_", "LD_", "MALLOC_", "PYTHON")
"""Variables that only the start of a program reads. A fork does not read them again."""


def rank_starts(
    where: Sequence[RankPlacement], facts: Mapping[str, HostFacts], envs: Sequence[Mapping[str, str]]
) -> list[Start]:
    """Return the start of each rank, one process each. `envs`: in the order of the places."""
    fork = not any(name.startswith(_READ_AT_START) for env in envs for name in env)
    return [
        Start(place.host, (facts[place.host].python, "-m", "jupyter_dist.worker"), env, place.rank, fork)
        for place, env in zip(where, envs, strict=True)
    ]
