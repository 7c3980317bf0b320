"""Which layers the hint `batch-norm` is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.worker.hints import torch_data

pytestmark = pytest.mark.needs("torch")


def test_a_frozen_layer_does_not_normalize_over_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn

    told: list[dict[str, Any]] = []
    monkeypatch.setattr(torch_data, "report", lambda name, **facts: told.append(facts))

    def look(*layers: nn.Module) -> list[dict[str, Any]]:
        told.clear()
        torch_data._look_for_normalization(SimpleNamespace(module=nn.ModuleList(layers)), 2)
        return told

    frozen = nn.BatchNorm2d(3).eval()
    assert look(frozen, nn.Linear(3, 3)) == []
    assert look(frozen, nn.BatchNorm1d(3)) == [{"layers": 1, "layer": "1", "batch": 2}]
    without_statistics = nn.BatchNorm1d(3, track_running_stats=False).eval()
    assert look(without_statistics) == [{"layers": 1, "layer": "0", "batch": 2}]
