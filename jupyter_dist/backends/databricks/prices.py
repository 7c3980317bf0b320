"""The price per hour of a new cluster, if node_prices.json has prices for its machines."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["cloud_of", "cost_line", "has_gpus", "usd_per_hour"]

_GPU_FAMILY = re.compile(r"(?:g|p)\d\w*\.|Standard_N[CD]|a2-|a3-|g2-")


@cache
def _prices() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return known


def cloud_of(node_type: str) -> str:
    """Return aws, azure or gcp. The pattern of a machine type's name differs between them."""
    if node_type.startswith("Standard_"):
        return "azure"
    return "aws" if "." in node_type else "gcp"


def has_gpus(node_type: str) -> bool:
    """Return whether machines of this type have GPUs, by the price lists or by their family's name."""
    known = _prices()["nodes"].get(node_type)
    return bool(known["gpus"]) if known else _GPU_FAMILY.match(node_type) is not None


def usd_per_hour(node_type: str | None, workers: int) -> float | None:
    """Return the list price of a cluster with a driver and `workers` machines. None if it is not known."""
    told = _prices()
    known = told["nodes"].get(node_type)
    if known is None or known["usd"] is None:
        return None
    return float((workers + 1) * (known["usd"] + known["dbu"] * told["dbu"]["usd"][known["cloud"]]))


def cost_line(node_type: str | None, workers: int, *, spot: bool) -> str:
    """Return the price per hour of a cluster with a driver and `workers` machines, as a line for the user.

    `node_type`: None if a policy determines it.
    """
    told, nodes = _prices(), workers + 1
    machines = f"{nodes} × {node_type or 'the machine that its policy names'}"
    machines += " (one is the driver)" if workers else ""
    known = told["nodes"].get(node_type)
    if known is None:
        return f"a new cluster: {machines}; its price is not known here, see {told['current']}"
    cloud = known["cloud"]
    dbu, dbu_price = nodes * known["dbu"], told["dbu"]["usd"][cloud]
    line = f"a new cluster: {machines}, {dbu:g} DBU/h × {dbu_price:.2f} USD = {dbu * dbu_price:.2f} USD/h"
    if known["usd"] is None:
        line += ", and the cloud's price of the machines"
    else:
        usd, most = nodes * known["usd"], "at most " if spot else ""
        line += f" and {most}{usd:.2f} USD/h for the machines, {most}{usd + dbu * dbu_price:.2f} USD/h in all"
    return (
        f"{line} (Jobs Compute, Premium, by lists of {told['lists'][cloud]['date']}, a DBU's price of "
        f"{told['dbu']['date']}; yours may differ)"
    )
