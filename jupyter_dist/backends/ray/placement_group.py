"""The placement group of a run: its resources on Ray nodes, and our node actors there.

Names follow from the run's id. Every process, such as a new supervisor, finds the group and the actors by
their names.
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
"""Seconds that a node actor waits for its first agent, and later for the next one."""


@dataclass(frozen=True)
class Site:
    """One node that has some of the run's ranks."""

    name: str
    """Our name of the host: the node's hostname, with its address if two nodes have the same hostname."""
    slots: int
    bundle: int
    """The first of the node's bundles. Our node actor is in it."""
    node: str
    """Ray's id of the node."""
    address: str


class PlacementGroup:
    """A run's resources on the cluster to which this process is connected. Calls take milliseconds."""

    def __init__(self, name: str, bundles: int) -> None:
        self.name, self._bundles = name, bundles
        self._starting: dict[Any, str] = {}

    def exists(self) -> bool:
        return self._table() is not None

    def ask(self, bundle: Mapping[str, float], strategy: str) -> None:
        """Request the placement group from Ray, unless that was done before. Does not block."""
        import ray

        if not self.exists():
            ray.util.placement_group(
                [dict(bundle)] * self._bundles, strategy=strategy, name=self.name, lifetime="detached"
            )

    def is_there(self) -> bool:
        """Return whether Ray has created the group.

        Raises LaunchError if nobody requests the group any more.
        """
        table = self._table()
        if table is None:
            raise LaunchError(f"somebody has removed the run's placement group {self.name!r} in Ray")
        return bool(table["state"] == "CREATED")

    def lacks(self, bundle: Mapping[str, float], strategy: str, address: str) -> str:
        """Return what the cluster lacks for the group."""
        there = cluster_state.of_client() if "://" in address else cluster_state.of_gcs(address)
        found = lack([bundle] * self._bundles, there, strategy=strategy)
        return "Ray is placing it" if found is None else found.told

    def sites(self) -> list[Site]:
        """Return the nodes of the bundles, in the order of their first bundles. The group must be ready."""
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
        """Start our node actors, unless they exist. `started` reports when they run."""
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
        """Return references to the GPUs of a node's other bundles: Ray reports them only inside a bundle."""
        import ray

        ask = ray.remote(node_actor.gpus_given)  # each call costs a process
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
        """Return which actors are still starting. None: all run. Raises Ray's error if one failed."""
        import ray

        done, waiting = ray.wait(list(self._starting), num_returns=len(self._starting), timeout=0)
        ray.get(done)
        return ", ".join(self._starting[each] for each in waiting) or None

    def actor(self, site: Site) -> Any:
        """Return the actor on a node. Raises ValueError if it has ended."""
        import ray

        return ray.get_actor(self._called(site.bundle), namespace=NAMESPACE)

    def remove(self) -> None:
        """Release everything, the node actors included. Repeatable."""
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
