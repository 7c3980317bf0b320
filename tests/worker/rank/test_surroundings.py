"""What a rank notes beside its error: whether a DataLoader's worker has gone."""

from __future__ import annotations

import os

import pytest

from jupyter_dist.worker.rank import surroundings

LOADER = os.path.join("site-packages", "torch", "utils", "data", "dataloader.py")


def raised(error: BaseException, file: str) -> BaseException:
    """Return an error that code of a file has raised."""
    with pytest.raises(type(error)) as found:
        exec(compile("raise error", file, "exec"), {"error": error})
    return found.value


@pytest.mark.parametrize("kind", [ConnectionResetError, EOFError])
def test_the_connection_to_a_worker_of_a_loader(kind: type[Exception]) -> None:
    assert surroundings.of(raised(kind("gone"), LOADER))["worker_gone"] is True


def test_a_connection_to_something_else() -> None:
    assert "worker_gone" not in surroundings.of(raised(ConnectionResetError("gone"), "client.py"))
    assert "worker_gone" not in surroundings.of(raised(ValueError("bad row"), LOADER))
