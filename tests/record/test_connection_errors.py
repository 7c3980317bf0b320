"""A connection error is the consequence of another rank's end only if it may be of a connection to a rank."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist.record.failures.failures import RankError, is_symptom

CELL = {"file": "<In[1]>", "label": "In[1]"}
SOCKET = {"file": "/usr/lib/python3.11/socket.py"}
URLLIB = {"file": "/usr/lib/python3.11/urllib/request.py"}
PIPE = {"file": "/usr/lib/python3.11/multiprocessing/connection.py"}


def package(path: str) -> dict[str, str]:
    return {"file": f"/venv/lib/python3.11/site-packages/{path}"}


LOADER = [package("torch/utils/data/dataloader.py"), package("torch/multiprocessing/reductions.py"), PIPE]


def error(kind: str, message: str, *frames: dict[str, Any]) -> RankError:
    return RankError(1, 5.0, "exception", kind, message, frames=(CELL, *frames))


@pytest.mark.parametrize(
    "found",
    [
        error("ConnectionResetError", "[Errno 104] Connection reset by peer", *LOADER),
        error("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        error("BrokenPipeError", "[Errno 32] Broken pipe", PIPE),
        error("URLError", "<urlopen error [Errno 111] Connection refused>", URLLIB),
        error("ConnectionError", "Connection refused", package("requests/adapters.py")),
        error("OperationalError", "server closed: Connection refused", package("psycopg2/__init__.py")),
        error("ServiceUnavailable", "UNAVAILABLE: of a service", package("google/api_core/grpc_helpers.py")),
        error("ValueError", "bad batch"),
    ],
    ids=lambda found: found.type,
)
def test_the_ranks_own(found: RankError) -> None:
    assert not is_symptom(found)


@pytest.mark.parametrize(
    "found",
    [
        error("RuntimeError", "Connection closed by peer", package("torch/distributed/distributed_c10d.py")),
        error("RuntimeError", "Connection closed by peer", package("torch/autograd/graph.py")),
        error("RuntimeError", "Connection reset by peer"),
        error("UnavailableError", "UNAVAILABLE: gone", package("tensorflow/python/framework/ops.py")),
        error("URLError", "Connection refused", package("horovod/runner/http/http_client.py"), URLLIB),
        error("Exception", "Broken pipe", package("mpi4py/run.py")),
        error("RuntimeError", "NCCL communicator was aborted", package("cupy/cuda/nccl.py")),
        RankError(1, 5.0, "exception", "RuntimeError", "Connection reset by peer"),
    ],
    ids=lambda found: found.message,
)
def test_of_another_rank(found: RankError) -> None:
    assert is_symptom(found)
