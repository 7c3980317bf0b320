"""The backend `torchrun`: ranks started and restarted by torch.distributed.run."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, ClassVar

from ...errors import InputError, MissingEngine
from ...folder import RunFolder
from ...hosts.fleet import Fleet
from ...hosts.start import Start
from ...job import Job
from ...text.format import count
from ...worker.gpus.devices import visible_gpus
from ...worker.host.ports import free_ports
from ...worker.layout import attempt_path
from ..interface import Capabilities, Handle, Options
from ..launchers.local_launcher import Follower, LocalLauncher, environment, last_words, shown, worker_argv
from ..launchers.per_host_launcher import Elastic, PerHostLauncher, addresses_of, environment_there
from ..ranks.default_environment import cores, loopback
from ..ranks.local_gpus import check_gpus, detected_gpus, gpu_ranks, gpu_wish, would_take
from ..shared_options.hosts import check_hosts
from .options import LAST_CALL_S, Layout, TorchrunOptions, layout

__all__ = ["Torchrun", "arguments"]

_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""A restarted group would share a store with the addresses of ranks that have ended."""


class Torchrun(Follower):
    """torchrun starts the ranks. With --max-restarts it restarts all of them when one fails."""

    name: ClassVar[str] = "torchrun"
    options: ClassVar[type[Options]] = TorchrunOptions
    capabilities: ClassVar[Capabilities] = Capabilities(hosts=True, own_restarts=True, interrupts=True)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._launched: LocalLauncher | PerHostLauncher | None = None

    def default_np(self) -> int:
        return gpu_ranks() or 2

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        if importlib.util.find_spec("torch") is None:
            raise MissingEngine("backend 'torchrun' needs PyTorch: pip install \"jupyter-dist[torch]\"")
        wanted = TorchrunOptions(**options)
        where = layout(world_size, wanted)
        if wanted.rdzv_backend.startswith("etcd") and importlib.util.find_spec("etcd") is None:
            raise MissingEngine(
                f"--rdzv-backend {wanted.rdzv_backend} needs python-etcd: pip install python-etcd"
            )
        if wanted.hosts and (wanted.standalone or wanted.rdzv_backend == "static"):
            which = "--standalone" if wanted.standalone else "--rdzv-backend static"
            raise InputError(f"{which} works only on one machine. Remove it, or remove -H and --hostfile")
        if wanted.hosts:
            check_hosts(wanted)
            return []
        gpus = len(visible_gpus())
        warnings = [f"{world_size} workers share {count(gpus, 'GPU')}."] if 0 < gpus < world_size else []
        if wanted.nnodes not in (None, where.nodes):
            warnings.append(f"--nnodes {wanted.nnodes}: this machine is the only node.")
        return [*check_gpus(wanted, world_size), *warnings]

    def detect(self) -> dict[str, Any]:
        try:
            torch = metadata.version("torch")
        except metadata.PackageNotFoundError:
            torch = "not installed"
        return {"torch": torch, "cores": cores(), **detected_gpus()}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        options = TorchrunOptions(**job.options)
        if not options.hosts:
            _, told = would_take(gpu_wish(options, job.world_size, job))
            return {**shown(*_request(job, attempt, None)), **told}
        where = layout(job.world_size, options)
        first = options.hosts[0]["name"]
        return {
            "hosts": [
                {**host, "argv": _argv("python3", options, job, where, node, f"{first}:0", str(host["name"]))}
                for node, host in enumerate(options.hosts[: len(where.per_node)])
            ]
        }

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        options = TorchrunOptions(**job.options)
        if options.hosts:
            return self._submit_to_hosts(job, folder, attempt, options)
        # Ranks meet at the endpoint itself only under `static`. Other rendezvous find a port of their own.
        port = free_ports(1)[0] if options.rdzv_backend == "static" else 0
        argv, env = _request(job, attempt, folder, port)
        self._launched = launched = LocalLauncher(job, folder, attempt, restarts=job.max_restarts)

        def start(gpus: Sequence[str], more: Mapping[str, str]) -> Handle:
            # Stop the launcher instead of the ranks: it would replace ranks that end.
            return launched.start(
                argv, {**env, **more}, name="torchrun", stop_launcher=True, explain=_explain
            )

        return self.start_with_gpus(job, options, start)

    def _submit_to_hosts(self, job: Job, folder: RunFolder, attempt: int, options: TorchrunOptions) -> Handle:
        where = layout(job.world_size, options)
        hosts = options.hosts[: len(where.per_node)]
        if not isinstance(self._launched, PerHostLauncher):
            fixed = where.least == len(hosts)
            ours = options.rdzv_endpoint is None and options.rdzv_backend == "c10d"
            self._launched = PerHostLauncher(
                job,
                folder,
                options,
                hosts,
                ranks={str(h["name"]): count for h, count in zip(hosts, where.per_node, strict=True)},
                name="torchrun",
                elastic=Elastic(where.least, _restarts(job, where), fixed, first_is_met=ours and not fixed),
                starts=lambda fleet, attempt, names: _starts(job, attempt, options, fleet, names),
                explain=_explain,
            )
        return self._launched.submit(attempt, {str(host["name"]): 1 for host in hosts})


def _restarts(job: Job, where: Layout) -> int:
    """Return the requested restarts, and at least one for each host that may be lost."""
    return max(job.max_restarts, len(where.per_node) - where.least)


def _starts(
    job: Job, attempt: int, options: TorchrunOptions, fleet: Fleet, names: Sequence[str]
) -> list[Start]:
    """Return the start of torchrun on each of these hosts. The rendezvous is on the first."""
    asked = layout(job.world_size, options)
    counts = {str(host["name"]): count for host, count in zip(options.hosts, asked.per_node, strict=False)}
    where = Layout(tuple(counts[name] for name in names), asked.least)
    address = addresses_of(fleet, names)
    endpoint = f"{address[names[0]]}:{fleet.ports(names[0])[0]}"
    found = []
    for node, name in enumerate(names):
        facts = fleet.facts(name)
        argv = _argv(facts.python, options, job, where, node, endpoint, address[name])
        argv[-4:-4] = ["--log-dir", attempt_path(f"{facts.stage}/run", attempt) + "/torchrun"]
        env = environment_there("torchrun", job, attempt, facts, where.per_node[node], options, address[name])
        found.append(Start(name, tuple(argv), {**env, **_OWN_STORE}))
    return found


def _argv(
    python: str, options: TorchrunOptions, job: Job, where: Layout, node: int, endpoint: str, address: str
) -> list[str]:
    """Return torchrun's argv on one of several hosts. Pure."""
    is_host = int(node == 0) if options.rdzv_endpoint is None and options.rdzv_backend == "c10d" else None
    return [
        *(python, "-m", "jupyter_dist.worker.launchers.torchrun_host"),
        *arguments(options, job, where, node=node, endpoint=endpoint, is_host=is_host),
        *("--local-addr", address, "--no-python", python, "-m", "jupyter_dist.worker"),
    ]


def _request(
    job: Job, attempt: int, folder: RunFolder | None, port: int = 0
) -> tuple[list[str], dict[str, str]]:
    """Return torchrun's argv and variables. Without a folder, torchrun chooses the path of its files.

    `port`: of the rendezvous. Pure.
    """
    options = TorchrunOptions(**job.options)
    where = layout(job.world_size, options)
    argv = [job.python, "-m", "torch.distributed.run"]
    argv += arguments(options, job, where, node=0, endpoint=f"127.0.0.1:{port}")
    # Without this flag, torch resolves this host's name, which has many addresses on laptops.
    argv += ["--local-addr", "127.0.0.1"]
    if folder is not None:
        argv += ["--log-dir", str(folder.attempt(attempt) / "torchrun")]
    env = {
        **environment("torchrun", job, attempt, job.world_size),
        **_OWN_STORE,
    }
    env |= loopback(os.environ)
    return [*argv, "--no-python", *worker_argv(job)], env


def arguments(
    options: TorchrunOptions, job: Job, where: Layout, *, node: int, endpoint: str, is_host: int | None = None
) -> list[str]:
    """Return torchrun's arguments, without the program to start. Pure.

    They always include a rendezvous: without one (--master-port 0), torchrun was seen to hang and to leave
    orphans. `is_host`: whether the rendezvous is on this node. Torch would otherwise derive it from the
    host's name.
    """
    given = {pair.partition("=")[0].strip() for pair in options.rdzv_conf.split(",")}
    conf = [options.rdzv_conf] if options.rdzv_conf else []
    if "last_call_timeout" not in given:
        conf.append(f"last_call_timeout={LAST_CALL_S}")
    if is_host is not None and "is_host" not in given:
        conf.append(f"is_host={is_host}")
    return [
        *("--nnodes", where.nodes, "--nproc-per-node", str(where.per_node[node])),
        *("--rdzv-backend", options.rdzv_backend),
        *("--rdzv-endpoint", options.rdzv_endpoint or endpoint),
        *("--rdzv-id", options.rdzv_id or job.id, "--rdzv-conf", ",".join(conf)),
        *("--max-restarts", str(_restarts(job, where))),
        *("--monitor-interval", f"{options.monitor_interval:g}"),
        *(("--role", options.role) if options.role is not None else ()),
        *(
            ("--shutdown-timeout", str(options.shutdown_timeout))
            if options.shutdown_timeout is not None
            else ()
        ),
        *(("--numa-binding", options.numa_binding) if options.numa_binding is not None else ()),
        *(("--virtual-local-rank",) if options.virtual_local_rank else ()),
    ]


def _explain(text: str) -> str:
    """Return the last exception in torchrun's output."""
    found = re.findall(r"^[\w.]*(?:Error|Exception|Timeout)\b:?.*$", text, re.MULTILINE)
    return str(found[-1])[:300] if found else last_words(text)
