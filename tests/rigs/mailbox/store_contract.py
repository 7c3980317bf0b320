"""What every store of a mailbox promises: it gives what it was given, lists it, and forgets it."""

from __future__ import annotations

import hashlib
import tempfile

from jupyter_dist.agent.mailbox_objects import digest_of
from jupyter_dist.agent.stores.store import Store
from jupyter_dist.hosts.stores.object_store import BulkStore

__all__ = ["keeps_its_promise"]


def keeps_its_promise(store: Store | BulkStore) -> None:
    """An empty one. Three objects are left in it."""
    assert store.names("run/up/") == []
    assert store.get("run/up/0") is None
    content = bytes(range(256)) * 5000
    for number in range(5):
        store.put(f"run/up/{number} ü", content + bytes([number]))
    store.put("run/down/0", b"")
    assert sorted(store.names("run/up/")) == [f"run/up/{number} ü" for number in range(5)]
    assert store.names("run/up/3") == ["run/up/3 ü"]
    assert store.get("run/up/4 ü") == content + b"\4"
    assert store.get("run/down/0") == b""
    _keeps_large_ones(store, content)
    store.remove(["run/up/0 ü", "run/up/1 ü", "run/up/never was"])
    assert len(store.names("run/up/")) == 3


def _keeps_large_ones(store: Store | BulkStore, content: bytes) -> None:
    """The side of the hosts reads into a file, and the driver's side writes from one."""
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/file", "wb+") as file:
        if isinstance(store, BulkStore):
            file.write(content * 10)  # more than one part of a multipart upload
            file.seek(0)
            store.put_file("run/files/large", file)
            assert store.get("run/files/large") == content * 10
        else:
            assert store.fetch("run/up/4 ü", file)
            assert digest_of(file) == hashlib.sha256(content + b"\4").hexdigest()
            assert not store.fetch("run/up/never was", file)
