"""Ports for the tests' servers: held by who took them, free again when that process has ended."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_dist.conformance import ports

ROOT = Path(__file__).parents[2]
TAKE = "from jupyter_dist.conformance import ports; print(ports.take_port(), flush=True); input()"


@pytest.mark.race
def test_no_two_processes_get_the_same_port_before_they_bind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.take_port()
    monkeypatch.setattr(ports, "_FIRST", first)
    monkeypatch.setattr(ports, "_END", first + 1)
    with pytest.raises(RuntimeError, match="is free"):
        ports.take_port()
    narrow = (
        "from jupyter_dist.conformance import ports\n"
        f"ports._FIRST, ports._END = {first}, {first + 1}\n"
        "ports.take_port()"
    )
    done = subprocess.run([sys.executable, "-c", narrow], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "is free" in done.stderr


def test_a_port_is_free_again_when_its_holder_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        monkeypatch.setattr(ports, "_FIRST", port)
        monkeypatch.setattr(ports, "_END", port + 1)
        with pytest.raises(RuntimeError, match="is free"):
            ports.take_port()
        holder.communicate("\n")
    assert ports.take_port() == port


def test_a_port_that_somebody_else_listens_at_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.take_port()
    with socket.create_server(("127.0.0.1", port)):
        monkeypatch.setattr(ports, "_FIRST", port)
        monkeypatch.setattr(ports, "_END", port + 1)
        monkeypatch.setattr(ports, "_take", lambda lock: True)
        with pytest.raises(RuntimeError, match="is free"):
            ports.take_port()
