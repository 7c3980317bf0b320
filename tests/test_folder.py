"""Run folders: ids, finding one, atomic and private writes, files of others."""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist import folder as folders
from jupyter_dist import queries
from jupyter_dist.errors import RunNotFound, UntrustedFile


def make(root: Path, run_id: str | None = None) -> folders.RunFolder:
    made = folders.create(root, run_id or folders.new_id(), 1)
    folders.write_json(made.job, {})
    return made


def test_ids_sort_by_the_time_of_their_making(own_folders: Path) -> None:
    made = [make(own_folders) for _ in range(20)]
    assert [run.id for run in folders.runs()] == sorted((run.id for run in made), reverse=True)
    # Two of the same 15 µs may change places; these are milliseconds apart.
    assert [run.id[:-4] for run in made] == sorted(run.id[:-4] for run in made)


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Moments in the night of 25 October 2026, when Berlin's clocks show the hour from two to three twice."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    began = calendar.timegm((2026, 10, 24, 23, 30, 0))
    yield [began + 1200.0 * count for count in range(10)]
    monkeypatch.undo()
    time.tzset()


def test_ids_sort_by_creation_when_the_clocks_change(
    own_folders: Path, night: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for when in night:
        monkeypatch.setattr(time, "time", lambda when=when: when)
        made.append(make(own_folders).id)
    assert made == sorted(made)
    assert [run.id for run in folders.runs(own_folders)] == made[::-1]
    assert folders.find(made[4][:15]).id == made[4]


def test_ids_of_the_local_time_stand_where_they_were_made(own_folders: Path, night: list[float]) -> None:
    made = []
    for count, when in enumerate(night):
        if count % 2:
            local = time.strftime("%Y%m%d-%H%M%S", time.localtime(when))
            folder = make(own_folders, f"{local}-{count:06x}")  # as an earlier version gave them
        else:
            utc = time.strftime("%Y%m%d-%H%M%S", time.gmtime(when))
            folder = make(own_folders, f"{utc}-{count:08x}")
        folders.write_json(folder.job, {"created": when})
        made.append(folder.id)
    assert made != sorted(made)
    assert [run.id for run in folders.runs(own_folders)] == made[::-1]
    # Page by page, as the sidebar asks for them.
    first = [run["id"] for run in queries.runs(limit=4)["runs"]]
    assert first == made[:-5:-1]
    rest = [run["id"] for run in queries.runs(before=first[-1])["runs"]]
    assert rest == made[-5::-1]


def test_a_run_is_found_by_the_beginning_or_end_of_its_id(own_folders: Path) -> None:
    first, second = make(own_folders, "20260101-000000-aaaa11"), make(own_folders, "20260102-000000-bbbb22")
    assert folders.find(first.id).id == first.id
    assert folders.find("20260102").id == second.id
    assert folders.find("aa11").id == first.id


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("2026", "matches 2 runs: 20260102-000000-bbbb22, 20260101-000000-aaaa11. Write more of the id"),
        ("a11", "no run 'a11' in .*The newest are: 20260102-000000-bbbb22"),
        ("../20260101-000000-aaaa11", "no run '../20260101"),
        ("20260101-000000-aaaa11/..", "no run"),
        ("20260101-000000-aaaa11\n", "no run"),
        ("\0", "no run"),
    ],
)
def test_what_is_not_found_is_said_with_what_there_is(own_folders: Path, asked: str, message: str) -> None:
    make(own_folders, "20260101-000000-aaaa11")
    make(own_folders, "20260102-000000-bbbb22")
    with pytest.raises(RunNotFound, match=message):
        folders.find(asked)


def test_without_runs_it_says_so(own_folders: Path) -> None:
    with pytest.raises(RunNotFound, match="There are no runs yet"):
        folders.find("abcd")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    folders.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        folders.write_json(path, {"a": object()})
    with pytest.raises(TypeError):
        folders.write_bytes(path, "text")  # type: ignore[arg-type]
    assert path.read_text() == '{"a": 1}'
    assert list(tmp_path.iterdir()) == [path]


def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0, 0o777):
        before = os.umask(umask)
        try:
            made = make(tmp_path / f"runs-{umask:o}")
        finally:
            os.umask(before)
        assert made.path.stat().st_mode & 0o777 == 0o700
        assert made.job.stat().st_mode & 0o777 == 0o600


def test_only_files_that_nobody_else_could_have_written_are_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    mine = tmp_path / "result.pkl"
    mine.write_bytes(b"")
    mine.chmod(0o600)
    folders.check_owner(mine)
    mine.chmod(0o620)
    with pytest.raises(UntrustedFile, match=r"can be written by others \(mode 0620\)"):
        folders.check_owner(mine)
    mine.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(UntrustedFile, match="can be written by others"):
        folders.check_owner(mine)
    tmp_path.chmod(0o700)
    (tmp_path / "link").symlink_to(mine)
    with pytest.raises(UntrustedFile, match="is a symbolic link"):
        folders.check_owner(tmp_path / "link")


def test_files_of_another_user_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    other = tmp_path / "result.pkl"
    other.write_bytes(b"")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(UntrustedFile, match=f"belongs to user id {me}, not to you"):
        folders.check_owner(other)
