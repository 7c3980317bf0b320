"""The objects of a mailbox: their order, seals and signatures, and the stores that have them."""

from __future__ import annotations

import datetime
import errno
import os
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_dist.agent import mailbox_relay
from jupyter_dist.agent.mailbox_objects import SessionOrder, object_name, parse, session_name, sign, verify
from jupyter_dist.agent.stores.blob_store import BlobStore
from jupyter_dist.agent.stores.folder_store import FolderStore, open_store
from jupyter_dist.agent.stores.s3_store import S3Store, signed
from jupyter_dist.agent.stores.store import Store, StoreError
from jupyter_dist.hosts.stores.object_store import BulkStore, driver_store
from tests.rigs.mailbox.faulty_store import FaultyStore
from tests.rigs.mailbox.store_contract import keeps_its_promise

RUN = "20261120-120000-abcd12"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "body"}


@settings(max_examples=200)
@given(some.lists(some.lists(some.integers(0, 12), max_size=8), max_size=12))
def test_each_object_is_taken_once_and_in_its_turn(listings: list[list[int]]) -> None:
    """Whatever a listing shows and whenever: late, doubled, out of order."""
    inbox = SessionOrder()
    taken: list[int] = []
    for listing in listings:
        for number in inbox.due(listing):
            assert number in listing
            inbox.took(number)
            taken.append(number)
        assert (inbox.hole_s > 0) <= (max(listing, default=-1) > inbox.next)
    assert taken == list(range(len(taken)))


def test_a_hole_is_known_for_as_long_as_it_stays() -> None:
    inbox = SessionOrder()
    assert inbox.due([1, 2]) == []
    time.sleep(0.01)
    assert inbox.hole_s > 0
    assert inbox.due([0, 2]) == [0]
    inbox.took(0)
    assert inbox.hole_s == 0
    assert inbox.due([1, 2]) == [1, 2]


def test_a_courier_leaves_alone_what_another_one_has_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine in place of one that was taken away it would do all over again what letters ask for."""
    monkeypatch.setenv("JUPYTER_DIST_LIFELINE", "")
    store = FolderStore(str(tmp_path))
    here = mailbox_relay.MailboxRelay(store, "run", b"key", 0)
    store.put(object_name("run", "down", 0, "a1", 5), b"")
    store.put(session_name("run", 0, "a1"), b"")
    here._look()
    assert here._session == ""
    store.put(object_name("run", "down", 0, "a2", 5), b"")
    here._look()
    assert here._session == "a2"
    here.give_up()
    store.put(object_name("run", "down", 0, "a3", 5), b"")
    here._look()
    assert here._session == "a2", "one that ends serves nobody new"


def test_an_object_is_sealed_with_its_name() -> None:
    name = object_name(RUN, "up", 1, "00ab", 7)
    assert parse(name) == ("up", 1, "00ab", 7)
    assert parse(f"{RUN}/files/00ab") is None
    data = sign(b"key", name, b"content")
    assert verify(b"key", name, data) == b"content"
    assert verify(b"other", name, data) is None
    assert verify(b"key", object_name(RUN, "up", 1, "00ab", 8), data) is None
    assert verify(b"key", name, data[:-1] + b"!") is None
    assert verify(b"key", name, b"short") is None


def test_requests_are_signed_as_amazon_s_own_library_does() -> None:
    auth = pytest.importorskip("botocore.auth")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    environ = {**CREDENTIALS, "AWS_SESSION_TOKEN": "for a while"}
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    url = "https://s3.eu-west-1.amazonaws.com/mail/?list-type=2&prefix=a%2Fb%20c"
    ours = signed("GET", url, b"", "eu-west-1", environ, now)
    request = AWSRequest("GET", url, headers={"X-Amz-Content-SHA256": ours["x-amz-content-sha256"]})
    request.context["timestamp"] = ours["x-amz-date"]
    signer = auth.S3SigV4Auth(Credentials("some", "body", "for a while"), "s3", "eu-west-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "get_current_datetime", lambda: now.replace(tzinfo=None), raising=False)
        signer.add_auth(request)
    theirs = request.headers["Authorization"]
    if request.headers["X-Amz-Date"] == ours["x-amz-date"]:
        assert theirs == ours["authorization"]
    else:
        pytest.fail("the clock went on between the two signatures")


@pytest.fixture(scope="module")
def s3() -> Iterator[FaultyStore]:
    with FaultyStore(busy=0, late=0, doubled=0) as store:
        yield store


@pytest.mark.parametrize("kind", ["folder", "mount", "s3", "fsspec"])
def test_a_store(kind: str, tmp_path: Path, s3: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{s3.port}"
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)
    store: Store | BulkStore
    if kind in ("folder", "mount"):
        store = FolderStore(str(tmp_path))
        if kind == "mount":  # of a bucket or a Volume: it may have no renames

            def replace(*_: object) -> None:
                raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

            monkeypatch.setattr("jupyter_dist.agent.stores.folder_store.os.replace", replace)
    elif kind == "s3":
        store = S3Store("mail", "a/prefix", os.environ)
    else:
        store = driver_store("s3://mail/another prefix", {})
    keeps_its_promise(store)
    if kind == "mount":
        assert not [path for path in tmp_path.rglob(".*") if path.is_file()], "no parts are left"


def test_a_store_that_is_not_there_is_told() -> None:
    away = S3Store("mail", "", {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    with pytest.raises(StoreError, match="does not answer"):
        away.get("x")
    with pytest.raises(ValueError, match="ftp"):
        open_store("ftp://somewhere", {})


class _CutAnswer(socketserver.StreamRequestHandler):
    """Closes the connection in the middle of each answer."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n<half")


def test_an_answer_that_ends_in_the_middle_is_asked_for_again() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _CutAnswer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        signature = {"JUPYTER_DIST_MAILBOX_SAS": "sig=some"}
        stores: list[Store] = [
            S3Store("mail", "", {**CREDENTIALS, "AWS_ENDPOINT_URL": url}),
            BlobStore(f"{url}/account/mail", signature),
        ]
        for store in stores:
            with pytest.raises(StoreError, match="not whole"):
                store.get("x")
            with pytest.raises(StoreError, match="not whole"):
                store.names("run/")
        server.shutdown()
