"""The digest of a run's metrics: the numbers of a whole reading, however it was kept, and few bytes read."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.folder import RunFolder
from jupyter_dist.queries import media_pages, rank_reports
from jupyter_dist.record.metrics import points as metrics
from jupyter_dist.record.metrics.digest import LINES
from jupyter_dist.showing import summary, summary_curves
from jupyter_dist.supervise import digest_update
from jupyter_dist.supervise.log_index import LogIndexWriter
from jupyter_dist.text.safe import one_line
from jupyter_dist.text.svg import Curves
from jupyter_dist.worker import layout
from jupyter_dist.worker.output.events import EventWriter
from tests.rigs.run_maker import RunMaker

NAMES = st.sampled_from(["loss", "acc 1", 'an "odd" nämé\n'])
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(-9, 9)
)
POINTS = st.tuples(st.dictionaries(NAMES, NUMBERS, min_size=1, max_size=2), st.sampled_from(["step", "none"]))
# Many points of one make, as a loop logs them; one of any make; what is no metric; what a full disk leaves.
PIECES = st.one_of(
    st.tuples(st.just("loop"), st.integers(1, 400)),
    st.tuples(st.just("point"), POINTS),
    st.tuples(
        st.just("line"), st.sampled_from(['{"seq":1,"time":1.5,"kind":"note","text":"x"}', '{"torn', ""])
    ),
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1), PIECES, st.integers(0, 40)),
        st.tuples(st.just("read"), st.none(), st.none(), st.none()),
        st.tuples(st.just("killed"), st.none(), st.none(), st.none()),
        st.tuples(st.just("attempt"), st.none(), st.none(), st.none()),
    ),
    max_size=12,
)


class _Rank:
    """Writes the lines of a rank, and now and then only a part of one, whose rest comes with the next."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path, self.rank = path, rank
        self.step, self.torn = 0, b""

    def write(self, what: str, of: Any, tear: int) -> None:
        data = self.torn + b"".join(line.encode() + b"\n" for line in self._lines(what, of))
        # Leave no line that lacks only its end: it is one for `run.metrics`, and none yet for a summary.
        cut = max(0, len(data) - tear)
        if data[cut : cut + 1] == b"\n":
            cut += 1
        with self.path.open("ab") as file:
            file.write(data[:cut])
        self.torn = data[cut:]

    def _lines(self, what: str, of: Any) -> list[str]:
        if what == "line":
            return [of]
        if what == "point":
            return [self._line(of[0], None if of[1] == "none" else self.step)]
        return [self._line({"loss": math.sin(self.step * 7919 + self.rank)}, self.step) for _ in range(of)]

    def _line(self, values: dict[str, Any], step: int | None) -> str:
        self.step += 1
        spelled = {
            k: re.sub("nan", "NaN", str(v)) if isinstance(v, float) and v != v else v
            for k, v in values.items()
        }
        event = {
            "seq": self.step,
            "time": 1.5 + self.step,
            "kind": "metric",
            "step": step,
            "values": spelled,
        }
        return json.dumps(event, separators=(",", ":"))


def same(one: dict[str, Curves], two: dict[str, Curves]) -> None:
    """All is equal, but for the mean of a band, which is rounded in the order in which points came."""
    assert set(one) == set(two)  # two names of one moment may change places
    for name in one:
        assert repr(one[name].series) == repr(two[name].series)
        rows, others = ([(x, low, high) for x, low, _, high in c.band] for c in (one[name], two[name]))
        assert rows == others
        means, others_means = ([row[2] for row in c.band] for c in (one[name], two[name]))
        assert means == pytest.approx(others_means, rel=1e-9, abs=1e-6)


def whole(folder: RunFolder) -> dict[str, Curves]:
    """A reading of all points, with no digest to be found."""
    kept = {path: path.read_bytes() for path in folder.path.glob("attempts/*/curves.json")}
    for path in kept:
        path.unlink()
    try:
        return summary_curves.curves(folder)
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


@pytest.mark.parametrize("ranks", [2, LINES + 1])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS)
def test_what_is_kept_while_points_come_is_what_a_whole_reading_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, actions: list[Any]
) -> None:
    """Through supervisors that are killed, attempts, and lines that are torn or written in two."""
    monkeypatch.setattr(digest_update, "_WORTH_BYTES", 1)
    monkeypatch.setattr(digest_update, "_STORE_EVERY_S", 0.0)
    monkeypatch.setattr(digest_update, "_STORE_REST", 0.0)
    monkeypatch.setattr(digest_update, "_REST", 0.0)
    made = RunMaker(tmp_path, ranks)
    writers = {rank: _Rank(made.rank(rank).events, rank) for rank in (0, ranks - 1)}
    indexer = LogIndexWriter(made.folder, 0, digests=True)
    try:
        for what, which, piece, tear in actions:
            if what == "write":
                kind, of = piece
                writers[(ranks - 1) * which].write(kind, of, tear)
            elif what == "read":
                indexer.tick(1.0, ranks)
            elif what == "killed":
                indexer = LogIndexWriter(made.folder, made.status.attempt, digests=True)
            else:
                indexer.finish(1.0, ranks)
                made.next_attempt()
                writers = {rank: _Rank(made.rank(rank).events, rank) for rank in writers}
                indexer = LogIndexWriter(made.folder, made.status.attempt, digests=True)
        same(summary_curves.curves(made.folder), whole(made.folder))
        indexer.finish(1.0, ranks)
        same(summary_curves.curves(made.folder), whole(made.folder))
        agrees_with_points(made.folder)
    finally:
        shutil.rmtree(made.folder.path)


def agrees_with_points(folder: RunFolder) -> None:
    """Last values, least and greatest are those of `run.metrics`, which another way of reading gives."""
    points: dict[str, dict[int, list[float]]] = {}
    for attempt in folder.attempts():
        for point in metrics.points(folder, attempt):
            points.setdefault(one_line(point.name, 60), {}).setdefault(point.rank, []).append(point.value)
    found = summary_curves.curves(folder)
    assert set(found) == set(points)
    for name, by_rank in points.items():
        assert [one.rank for one in found[name].series] == sorted(by_rank)
        for one in found[name].series:
            assert repr(one.values[-1]) == repr(by_rank[one.rank][-1])
        finite = [value for values in by_rank.values() for value in values if math.isfinite(value)]
        shown = [value for one in found[name].series for value in one.values if math.isfinite(value)]
        shown += [value for _, low, _, high in found[name].band for value in (low, high)]
        assert (min(shown, default=0), max(shown, default=0)) == (
            min(finite, default=0),
            max(finite, default=0),
        )


def bytes_read() -> int:
    """By this process so far, whatever from."""
    return int(Path("/proc/self/io").read_text().split()[1])


def logged(root: Path, points: int, *, names: int = 1) -> RunMaker:
    """A run of 4 ranks, whose digest its supervisor kept while they logged."""
    made = RunMaker(root, 4)
    indexer = LogIndexWriter(made.folder, 0, digests=True)
    writers = [EventWriter(str(made.rank(rank).events)) for rank in range(4)]
    for start in range(0, points, 2000):
        for rank, writer in enumerate(writers):
            for step in range(start, min(points, start + 2000)):
                writer.metric({f"loss{n}": 1 / (step + rank + n + 1) for n in range(names)}, step)
        indexer.tick(1.0, 4)

    def is_read() -> bool:
        """The digest has all points: in a run of minutes, its updates have the time for them."""
        indexer.tick(1.0, 4)
        assert indexer._digester is not None
        kept = indexer._digester._kept
        return kept is None or kept.offsets == [made.rank(rank).events.stat().st_size for rank in range(4)]

    wait_until(is_read, "the digest of all points")
    for writer in writers:
        writer.result("None", 4, None)
        writer.close()
    indexer.finish(1.0, 4)
    made.end()
    return made


def test_a_page_about_many_points_reads_few_bytes(own_folders: Path) -> None:
    few, many = logged(own_folders, 5_000), logged(own_folders, 40_000)
    summary.gather(few.folder)  # what is imported is read as well
    read = []
    for made in (few, many):
        before = bytes_read()
        page = summary.gather(made.folder)
        read.append(bytes_read() - before)
        assert "<svg" in page.html()
    assert sum(made.rank(0).events.stat().st_size for made in (many,)) > 4 * 900_000
    assert read[1] < read[0] + 100_000
    assert read[1] < 1_500_000


def test_what_is_shown_between_points_is_found_by_the_digest(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    indexer = LogIndexWriter(made.folder, 0, digests=True)
    for step in range(6000):
        made.metric(0, step, {"loss": 1.0})
        if step in (2000, 2001, 5000):
            made.event(0, "display", line=1, data={"text/html": {"text": f"<b>shown at {step}</b>"}})
    indexer.finish(1.0, 1)
    assert (made.folder.attempt(0) / layout.CURVES).exists()
    made.end()
    page = media_pages.displays(made.folder)
    rank_reports._known.clear()
    (made.folder.attempt(0) / layout.CURVES).unlink()
    assert len(page["displays"]) == 3
    assert media_pages.displays(made.folder) == page


@pytest.mark.parametrize("harm", ["damaged", "of an earlier file", "shorter", "more names"])
def test_a_digest_that_does_not_fit_counts_for_nothing(own_folders: Path, harm: str) -> None:
    made = logged(own_folders, 2000)
    events, kept = made.rank(1).events, made.folder.attempt(0) / layout.CURVES
    assert json.loads(kept.read_bytes())["read"][1][0] == events.stat().st_size
    if harm == "damaged":
        kept.write_bytes(kept.read_bytes()[:-20])
    elif harm == "of an earlier file":
        events.write_bytes(events.read_bytes().replace(b'"loss0":', b'"lost0":'))
    elif harm == "shorter":
        events.write_bytes(b"".join(events.read_bytes().splitlines(keepends=True)[:100]))
    else:
        with events.open("ab") as file:
            values = ",".join(f'"m{n}":{n}' for n in range(100))
            file.write(f'{{"seq":1,"time":1.5,"kind":"metric","step":0,"values":{{{values}}}}}\n'.encode())
    found = summary_curves.curves(made.folder)
    same(found, whole(made.folder))
    assert len(found) == {"of an earlier file": 2, "more names": 101}.get(harm, 1)
