"""The release of a host that stops answering while its checkpoints are copied."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.hosts import host_release
from jupyter_dist.hosts.links.mailbox import MailboxLink

TOLD = (
    "host h1 did not answer at the end of the run. Files that are missing here, such as checkpoints, may "
    "still be there in '/stage/run'"
)


def host(**changes: Any) -> Any:
    """Return a host that is being released, and that has sent nothing for some time."""
    facts: dict[str, Any] = {
        "name": "h1",
        "away": None,
        "heard": time.monotonic() - 60,
        "lost": None,
        "is_gone": False,
    }
    facts |= {"released": False, "has_sent": False, "processes": {"0.0": object()}}
    facts |= {
        "link": SimpleNamespace(up=True, stage="/stage", answers_within_s=5.0),
        "advance": lambda: None,
        "close": lambda: None,
    }
    return SimpleNamespace(**{**facts, **changes})


def test_the_user_learns_where_the_rest_may_be() -> None:
    silent = host()
    assert host_release.advance(silent) == TOLD
    assert silent.released
    assert host_release.advance(silent) is None, "once"


@pytest.mark.parametrize(
    "changes", [{"has_sent": True}, {"processes": {}}, {"lost": "it has ended"}, {"is_gone": True}]
)
def test_nothing_is_told_of_a_host_that_has_nothing_more(changes: dict[str, Any]) -> None:
    silent = host(**changes)
    assert host_release.advance(silent) is None
    assert silent.released


def test_a_store_may_delay_the_last_files() -> None:
    slow = host(heard=time.monotonic() - 30)
    slow.link.answers_within_s = MailboxLink.answers_within_s
    assert host_release.advance(slow) is None
    assert not slow.released


def test_a_host_that_sends_is_not_left() -> None:
    sends = host(heard=time.monotonic())
    assert host_release.advance(sends) is None
    assert not sends.released
