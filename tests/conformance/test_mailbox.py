"""A stranger's backend whose hosts are reached only through a store that has every fault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.conformance import BackendConformance, SessionConformance, Target
from tests.rigs.mailbox.platform import camp
from tests.rigs.warm_ranks import warm_starts


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with camp(tmp_path_factory.mktemp("tents")) as there, warm_starts():
        yield Target("tents", np=3, flags=there.flags, startup_s=12.0, cold=False, lives=there.lives)


class TestMailbox(BackendConformance):
    pass


class TestMailboxSession(SessionConformance):
    pass
