"""The variables of ranks that a launcher on this machine starts on other hosts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.backends.launchers import multi_host_launcher
from jupyter_dist.backends.launchers.multi_host_launcher import rank_environments
from jupyter_dist.backends.mpi.options import MpiOptions
from jupyter_dist.job import Job


def test_addresses_of_ipv6_have_brackets_in_tf_config_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"a": "fd00::1", "b": "10.0.0.2"}
    monkeypatch.setattr(multi_host_launcher, "environment_there", lambda *_: {})
    monkeypatch.setattr(multi_host_launcher, "addresses_of", lambda *_: addresses)
    ports = {"a": [15001, 15002], "b": [15003]}
    there: Any = SimpleNamespace(
        names=["a", "b"], fleet=SimpleNamespace(ports=ports.__getitem__, facts=lambda name: None)
    )
    asked = MpiOptions(hosts=({"name": "a", "slots": 1}, {"name": "b", "slots": 1}))
    found = rank_environments("mpi", Job("id", "mpi", 2, 0.0, "/", "/py", "1", options={}), 0, asked, there)
    assert found["b"]["JUPYTER_DIST_TF_WORKERS"] == "[fd00::1]:15001,10.0.0.2:15003"
    assert found["b"]["MASTER_ADDR"] == "fd00::1"
