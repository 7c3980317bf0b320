"""The requests that the driver copies to hosts: each once, and only those that ranks read."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder, create
from jupyter_dist.hosts.rank_requests import RankRequests
from jupyter_dist.worker import layout


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create(tmp_path, "20260101-000000-00000000", 2)


def test_each_request_is_copied_once(folder: RunFolder) -> None:
    requests = RankRequests(folder)
    assert list(requests.new()) == []
    folder.request(layout.answer(1), "yes")
    folder.request(layout.TRACE_REQUEST, "{}")
    folder.request("stop")
    assert sorted(requests.new()) == [("requests/answer-1", "yes"), ("requests/trace", "{}")]
    assert list(requests.new()) == []
    folder.request(layout.answer(1), "no")
    assert list(requests.new()) == [("requests/answer-1", "no")]
    (folder.requests / layout.answer(1)).unlink()
    assert list(requests.new()) == []
