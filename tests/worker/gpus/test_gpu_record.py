"""The record of who uses which GPU: which it gives, to whom, and what others may do to it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from jupyter_dist.worker.gpus import devices
from jupyter_dist.worker.gpus import record as gpu_record
from jupyter_dist.worker.gpus.devices import Gpu
from jupyter_dist.worker.gpus.lease import GpuRequest, Lease, Refused, TooFew, standing
from jupyter_dist.worker.gpus.record import Holder
from tests.rigs.nvidia import FakeGpus
from tests.rigs.stopwatch import WaitFor

HOLDER = """
import json, os, sys
from jupyter_dist.worker.gpus.lease import GpuRequest, Lease, Refused
if len(sys.argv) > 3:  # only now: another user cannot read this interpreter's files
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
lease = Lease()
try:
    request = GpuRequest(sys.argv[1], "train.ipynb", int(sys.argv[2]), 1)
    print([gpu.name for gpu in lease.take(request)], flush=True)
except Refused as error:
    print(error, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(own_folders: Path) -> Path:
    return Path(os.environ[gpu_record.FOLDER])


@contextlib.contextmanager
def another(run: str, count: int, *, uid: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that takes GPUs, of another user if need be, and keeps them until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, run, str(count), *([] if uid is None else [str(uid)])],
        cwd=PACKAGE_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wish(count: int, **more: Any) -> GpuRequest:
    return GpuRequest("mine", None, count, 1, **more)


@pytest.mark.parametrize(
    ("there", "each", "takers", "spare", "taken", "shares"),
    [
        (4, None, 2, False, 4, ["0,1", "2,3"]),
        (5, None, 2, False, 4, ["0,1", "2,3"]),
        (4, 1, 2, False, 2, ["0", "1"]),
        (4, 2, 2, False, 4, ["0,1", "2,3"]),
        (2, 0.5, 3, False, 2, ["0", "0", "1"]),
        (2, 0.3, 4, False, 2, ["0", "0", "0", "1"]),
        (8, None, 4, True, 4, ["0", "1", "2", "3"]),
        (2, None, 4, True, 2, None),
        (1, None, 2, False, 0, None),
        (1, 1, 2, True, 1, None),
    ],
)
def test_how_many_are_taken_and_who_gets_which(
    there: int, each: float | None, takers: int, spare: bool, taken: int, shares: list[str] | None
) -> None:
    asked = GpuRequest("a", None, takers, each, spare=spare)
    assert asked.count(there, there) == taken
    if shares is not None:
        assert [",".join(own) for own in asked.shares_out([str(at) for at in range(taken)])] == shares


def test_gpus_by_index_by_uuid_and_parts_of_them(
    fake_gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.say(
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)\n"
        "  MIG 1g.5gb      Device  0: (UUID: MIG-1111)\n"
        "  MIG 1g.5gb      Device  1: (UUID: MIG-2222)\n"
        "GPU 1: Orin (nvgpu) (UUID: abcd-ef)\n"
        "GPU 2: An odd one\n"
    )
    whole = (Gpu("0", "GPU-aaaa"), Gpu("1", "abcd-ef"), Gpu("2", None))
    assert devices.visible_gpus() == whole
    long = "GPU-" + "0" * 36
    told = {
        "2, 0,-1,1": (Gpu("2", None), Gpu("0", "GPU-aaaa")),
        "": (),
        "GPU-aa": (Gpu("GPU-aa", "GPU-aaaa"),),
        "MIG-2222": (Gpu("MIG-2222", "MIG-2222", "GPU-aaaa"),),
        "MIG": (Gpu("MIG", None),),
        "MIG-GPU-aaaa/3/0": (Gpu("MIG-GPU-aaaa/3/0", "MIG-GPU-aaaa/3/0", "GPU-aaaa"),),
        "7": (Gpu("7", None),),
        long: (Gpu(long, long),),
    }
    for chosen, expected in told.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
        assert devices.visible_gpus() == expected
        assert devices.order(expected) == {}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert devices.order(whole) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert devices.order(()) == {}


def test_a_part_is_held_with_its_whole_and_not_with_other_parts() -> None:
    whole, first, second = Gpu("0", "W"), Gpu("a", "P", "W"), Gpu("b", "Q", "W")
    of_part = Holder("r", None, frozenset({"P"}), frozenset({"W"}))
    of_whole = Holder("r", None, frozenset({"W"}))
    assert [of_part.has(gpu) for gpu in (whole, first, second)] == [True, True, False]
    assert [of_whole.has(gpu) for gpu in (whole, first, second)] == [True, True, True]
    assert not of_part.has(Gpu("0", None))


def test_what_is_said_of_who_has_what() -> None:
    all_of_them = [Gpu(str(at), f"G{at}") for at in range(6)]
    others = [
        Holder("A", "train.ipynb", frozenset({"G0", "G1", "G3"}), user="anna"),
        Holder("B", None, frozenset({"G4"}), shares=True),
        Holder("C", None, frozenset({"G0"}), waits_for=2, ticket=4),
        Holder("D", None, frozenset({"elsewhere"})),
    ]
    assert standing(all_of_them, []) == ""
    told = "GPUs 0-1, 3 are held by run A of train.ipynb (user anna), GPU 4 is shared by run B"
    assert standing(all_of_them, others) == f"{told}, run C waits for 2; 2 are free"
    assert standing(all_of_them, others, ticket=4) == f"{told}; 2 are free"
    assert standing(all_of_them[:1], others[:1]).endswith("; none is free")


def test_more_than_there_are_is_never_waited_for(fake_gpus: FakeGpus) -> None:
    fake_gpus.are(2)
    with pytest.raises(TooFew, match="3 GPUs are needed, but only 2 are visible here"):
        Lease().take(wish(3), wait=True)
    fake_gpus.are(0)
    with pytest.raises(TooFew, match="1 GPU is needed, but none is visible here"):
        Lease().take(wish(1))
    assert Lease().take(GpuRequest("a", None, 2)) == ()


def test_a_process_that_is_killed_holds_nothing(fake_gpus: FakeGpus, wait_for: WaitFor, place: Path) -> None:
    fake_gpus.are(2)
    with another("theirs", 2) as process:
        assert said(process) == "['0', '1']"
        with pytest.raises(Refused, match=r"GPUs 0-1 are held by run theirs of train\.ipynb; none is free"):
            Lease().take(wish(1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert gpu_record.holders() == []
    lease = Lease()
    assert [gpu.name for gpu in lease.take(wish(1))] == ["0"]
    assert len(list(place.glob("theirs-*"))) == 0  # what it has left is tidied up by the next
    lease.release()
    lease.release()


def test_what_a_rank_has_forked_holds_on(fake_gpus: FakeGpus, wait_for: WaitFor) -> None:
    fake_gpus.are(1)
    lease = Lease()
    lease.take(wish(1))
    assert lease.path is not None
    rank = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys; from jupyter_dist.worker.gpus.record import hold; hold(sys.argv[1])\n"
            "if os.fork(): print('held', flush=True); os._exit(0)\nsys.stdin.read()",
            lease.path,
        ],
        cwd=PACKAGE_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert said(rank) == "held"
    assert rank.wait() == 0
    lease.release()
    assert [holder.run for holder in gpu_record.holders()] == ["mine"]
    with pytest.raises(Refused, match="GPU 0 is held by run mine"):
        Lease().take(wish(1))
    rank.communicate()  # the end of its input is the end of what it has forked
    wait_for(lambda: gpu_record.holders() == [])


def test_a_place_in_the_queue_is_kept_and_given_up(fake_gpus: FakeGpus) -> None:
    fake_gpus.are(3)
    holding, first, second = Lease(), Lease(), Lease()
    holding.take(wish(2))
    for lease, count in ((first, 2), (second, 1)):
        with pytest.raises(Refused, match=f"^waits for {count} GPU"):
            lease.take(GpuRequest("w", None, count, 1), wait=True)
    with pytest.raises(
        Refused, match=r"run w waits for 2, run w waits for 1; 1 is free\. Add --wait-for-gpus"
    ):
        Lease().take(wish(1))
    first.release()
    assert [gpu.name for gpu in second.take(wish(1), wait=True)] == ["2"]
    holding.release()
    assert [gpu.name for gpu in Lease().take(wish(2))] == ["0", "1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_users_of_a_machine_see_each_other_and_cannot_undo_it(
    fake_gpus: FakeGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.are(3)
    with open_to_all(tmp_path, monkeypatch) as place, another("anna", 1, uid=10001) as anna:
        assert said(anna) == "['0']"
        assert stat.S_IMODE(place.stat().st_mode) == 0o1777
        with another("bert", 1, uid=10002) as bert:
            assert said(bert) == "['1']"
            with pytest.raises(
                Refused,
                match=r"GPU 0 is held by run anna of train.ipynb \(user 10001\), "
                r"GPU 1 is held by run bert of train.ipynb \(user 10002\); 1 is free",
            ):
                Lease().take(wish(2))
            record = str(next(place.glob("anna-*")))
            for argv in (["rm", "-f", record], ["sh", "-c", f"echo > '{record}'"], ["mv", record, "/tmp/x"]):
                done = subprocess.run(argv, user=10002, stderr=subprocess.PIPE, text=True, check=False)
                assert re.search("denied|not permitted", done.stderr)
            with another("carl", 2, uid=10002) as carl:
                assert said(carl).startswith("2 GPUs are needed: GPU 0 is held by run anna of train.ipynb (u")
        assert [holder.run for holder in gpu_record.holders()] == ["anna"]


@contextlib.contextmanager
def open_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the record, and the fake, that every user can reach: pytest's own are private."""
    import shutil
    import tempfile

    base = Path(tempfile.mkdtemp(prefix="jd-gpus-"))
    try:
        base.chmod(0o755)
        shutil.copytree(tmp_path / "nvidia", base / "nvidia")
        program = base / "nvidia" / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat '{base}/nvidia/list'\n")
        monkeypatch.setenv("PATH", f"{base}/nvidia:{os.environ['PATH']}")
        (base / "of root").mkdir(mode=0o700)
        (base / "locks").mkdir()
        (base / "locks").chmod(0o1777)
        monkeypatch.setenv(gpu_record.FOLDER, str(base / "locks"))
        yield base / "locks"
    finally:
        shutil.rmtree(base)


def test_a_folder_is_made_for_all_whatever_the_umask(fake_gpus: FakeGpus, place: Path) -> None:
    fake_gpus.are(1)
    before = os.umask(0o077)
    try:
        lease = Lease()
        lease.take(wish(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o644}
    lease.release()


@pytest.mark.parametrize("kind", ["a link", "a file", "a pipe"])
def test_where_there_can_be_no_record_runs_go_on_without(fake_gpus: FakeGpus, place: Path, kind: str) -> None:
    fake_gpus.are(2)
    victim = place.with_name("victim")
    if kind == "a link":
        victim.mkdir()
        place.symlink_to(victim)
    elif kind == "a file":
        place.write_text("no folder")
    else:
        os.mkfifo(place)
    lease = Lease()
    assert [gpu.name for gpu in lease.take(wish(2))] == ["0", "1"]
    assert str(place) in str(lease.unrecorded)
    assert gpu_record.problem() is not None
    assert gpu_record.holders() == []
    assert not victim.exists() or os.listdir(victim) == []  # nothing is written where a link leads
    lease.release()


def test_where_nothing_can_be_written_what_is_there_is_heeded(
    fake_gpus: FakeGpus, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.are(2)
    first, second = Lease(), Lease()
    first.take(wish(1))
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may write anywhere
    assert [gpu.name for gpu in second.take(wish(1))] == ["1"]
    assert "chmod 1777" in str(second.unrecorded)
    with pytest.raises(Refused, match="2 GPUs are needed: GPU 0 is held by run mine; 1 is free"):
        Lease().take(wish(2))
    first.release()


def test_what_others_put_into_the_folder_is_harmless(fake_gpus: FakeGpus, place: Path) -> None:
    fake_gpus.are(2)
    first = Lease()
    first.take(wish(1))
    secret = place.with_name("secret")
    secret.write_text('{"run": "secret", "uuids": ["GPU-fake-1"], "ticket": 0}')
    (place / "link-00000000.json").symlink_to(secret)
    (place / "gone-00000000.json").symlink_to("/nowhere")
    os.mkfifo(place / "pipe-00000000.json")
    (place / "folder-00000000.json").mkdir()
    (place / "mine-to-keep.json").write_text("a file of the user's")
    (place / "plain").write_text("another")
    for number, text in enumerate(
        [
            b"",
            b"\xff\xfe",
            b"[" * 50_000,
            b"{" + b'"a":' * 50_000,
            b"[]",
            b"7",
            json.dumps({"run": 7, "uuids": "GPU-fake-1", "ticket": -5, "waits_for": True}).encode(),
            json.dumps({"run": "a\x1b[31m\nb" * 99, "uuids": [[], {}, None], "notebook": {}}).encode(),
            json.dumps({"uuids": ["GPU-other"], "waits_for": 10**30, "ticket": 1e300}).encode(),
        ]
    ):
        path = place / f"odd-{number:08x}.json"
        path.write_bytes(text)
        gpu_record.hold(str(path))
    lease = Lease()
    assert [gpu.name for gpu in lease.take(wish(1))] == ["1"]
    for holder in gpu_record.holders():
        assert len(holder.run) <= 80
        assert holder.run.isprintable()
        assert 0 <= holder.ticket <= 1 << 53
    assert "secret" not in [holder.run for holder in gpu_record.holders()]
    assert secret.exists()
    assert (place / "mine-to-keep.json").exists()
    assert (place / "plain").exists()
    first.release()
    lease.release()


def test_one_who_keeps_the_turn_delays_and_does_not_prevent(
    fake_gpus: FakeGpus, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.are(1)
    monkeypatch.setattr(gpu_record, "_TURN_S", 0.2)
    with gpu_record.turn():
        lease = Lease()
        assert [gpu.name for gpu in lease.take(wish(1))] == ["0"]
        with pytest.raises(Refused):
            Lease().take(wish(1))
    lease.release()


@pytest.mark.race
def test_many_at_once_never_get_the_same(fake_gpus: FakeGpus) -> None:
    fake_gpus.are(5)
    with contextlib.ExitStack() as stack:
        all_of_them = [stack.enter_context(another(f"r{number}", 1)) for number in range(8)]
        told = [said(process) for process in all_of_them]
        assert sorted(answer for answer in told if answer.startswith("[")) == [f"['{at}']" for at in range(5)]
        assert sum("1 GPU is needed" in answer and "none is free" in answer for answer in told) == 3


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_runs_go_on_without_a_record_on_a_file_system_that_has_no_locks(
    fake_gpus: FakeGpus, place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(fd: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    fake_gpus.are(2)
    lease = Lease()
    assert [gpu.name for gpu in lease.take(wish(2))] == ["0", "1"]
    told = str(lease.unrecorded)
    assert os.strerror(number) in told
    assert f"Set {gpu_record.FOLDER} to a folder on a local disk" in told
    lease.release()
