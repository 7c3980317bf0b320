"""The hint `nan`: a loss that is nan or infinite, as logged or as passed to `backward`.

One such value may be meant, for example while there is no measurement yet. So two in a row are needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..output import events
from . import report, safely, wanted

__all__ = ["Backward", "Logged", "install"]

_LOSS = re.compile(r"(?:^|[^a-z])loss", re.IGNORECASE)
_NOT_TRAINED = re.compile(r"best|min|max|low|val|test|eval|dev", re.IGNORECASE)
"""In the name of a value that a rank may log as nan or inf on purpose, such as the best loss so far."""


def install() -> None:
    """Look at the losses that the rank logs from now on."""
    writer = events.writer()
    if writer is not None:
        writer.losses = Logged()


class Logged:
    """Losses among the metrics that a rank logs."""

    def __init__(self) -> None:
        self._first: dict[str, int | None] = {}
        """Loss that was not finite the last time → its step then."""

    def take(self, values: Mapping[str, float], step: int | None) -> None:
        """Look at the metrics of one step."""
        for name, value in values.items():
            if not isinstance(value, float) or math.isfinite(value):
                self._first.pop(name, None)
            elif name not in self._first:
                if _LOSS.search(name) and not _NOT_TRAINED.search(name):
                    self._first[name] = step
            else:
                first = self._first[name]
                at = "its first step" if first is None else f"step {first}"
                _report(repr(name[:60]), value, at, first or 0)


class Backward:
    """Losses of which a rank computes gradients. Only numbers on the CPU: no device is waited for.

    A caller first asks `looks`.
    """

    def __init__(self, precise: frozenset[Any]) -> None:
        self._precise = precise
        """The types of numbers in which a loss is not scaled until it overflows, as in mixed precision."""
        self._calls = self._first = 0
        self.looks = wanted("nan")

    def take(self, loss: Any) -> None:
        """Look at the loss of one call of `backward`. Raises nothing."""
        # Each name and call costs microseconds here, because a step of a model leaves nothing in the caches.
        self._calls += 1
        try:
            if loss.is_cpu:
                value = loss.item()
                if value - value:  # nan, also for an infinite value
                    self._strange(loss, value)
                elif self._first:
                    self._first = 0
        except Exception:  # several numbers, which backward refuses itself
            return

    @safely("nan")
    def _strange(self, loss: Any, value: float) -> None:
        if loss.dtype not in self._precise:
            self.looks = False
        elif self._first:
            self.looks = False
            _report("the loss", value, f"call {self._first} of backward()", self._first)
        else:
            self._first = self._calls


def _report(what: str, value: float, at: str, number: int) -> None:
    report("nan", what=what, value="nan" if math.isnan(value) else "infinite", at=at, number=number)
