"""Facts about SageMaker's instance types: their GPUs and prices per hour (instance_types.json)."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["cost_line", "gpus_of", "has_gpus", "list_price"]

_GPU_FAMILY = re.compile(r"ml\.(?:g|p)\d")


@cache
def _known() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return known


def has_gpus(instance_type: str) -> bool:
    """Return whether instances of this type have NVIDIA GPUs, by their family's name."""
    return _GPU_FAMILY.match(instance_type) is not None


def gpus_of(instance_type: str) -> int | None:
    """Return the number of GPUs of an instance, or None if it is unknown here."""
    known: int | None = _known()["gpus"].get(instance_type, None if has_gpus(instance_type) else 0)
    return known


def list_price(instance_type: str) -> float | None:
    """Return the on-demand price of one instance in USD per hour, or None if the list has none."""
    usd: float | None = _known()["usd"].get(instance_type)
    return usd


def cost_line(instance_type: str, count: int, region: str | None, *, spot: bool, keep_alive_s: int) -> str:
    """Return the price of the instances per hour, as a line for the user.

    If the price is unknown, the line reports this.
    """
    told = _known()
    machines = f"{count} × {instance_type}"
    usd = told["usd"].get(instance_type)
    if usd is None:
        return f"{machines}: the price is not known here, see {told['current']}"
    where = told["region"] + (
        "" if region == told["region"] else f", yours in {region or 'your region'} differs"
    )
    most = "at most " if spot else ""
    line = f"{machines}: {most}{count * usd:.2f} USD/h on demand (list price of {told['date']} in {where})"
    if keep_alive_s:
        line += f", and as much while they are kept for {keep_alive_s} s after the job (--keep-alive)"
    return line
