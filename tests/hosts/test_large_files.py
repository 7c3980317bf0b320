"""Files of a run that are larger than the memory, or than one request to a store accepts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.hosts.stores.s3_bucket import BucketStore
from tests.rigs.mailbox.faulty_store import FaultyStore

ROOT = Path(__file__).parents[2]
_SIZE = 300 << 20

_BOTH_SIDES = """
import os, resource, sys
from pathlib import Path
from jupyter_dist import folder as folders
from jupyter_dist.agent.mailbox_relay import MailboxRelay
from jupyter_dist.agent.stores.folder_store import FolderStore
from jupyter_dist.hosts.links.mailbox import Mailbox

root, size = Path(sys.argv[1]), int(sys.argv[2])
run = folders.create(root / "runs", "20261120-120000-abcd12", 1)
folders.write_json(run.job, {})
with run.payload.open("wb") as file:
    file.truncate(size)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
hashes = Mailbox(f"file://{root}/mail", run).upload()
os.environ["JUPYTER_DIST_LIFELINE"] = ""
relay = MailboxRelay(FolderStore(f"{root}/mail"), run.id, b"key", 0)
relay._download(f"{run.id}/files/", hashes["run/payload.pkl"], f"{root}/stage/payload.pkl")
print(os.path.getsize(f"{root}/stage/payload.pkl"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_neither_side_reads_a_payload_into_its_memory(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _BOTH_SIDES, str(tmp_path), str(_SIZE)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    size, more_kb = map(int, done.stdout.split())
    assert size == _SIZE
    assert more_kb << 10 < _SIZE / 4


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    with FaultyStore(busy=0, late=0, doubled=0) as store:
        url = f"http://127.0.0.1:{store.port}"
        for name, value in {
            "ACCESS_KEY_ID": "some",
            "SECRET_ACCESS_KEY": "body",
            "ENDPOINT_URL": url,
        }.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield store


def test_a_large_file_goes_to_a_bucket_in_parts(s3: FaultyStore, tmp_path: Path) -> None:
    boto3 = pytest.importorskip("boto3")
    client = boto3.client("s3", region_name="us-east-1")

    @contextlib.contextmanager
    def asking(what: str) -> Iterator[Any]:
        yield client

    store, content = BucketStore(asking, "s3://mail/a prefix"), os.urandom(20 << 20)
    (tmp_path / "large").write_bytes(content)
    with (tmp_path / "large").open("rb") as file:
        store.put_file("files/large", file)
    assert store.get("files/large") == content
    about = client.head_object(Bucket="mail", Key="a prefix/files/large")
    assert about["ETag"].strip('"').endswith("-3"), "an upload in three parts"
