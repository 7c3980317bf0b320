"""The test of a saved cluster: a run of one rank that says hello from where the cluster's ranks are."""

from __future__ import annotations

from pathlib import Path

from .. import backends, clusters
from ..plan.planning import make_plan
from ..queries.form_answers import ClusterTest
from .cell_or_call import start_cell
from .origin import Origin

__all__ = ["run_hello"]

_HELLO = """\
import platform
import jupyter_dist as dist

where = f"{platform.node()}, Python {platform.python_version()}"
print(f"hello from rank {dist.rank()} of {dist.world_size()} on {where}")
"""


def run_hello(name: str) -> ClusterTest:
    """Start a run of one rank that says hello on a cluster; returns its id at once. Blocks for a second."""
    cluster = clusters.get(name)
    options = backends.declared(cluster.backend).options
    fields = options.model_json_schema()["properties"]
    # One rank has no room for what the cluster says of several.
    alone = {key: options.model_fields[key].default for key, about in fields.items() if about.get("ranks")}
    given = {**alone, "cluster": name, "np": 1, "cold": True, "ship_modules": "none"}
    plan = make_plan(given, spelled_as_flags=False)
    # The namespace stands for a notebook's; nothing of this process goes along.
    origin = Origin(label=f"test of {name}", directory=Path.cwd())
    run = start_cell(_HELLO, {"__name__": "__main__"}, plan, origin)
    return {"run_id": run.id}
