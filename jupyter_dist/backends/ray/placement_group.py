"""The placement group of a run: room for its ranks on the nodes of a Ray, and our footholds there.

Everything here is found again by its name, which is made of the run's id: by another supervisor, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import LaunchError
from ...hosts.links.stream import stage_program
from . import cluster_state, node_actor
from .connection import NAMESPACE
from .pending_reason import lack

__all__ = ["PlacementGroup", "Site"]

_FIRST_S = 60.0
"""How long a foothold waits for the first agent; later, for the next one."""


@dataclass(frozen=True)
class Site:
    """One node that has some of the run's ranks."""

    name: str
    """As we call the host: the node's hostname, with its address where two have the same."""
    slots: int
    bundle: int
    """The first of its bundles, in which our foothold is."""
    node: str
    """Ray's id of the node."""
    address: str


class PlacementGroup:
    """What a run holds of a Ray that this process is connected to. Its calls are answered in milliseconds."""

    def __init__(self, name: str, bundles: int) -> None:
        self.name, self._bundles = name, bundles
        self._starting: dict[Any, str] = {}

    def exists(self) -> bool:
        return self._table() is not None

    def ask(self, bundle: Mapping[str, float], strategy: str) -> None:
        """Ask Ray for the room, where that was not done before. It is waited for without us."""
        import ray

        if not self.exists():
            ray.util.placement_group(
                [dict(bundle)] * self._bundles, strategy=strategy, name=self.name, lifetime="detached"
            )

    def is_there(self) -> bool:
        """Whether Ray has made the room. Raises LaunchError where nobody asks for it any more."""
        table = self._table()
        if table is None:
            raise LaunchError(f"somebody has removed the run's placement group {self.name!r} in Ray")
        return bool(table["state"] == "CREATED")

    def lacks(self, bundle: Mapping[str, float], strategy: str, address: str) -> str:
        """What is missing for the room."""
        there = cluster_state.of_client() if "://" in address else cluster_state.of_gcs(address)
        found = lack([bundle] * self._bundles, there, strategy=strategy)
        return "Ray is placing it" if found is None else found.told

    def sites(self) -> list[Site]:
        """The nodes that the bundles are on, in the order of their first bundles; the room is there."""
        import ray

        table = self._table()
        assert table is not None
        bundles: dict[str, list[int]] = {}
        for bundle, node in sorted((int(b), n) for b, n in table["bundles_to_node_id"].items()):
            bundles.setdefault(node, []).append(bundle)
        nodes = {node["NodeID"]: node for node in ray.nodes()}
        names = [nodes[node]["NodeManagerHostname"] for node in bundles]
        sites = []
        for name, (node, mine) in zip(names, bundles.items(), strict=True):
            address = nodes[node]["NodeManagerAddress"]
            shown = name if names.count(name) == 1 else f"{name} ({address})"
            sites.append(Site(shown, len(mine), mine[0], node, address))
        return sites

    def begin(self, sites: Sequence[Site], gpus: float, environment: Mapping[str, str]) -> None:
        """Have our footholds started, where they are not; `started` tells when they are."""
        import ray

        # The nodes have nothing of our package.
        ray.cloudpickle.register_pickle_by_value(node_actor)
        kind = ray.remote(node_actor.NodeActor)
        self._starting = {}
        for site in sites:
            actor = kind.options(
                name=self._called(site.bundle),
                namespace=NAMESPACE,
                get_if_exists=True,
                lifetime="detached",
                num_cpus=0,
                num_gpus=gpus,
                max_restarts=0,
                max_concurrency=100,
                scheduling_strategy=self._in(site.bundle),
            ).remote(stage_program(), self.name, NAMESPACE, self._bundles, _FIRST_S)
            others = self._gpus(site, gpus) if gpus else []
            self._starting[actor.equip.remote(dict(environment), others)] = site.name

    def _gpus(self, site: Site, gpus: float) -> list[Any]:
        """References to the GPUs of a node's other bundles: only who runs in a bundle is told."""
        import ray

        ask = ray.remote(node_actor.gpus_given)  # that costs a process each
        table = self._table()
        assert table is not None
        there = table["bundles_to_node_id"].items()
        mine = sorted(int(bundle) for bundle, node in there if node == site.node)
        return [
            ask.options(num_cpus=0, num_gpus=gpus, scheduling_strategy=self._in(bundle)).remote()
            for bundle in mine
            if bundle != site.bundle
        ]

    def _in(self, bundle: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(
            ray.util.get_placement_group(self.name), bundle, placement_group_capture_child_tasks=False
        )

    def started(self) -> str | None:
        """Which are still being started; None: all are there. Raises what Ray tells of one's failure."""
        import ray

        done, waiting = ray.wait(list(self._starting), num_returns=len(self._starting), timeout=0)
        ray.get(done)
        return ", ".join(self._starting[each] for each in waiting) or None

    def actor(self, site: Site) -> Any:
        """The foothold on a node. Raises ValueError where it is gone."""
        import ray

        return ray.get_actor(self._called(site.bundle), namespace=NAMESPACE)

    def remove(self) -> None:
        """Give everything back: also the footholds end. Repeatable."""
        import ray

        if self.exists():
            ray.util.remove_placement_group(ray.util.get_placement_group(self.name))

    def _called(self, bundle: int) -> str:
        return f"{self.name}-{bundle}"

    def _table(self) -> Mapping[str, Any] | None:
        import ray

        try:
            group = ray.util.get_placement_group(self.name)
        except ValueError:
            return None
        table: Mapping[str, Any] = ray.util.placement_group_table(group)
        return None if not table or table["state"] == "REMOVED" else table
