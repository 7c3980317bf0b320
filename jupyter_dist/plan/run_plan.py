"""Conversion of flags, a saved cluster and defaults to one checked plan: what to start and where.

Given values override the cluster (`--cluster`, else the one of `%dist use`). The cluster overrides the
defaults. Nothing here starts or writes anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel

from .. import backends, clusters
from ..backends import Backend
from ..errors import Busy, DistError, InputError, MissingEngine
from ..flags import Flag, build, find_value, flags_of, named, scan, split_line, unknown_flag
from ..host_list import Host, parse_hosts, read_hostfile
from ..options import RunOptions
from ..record.sessions import find_session
from ..search.spec import Search
from .search_plan import make_search

__all__ = ["CommandLine", "Plan", "backend_of", "make_plan", "meant", "read_command_line", "run_flags"]


@dataclass(frozen=True)
class Plan:
    """Checked plan of what to start. `warnings` are shown to the user once."""

    backend: Backend
    run: RunOptions
    options: BaseModel
    world_size: int
    warnings: tuple[str, ...] = ()
    search: Search | None = None
    """Search of a tuning run. The rest of the plan then describes each trial."""
    cluster: str | None = None
    """Saved cluster whose options are included."""


@dataclass(frozen=True)
class CommandLine:
    """Values of a command line by field name, and the backend whose flags were used to parse it."""

    given: Mapping[str, Any]
    backend: Backend
    rest: tuple[str, ...] = ()
    help: bool = False


def run_flags() -> tuple[Flag, ...]:
    """Return the flags that every backend has."""
    return flags_of(RunOptions)


def backend_of(
    tokens: Sequence[str], expand: Callable[[str], str] = str, *, first_word_ends: bool = False
) -> Backend:
    """Return the backend that a command line chooses, directly or by a cluster. Raises DistError.

    `first_word_ends`: see `flags.scan`.
    """
    given: dict[str, str] = {}

    def known(name: str) -> Flag | None:
        flag = named(name, run_flags())
        if flag is None and first_word_ends:  # the word after it may be its value
            found = _find_flag(name, [given["backend"]] if "backend" in given else backends.names())
            flag = None if found is None else found[1]
        return flag

    for name in ("backend", "cluster"):
        value = find_value(tokens, f"--{name}", known, first_word_ends=first_word_ends)
        if value is not None:
            given[name] = expand(value)
    return _backend_for(given)


def _find_flag(name: str, among: Iterable[str]) -> tuple[str, Flag] | None:
    """Return the first of these backends that has this flag, and the flag; None without one."""
    for backend in among:
        with contextlib.suppress(Exception):  # the flags of a backend that does not load are unknown
            flag = named(name, flags_of(backends.declared(backend).options))
            if flag is not None:
                return backend, flag
    return None


def read_command_line(
    line: str | Sequence[str],
    *,
    expand: Callable[[str], str] | None = None,
    leave_out: Sequence[str] = (),
    more: Sequence[Flag] = (),
    first_word_ends: bool = False,
) -> CommandLine:
    """Parse the flags of a run and of its backend. Raises InputError with one message."""
    tokens = split_line(line) if isinstance(line, str) else list(line)
    common = [flag for flag in run_flags() if flag.field not in leave_out] + list(more)
    backend = backend_of(tokens, expand or str, first_word_ends=first_word_ends)
    found = scan(
        tokens,
        [*common, *flags_of(backend.options)],
        expand=expand,
        unknown=lambda name: _unknown(name, common, backend),
        first_word_ends=first_word_ends,
    )
    return CommandLine(found.values, backend, found.rest, found.help)


def _unknown(name: str, common: Sequence[Flag], backend: Backend) -> InputError:
    cure = backend.options.instead_of(name)
    if cure is not None:
        return InputError(f"{name} {cure}")
    other = _find_flag(name, [each for each in backends.names() if each != backend.name])
    if other is not None:
        return InputError(
            f"{name} is a flag of the backend {other[0]!r}, but the backend here is "
            f"{backend.name!r}. Remove the flag, or write --backend {other[0]}"
        )
    elsewhere = _ELSEWHERE.get(name.replace("_", "-"))
    if elsewhere is not None:
        return InputError(f"{name} is {elsewhere}")
    return unknown_flag(name, [n for flag in (*common, *flags_of(backend.options)) for n in flag.names])


_RANKS = "-np here: the number of ranks"
_TRIALS = "--max-jobs here: the number of trials"
_AT_ONCE = "--parallel here: the number of trials at once"
_ELSEWHERE = {
    **dict.fromkeys(("--world-size", "--num-workers", "--num-processes", "--nproc", "--devices"), _RANKS),
    **dict.fromkeys(("--trials", "--n-trials", "--num-trials", "--num-samples"), _TRIALS),
    **dict.fromkeys(("--n-jobs", "--max-concurrent-trials", "--max-parallel-jobs"), _AT_ONCE),
    **dict.fromkeys(("--direction", "--mode"), "a part of the objective here: --objective max:METRIC"),
    "--targets": "--ranks here: --session --ranks 0,2-3",
    "--noblock": "--detach here",
    "-x": "--env here: --env NAME=VALUE",
}
"""What Accelerate, ipyparallel, mpirun, Optuna, Ray and torch call a flag of ours."""


def _saved(given: Mapping[str, Any]) -> clusters.Cluster | None:
    """Return the cluster whose options apply: the named one, else the kernel's if it fits the backend."""
    if given.get("cluster") is not None:
        cluster = clusters.get(given["cluster"])
        if given.get("backend") not in (None, cluster.backend):
            raise InputError(
                f"The cluster {cluster.name!r} uses the backend {cluster.backend!r}, not "
                f"{given['backend']!r}. Name only the cluster, or only the backend"
            )
        return cluster
    name = clusters.used()
    if name is None:
        return None
    try:
        cluster = clusters.get(name)
    except InputError as error:
        if given.get("backend") is not None:
            return None
        raise InputError(
            f"This notebook is set to the cluster {name!r}. To use no cluster: `%dist use "
            f"--none`. The cluster cannot be used: {error}"
        ) from None
    return cluster if given.get("backend") in (None, cluster.backend) else None


def _backend_for(given: Mapping[str, Any]) -> Backend:
    if given.get("backend") is not None:
        backends.load(given["backend"])  # raises for an unknown backend, which is the clearer error
    cluster = _saved(given)
    return backends.load(given.get("backend") or (cluster.backend if cluster else "local"))


def make_plan(
    given: Mapping[str, Any], *, spelled_as_flags: bool = True, cluster: bool = True, now: bool = True
) -> Plan:
    """Check the given values and add the rest. Raises InputError, MissingEngine.

    Args:
        spelled_as_flags: whether errors contain `-np` (a command line) or `np` (a call from Python).
        cluster: False ignores the saved clusters.
        now: False for a plan that starts later. Then a resource that others use now is only a warning.
    """
    backend = _backend_for(given)
    saved = _saved(given) if cluster else None
    merged = {**(saved.options if saved else {}), **given}
    if saved:
        for name in ("env", "metric"):
            if name in given and name in saved.options:
                merged[name] = {**saved.options[name], **given[name]}
        if "hosts" in given or "hostfile" in given:
            merged = {k: v for k, v in merged.items() if k in given or k not in ("hosts", "hostfile")}
    if given.get("scaling") is not None and "np" not in given:
        merged.pop("np", None)  # the number of ranks of a cluster is that of its other runs
    merged["backend"] = backend.name
    merged |= meant(backend, merged.get("np"))
    run_values, own_values = clusters.split(backend, merged)
    spelled = _spelling(backend) if spelled_as_flags else str
    run = build(RunOptions, run_values, spelled)
    own_values = {**(backend.options.named_by(run.name) if run.name else {}), **own_values}
    hosts = _hosts(run, backend, spelled)
    if run.max_restarts and not backend.capabilities.restarts:
        raise InputError(
            f"{spelled('max_restarts')}: the backend {backend.name!r} cannot restart ranks. Set it to 0"
        )
    here = backend.capabilities.visible and not hosts
    if run.debugpy and here and find_spec("debugpy") is None:
        raise MissingEngine(
            f"{spelled('debugpy')} needs debugpy in the Python of the ranks. Install it: pip install debugpy"
        )
    if hosts:
        own_values["hosts"] = [{"name": host.name, "slots": host.slots} for host in hosts]
    platform = backends.extensions_of(backend).search
    search = make_search(run, platform, spelled)
    if search is not None and search.parallel > 1 and "wait_for_gpus" in backend.options.model_fields:
        # A trial waits if no GPU is free.
        own_values.setdefault("wait_for_gpus", not own_values.get("share_gpus"))
    options = build(backend.options, own_values, spelled)
    sizes = () if search is None else search.sizes
    if search is not None and platform is not None and not sizes:
        platform.check(search, options.model_dump(mode="json"))
    slots = sum(host.slots for host in hosts)
    world_size = run.np or getattr(options, "ranks", None) or slots or backend.default_np()
    warnings: list[str] = []
    # The ranks of a session run already, so nothing else is needed for them.
    runs_already = run.session is not None and find_session(run.session) is not None
    for size in () if runs_already else sizes or (world_size,):
        if slots and size > slots:
            raise InputError(
                f"{spelled('scaling' if sizes else 'np')} {size} needs more slots than the {slots} of the "
                "hosts. Lower it, or name more slots, such as node1:8"
            )
        try:
            warnings = list(backend.check(size, options.model_dump(mode="json")))
        except Busy as error:
            if now:
                raise
            warnings = [str(error)]
        except InputError as error:
            if not sizes or isinstance(error, MissingEngine):
                raise
            raise InputError(f"{spelled('scaling')} {size}: {error}") from None
    # A backend's own name chooses the backend without options. That is not a saved cluster.
    chosen = saved.name if saved and saved.name not in backends.names() else None
    return Plan(backend, run, options, sizes[-1] if sizes else world_size, tuple(warnings), search, chosen)


def meant(backend: Backend, np: Any) -> Mapping[str, Any]:
    """Return the options that a number of ranks below 1 means. Backends without a meaning reject it."""
    try:
        number = int(np)
    except (TypeError, ValueError):
        return {}
    return {} if number >= 1 else backend.options.meant_by(number) or {}


def _spelling(backend: Backend) -> Callable[[str], str]:
    names = {flag.field: flag.names[0] for flag in (*flags_of(backend.options), *run_flags())}
    return lambda field: names.get(field, field)


def _hosts(run: RunOptions, backend: Backend, spelled: Callable[[str], str]) -> tuple[Host, ...]:
    given = [name for name in ("hosts", "hostfile") if getattr(run, name) is not None]
    if not given:
        return ()
    if not backend.capabilities.hosts:
        able = ", ".join(_with_hosts())
        raise InputError(
            f"{spelled(given[0])} cannot be used with the backend {backend.name!r}"
            + (", which runs on this machine only" if backend.name == "local" else "")
            + (f". Backends with hosts: {able}" if able else "")
        )
    if len(given) == 2:
        raise InputError(
            f"{spelled('hosts')} and {spelled('hostfile')} both name the hosts. Use only one of them"
        )
    if run.hosts is not None:
        return parse_hosts(run.hosts)
    try:
        return read_hostfile(str(run.hostfile))
    except ValueError as error:
        raise InputError(f"{spelled('hostfile')} {error}") from None


def _with_hosts() -> Iterator[str]:
    for name in backends.names():
        try:
            if backends.declared(name).capabilities.hosts:
                yield name
        except DistError:
            continue
