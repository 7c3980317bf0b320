"""What every store of a mailbox promises: it gives what it was given, lists it, and forgets it."""

from __future__ import annotations

from jupyter_dist.agent.stores.store import Store

__all__ = ["keeps_its_promise"]


def keeps_its_promise(store: Store) -> None:
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
    store.remove(["run/up/0 ü", "run/up/1 ü", "run/up/never was"])
    assert len(store.names("run/up/")) == 3
