"""A stranger's backend whose hosts are reached only through a store that has every fault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.conformance import BackendConformance, SessionConformance, Target
from tests.rigs.mailbox.platform import camp


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with camp(tmp_path_factory.mktemp("tents")) as there:
        yield Target("tents", np=3, flags=there.flags, startup_s=12.0, lives=there.lives)


class TestMailbox(BackendConformance):
    pass


class TestMailboxSession(SessionConformance):
    pass
