"""Test of a saved cluster: a run with a rank on each of its hosts, which prints a greeting."""

from __future__ import annotations

from pathlib import Path

from .. import backends, clusters
from ..errors import InputError
from ..host_list import parse_hosts, read_hostfile
from ..plan.run_plan import make_plan
from ..queries.answers.forms import ClusterTest
from .origin import Origin
from .run_start import start_cell

__all__ = ["run_hello"]

_HELLO = """\
import platform
import jupyter_dist as dist

where = f"{platform.node()}, Python {platform.python_version()}"
print(f"hello from rank {dist.rank()} of {dist.world_size()} on {where}")
"""


def run_hello(name: str) -> ClusterTest:
    """Start a run that prints a greeting from every host of a cluster, or else from one rank.

    Returns the run's id without waiting for the run. Blocks for a second. Raises InputError if a hostfile
    cannot be read.
    """
    cluster = clusters.get(name)
    options = backends.declared(cluster.backend).options
    fields = options.model_json_schema()["properties"]
    # With one rank, the cluster's options on several ranks do not apply.
    alone = {key: options.model_fields[key].default for key, about in fields.items() if about.get("ranks")}
    hosts = _hosts(cluster)
    given = {**alone, "cluster": name, "np": len(hosts) or 1, "cold": True, "ship_modules": "none"}
    if hosts:
        given["hosts"] = ",".join(f"{host}:1" for host in hosts)
    plan = make_plan(given, spelled_as_flags=False)
    # Use an empty namespace: nothing of this process is captured.
    origin = Origin(label=f"test of {name}", directory=Path.cwd())
    run = start_cell(_HELLO, {"__name__": "__main__"}, plan, origin)
    return {"run_id": run.id, "hosts": hosts}


def _hosts(cluster: clusters.Cluster) -> list[str]:
    """Return the names of the hosts in a cluster's own options."""
    options = cluster.options
    try:
        if options.get("hosts"):
            return [host.name for host in parse_hosts(str(options["hosts"]))]
        if options.get("hostfile"):
            return [host.name for host in read_hostfile(str(options["hostfile"]))]
    except ValueError as error:
        raise InputError(f"the hosts of {cluster.name!r}: {error}") from None
    return []
