"""What stays of lines that are rewritten by moving the cursor up, and that every view shows it so."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress
from tqdm import tqdm

from jupyter_dist import queries
from jupyter_dist.job import State
from jupyter_dist.queries.logs.line_index import LineIndex
from jupyter_dist.queries.snapshot import snapshot
from jupyter_dist.record import reader
from jupyter_dist.record.cursor import Tail
from jupyter_dist.record.logs import terminal_log
from jupyter_dist.record.logs.last_lines import last_lines
from jupyter_dist.record.logs.rendered_log import RenderedLog
from jupyter_dist.showing import live
from jupyter_dist.showing.run import Run
from jupyter_dist.showing.screens import PlainScreen, kernel_text
from jupyter_dist.showing.view import View
from jupyter_dist.text import log_rendering
from jupyter_dist.text.log_rendering import WINDOW, LogRendering, unrolled
from jupyter_dist.text.safe import clean_lines
from tests.rigs.run_maker import BEGAN, RunMaker


def bytes_read() -> int:
    """By this process so far, whatever from."""
    return int(Path("/proc/self/io").read_text().split()[1])


def fed(data: bytes, sizes: list[int]) -> bytes:
    """What is shown when the log comes in pieces of these sizes, again and again."""
    reading, shown, at, start, turn = LogRendering(), b"", 0, 0, 0
    pieces = []
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces += reading.feed(data[at : at + size])
        at, turn = at + size, turn + 1
        assert reading.done <= reading.read == min(at, len(data))
    for end, text in [*pieces, *reading.flush()]:
        assert end >= start
        shown += data[start:end] if text is None else text
        start = end
    assert start == reading.done == len(data)
    assert reading.rest() == []
    return shown


def lines(data: bytes) -> list[str]:
    return clean_lines(unrolled(data).decode()).split("\n")


def nested_tqdm(epochs: int = 8, *, leave: bool = False, say: bool = False) -> bytes:
    file = io.StringIO()
    for epoch in tqdm(range(epochs), desc="epochs", file=file, mininterval=0, ncols=60):
        for _ in tqdm(range(20), desc=f"epoch {epoch}", leave=leave, file=file, mininterval=0, ncols=60):
            pass
        if say:
            tqdm.write(f"epoch {epoch} is done", file=file)
    file.write("the end\n")
    return file.getvalue().encode()


def rich_progress(*, transient: bool = False) -> bytes:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80)
    with Progress(console=console, auto_refresh=False, transient=transient) as progress:
        tasks = [progress.add_task(name, total=20) for name in ("epochs", "batches", "samples")]
        for step in range(20):
            for task in tasks:
                progress.update(task, advance=1, refresh=True)
            if step % 5 == 0:
                console.print(f"step {step}")
    console.print("the end")
    return file.getvalue().encode()


def test_nested_bars_are_what_a_terminal_shows_in_the_end() -> None:
    data = nested_tqdm()
    assert data.count(b"\n") > 150
    outer, end, rest = lines(data)
    assert outer.startswith("epochs: 100%")
    assert "| 8/8 [" in outer
    assert (end, rest) == ("the end", "")


def test_bars_that_stay_and_lines_between_them_stay() -> None:
    found = lines(nested_tqdm(3, leave=True, say=True))
    assert [line.split(":")[0] for line in found] == [
        *(said for n in range(3) for said in (f"epoch {n}", f"epoch {n} is done")),
        "epochs",
        "the end",
        "",
    ]
    assert all("100%" in line for line in found if ":" in line)


@pytest.mark.parametrize("transient", [False, True])
def test_a_display_of_rich_is_there_once_and_what_is_printed_above_it_stays(transient: bool) -> None:
    data = rich_progress(transient=transient)
    assert data.count(b"\n") > 120
    bars = [] if transient else ["epochs", "batches", "samples"]
    assert [line.split(" ━")[0].strip() for line in lines(data)] == [
        *(f"step {n}" for n in (0, 5, 10, 15)),
        *bars,
        "the end",
        "",
    ]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\nb\nc\x1b[2AA", "aA\nb\nc"),  # the column stays
        (b"a\nb\nc\x1b[2A\rX\n\nY", "X\nb\nY"),
        (b"one\ntwo\x1b[FONE\nTWO\n", "ONE\nTWO\n"),
        (b"one\ntwo\n\x1b[2A\x1b[Jthree\n", "three\n"),
        (b"one\ntwo\n\x1b[2A\x1b[Jthree\n\n\n\nfour", "three\n\n\n\nfour"),
        (b"one\ntwo\x1b[A\x1b[Bx\n", "one\ntwox\n"),
        (b"one\ntwo\x1b[A\x1b[Ex\n", "one\nxwo\n"),
        (b"long line\n\x1b[1A\x1b[2Kx\n", "x\n"),
        (b"one\n\x1b[Atwo three\x1b[3G\x1b[K\n", "tw\n"),
        (b"\x1b[9Aone\ntwo\n", "one\ntwo\n"),  # as in a terminal, the top is the end
        (b"a\n\xe2\x94\x81\xe2\x94\x81\x1b[A\x1b[2Kb\n\x1b[31m\xe2\x94\x82\x1b[0m\n", "  b\n│━\n"),
        (b"\x1b[?25la\nb\x1b[?25h\nc\n", "a\nb\nc\n"),
        (b"no end", "no end"),
        (b"", ""),
    ],
)
def test_sequences(data: bytes, shown: str) -> None:
    assert clean_lines(unrolled(data).decode()) == shown


def test_what_is_not_rewritten_is_byte_for_byte_what_it_was() -> None:
    around = b"\xff\x00 \x1b[31mred\x1b[K\rand\x1b]0;t\x07\n" * 300
    assert fed(around, [70, 1]) == around
    assert unrolled(around + b"bar\n\x1b[Abar 2\n" + around) == around + b"bar 2\n" + around


def test_the_cursor_goes_up_no_further_than_a_terminal_would() -> None:
    numbered = b"".join(b"line %d\n" % n for n in range(500))
    found = lines(numbered + b"\x1b[1000A\rUP\n")
    assert found.index(f"UPne {500 - WINDOW}") == 500 - WINDOW
    assert len(found) == 500


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                *(b"a", b"b c", b"\n", b"\r", b"\xe2\x94\x81", b"\b", b"\x1b[", b"\xff"),
                *(b"\x1b[A", b"\x1b[2A", b"\x1b[F", b"\x1b[B", b"\x1b[E"),
                *(b"\x1b[K", b"\x1b[2K", b"\x1b[J", b"\x1b[5G"),
                *(b"\x1b[?25l", b"\x1b[?25h", b"\x1b[1;31m", b"\x1b[0m"),
            ]
        ),
        max_size=60,
    ),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
)
@example([b"a", b"\n", b"\x1b[A", b"b"], [1])
def test_whatever_comes_in_whatever_pieces_all_of_it_is_accounted_for(
    tokens: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(tokens)
    shown = fed(data, sizes)  # which checks it
    assert shown.count(b"\n") <= data.count(b"\n")
    if not any(up in data for up in (b"A", b"F", b"?25l")):
        assert shown == data


@settings(max_examples=60)
@given(
    st.integers(1, 5),
    st.lists(st.sampled_from([0, 0, 0, 1, 3]), min_size=2, max_size=40),
    st.booleans(),
    st.integers(1, 400),
)
def test_a_bar_of_any_height_with_lines_above_it(
    height: int, above: list[int], rich: bool, size: int
) -> None:
    """As Rich and as tqdm draw: all that is said stays, in order, and of the bar its last picture."""
    bar = [f"bar {n} at {{}}" for n in range(height)]
    data, said = b"before\n" + (b"\x1b[?25l" if rich else b""), ["before"]
    for frame, count in enumerate(above):
        new = [f"said {frame}.{n}" for n in range(count)]
        said += new
        picture = [line.format(frame) for line in bar]
        if frame:
            data += b"\r\x1b[2K" + b"\x1b[1A\x1b[2K" * (height - 1)
        data += "\n".join([*new, *picture]).encode()
    data += b"\n" + (b"\x1b[?25h" if rich else b"") + b"after\n"
    wanted = [*said, *(line.format(len(above) - 1) for line in bar), "after", ""]
    assert lines(data) == wanted
    if rich:  # who hides the cursor first is known from the first line on
        assert clean_lines(fed(data, [size]).decode()).split("\n") == wanted


def test_ten_thousand_pictures_of_a_bar_in_a_log_of_many_lines(tmp_path: Path) -> None:
    path, height, pictures, around = tmp_path / "log", 3, 10_000, 200_000
    plain = b"".join(b"line %7d\n" % n for n in range(around))
    bar = b"".join(
        b"\r\x1b[2K"
        + b"\x1b[1A\x1b[2K" * (height - 1)
        + b"".join(b"bar %d at %d\n" % (k, n) for k in range(height))[:-1]
        for n in range(pictures)
    )
    path.write_bytes(plain + b"\n" * (height - 1) + bar + b"\n" + plain)
    index = LineIndex(path)
    assert index.refresh(ended=True) == 2 * around + height
    before = bytes_read()
    found = [line.data for line in index.read(around - 1, height + 2)]
    read = bytes_read() - before
    assert found == [
        b"line %7d" % (around - 1),
        *(b"bar %d at %d" % (k, pictures - 1) for k in range(height)),
        b"line       0",
    ]
    # A page costs a piece of 64 KiB, wherever it is. The pictures alone are ten of them.
    assert read < 2 << 16 < len(bar) / 4
    assert [line.end for line in index.read(2 * around + height - 1, 1)] == [path.stat().st_size]


def test_places_in_what_is_shown_and_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = b"first\nbar\n\x1b[A\x1b[2Kbar 2\nlast\n"
    path.write_bytes(data)
    log = RenderedLog(path)
    log.refresh(ended=True)
    assert log.read(0, 99) == b"first\nbar 2\nlast\n" == b"".join(log.chunks())
    assert [log.read(at, 1) for at in range(log.size)] == [b"%c" % c for c in b"first\nbar 2\nlast\n"]
    assert log.in_log(6) == 6
    # What is rewritten, and the lines after it that may still be, are one piece.
    assert log.in_log(12) == len(data)
    assert log.in_log(log.size) == len(data)
    assert [log.shown(6), log.shown(8), log.shown(len(data))] == [6, 6, log.size]


def test_places_of_lines_far_behind_a_bar(tmp_path: Path) -> None:
    """They are in the log as they are shown, only later by what was rewritten."""
    plain = b"".join(b"line %d\n" % n for n in range(2 * WINDOW))
    data, shown = b"first\nbar\n\x1b[A\x1b[2Kbar 2\n" + plain, b"first\nbar 2\n" + plain
    path = tmp_path / "log"
    path.write_bytes(data)
    log = RenderedLog(path)
    log.refresh(ended=True)
    assert log.read(0, len(data)) == shown
    for number in (WINDOW + 50, 2 * WINDOW - 1):
        line = b"line %d\n" % number
        at, begin = shown.index(line), data.index(line)
        assert (log.in_log(at), log.in_log(at + len(line))) == (begin, begin + len(line))
        assert (log.shown(begin), log.shown(begin + len(line))) == (at, at + len(line))
    path.write_bytes(b"another\n")
    log.refresh()
    assert (log.read(0, 99), log.begun) == (b"another\n", 1)
    path.unlink()
    log.refresh()
    assert (log.size, log.begun) == (0, 2)


def test_a_log_that_is_rewritten_more_than_is_kept_is_shown_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_dist.record.logs.rendered_log._MAX_TEXTS", 10)
    path = tmp_path / "log"
    log = RenderedLog(path)
    bar = b"bar\n\x1b[A\x1b[2Kbar that is done\n"
    for _ in range(4):
        with path.open("ab") as file:
            file.write(bar)
        log.refresh()
    log.refresh(ended=True)
    assert log.read(0, 999) == b"bar that is done\n" * 2 + bar * 2


# The views


@pytest.fixture
def make(own_folders: Path) -> Callable[..., RunMaker]:
    return lambda world_size=2: RunMaker(own_folders, world_size)


def frame(step: int) -> bytes:
    return (b"\x1b[A" if step else b"") + b"\r\x1b[Kepochs at %d\n\r\x1b[Kbatches at %d" % (step, step)


def grown(made: RunMaker, ranks: int, steps: int) -> list[float]:
    """A bar on every rank, a line before it, and times as a supervisor notes them."""
    for rank in range(ranks):
        made.print(rank, "begin\n", BEGAN + 1)
    for step in range(steps):
        for rank in range(ranks):
            made.print(rank, frame(step), BEGAN + 2 + step)
    return [BEGAN + 2 + step for step in range(steps)]


def test_pages_of_a_rank_and_of_all(make: Callable[..., RunMaker]) -> None:
    made = make()
    grown(made, 2, 30)
    for rank in (0, None):
        page = queries.log_page(made.folder.id, rank)
        # The first picture may be taken for lines: then nothing says that a bar begins.
        assert [line["text"] for line in page["lines"]][:1] == ["begin"]
        assert page["total"] <= 2
        held = [line["text"].strip() for line in page["partial"] if line["rank"] == 0]
        assert held[-2:] == ["epochs at 29", "batches at 29"]
    for rank in range(2):
        made.print(rank, f"\nrank {rank} is done\nand more\n", BEGAN + 40)
    page = queries.log_page(made.folder.id, 1)
    assert page["partial"] == []
    shown = [line["text"].strip() for line in page["lines"]][-4:]
    assert shown == ["epochs at 29", "batches at 29", "rank 1 is done", "and more"]
    assert page["lines"][-1]["time"] == BEGAN + 40
    everything = queries.log_page(made.folder.id)
    assert [(line["text"].strip(), line["ranks"]) for line in everything["lines"]][-5:] == [
        ("epochs at 29", [0, 1]),
        ("batches at 29", [0, 1]),
        ("rank 0 is done", [0]),
        ("rank 1 is done", [1]),
        ("and more", [0, 1]),
    ]
    hits = queries.log_search(made.folder.id, 1, query="is done")
    assert [page["lines"][n]["text"] for n in hits["hits"]] == ["rank 1 is done"]
    assert queries.log_search(made.folder.id, 1, query="at 17")["count"] == 0
    # The file has it all.
    whole = b"".join(queries.log_download(made.folder.id, 1))
    assert whole == reader.output(made.folder, 1)
    assert b"epochs at 17" in whole


def test_a_kernel_that_cannot_be_asked_tells_of_bars_as_well(make: Callable[..., RunMaker]) -> None:
    made = make()
    grown(made, 2, 20)
    for rank in range(2):
        made.print(rank, "".join(f"\rsamples at {n}" + " " * 900 for n in range(20)))
    told = snapshot(made.folder.id, lines=50, points=100, each=10, final=False)["log"]
    texts = [(line["rank"], line["text"].strip()) for line in told["partial"]]
    assert [text for rank, text in texts if rank == 1][-2:] == ["epochs at 19", "samples at 19"]


def test_rows_keep_their_numbers_while_bars_are_rewritten(make: Callable[..., RunMaker]) -> None:
    chance, made = random.Random(7), make(3)
    before: list[str] = []
    settled, step = 0, [0, 0, 0]
    for tick in range(80):
        for rank in range(3):
            kind = chance.random()
            if kind < 0.5:
                made.print(rank, frame(step[rank]), BEGAN + tick / 10)
                step[rank] += 1
            elif kind < 0.7:
                made.print(rank, f"\ntick {tick}\n", BEGAN + tick / 10)
                step[rank] = 0
        page = queries.log_page(made.folder.id, None, None, 0, 1000)
        now = [line["text"] for line in page["lines"]]
        assert now[: len(before)] == before
        assert page["settled"] >= settled
        before, settled = now, page["settled"]
    made.end()
    page = queries.log_page(made.folder.id, None, None, 0, 1000)
    assert [line["text"] for line in page["lines"]][: len(before)] == before
    assert page["partial"] == []


def test_a_bar_that_a_rank_dies_under_is_in_its_log(make: Callable[..., RunMaker]) -> None:
    made = make(1)
    grown(made, 1, 5)
    made.end(State.STOPPED)
    texts = [line["text"].strip() for line in queries.log_page(made.folder.id, 0)["lines"]]
    assert texts[-2:] == ["epochs at 4", "batches at 4"]
    assert clean_lines("\n".join(last_lines(made.rank(0).output))).split("\n")[-2:] == texts[-2:]


def test_the_log_that_a_run_gives(make: Callable[..., RunMaker]) -> None:
    made = make()
    for rank in range(2):
        made.print(rank, nested_tqdm(), BEGAN + rank)
    run = Run(made.end())
    assert [line.split("|")[0] for line in run.log(1).splitlines()] == ["epochs: 100%", "the end"]
    assert [line.split("|")[0] for line in run.log().splitlines()] == [
        *("[0] epochs: 100%", "[0] the end"),
        *("[1] epochs: 100%", "[1] the end"),
    ]
    found, left_out = terminal_log.read_log(made.folder)
    assert ([line.text.split("|")[0] for line in found], left_out) == (["epochs: 100%", "the end"] * 2, 0)


def test_the_text_under_a_cell_and_in_a_terminal(make: Callable[..., RunMaker]) -> None:
    """While the bars are drawn, with a look in between each of the pictures."""
    made = make()
    view, tail = View(made.folder, made.job, keep=400), Tail(made.folder)
    for rank in range(2):
        made.print(rank, "begin\n" + "\x1b[?25l")
    for step in range(60):
        for rank in range(2):
            made.print(rank, frame(step))
        view.feed(tail.poll(), time.monotonic())
    shown = kernel_text(view, BEGAN + 1).split("\n")
    assert shown[:3] == ["[0-1] begin", "[0-1] epochs at 59", "[0-1] batches at 59"]
    assert len(shown) == 5
    # Who goes on from here knows no more than what was let go.
    assert [line.text for line in Tail(made.folder, cursor=tail.cursor).poll().lines] == []
    for rank in range(2):
        made.print(rank, "\x1b[?25h\nthe end\n")
    made.end()
    view.feed(tail.poll(), time.monotonic())
    shown = kernel_text(view, BEGAN + 1).split("\n")
    assert [line.removeprefix("[0-1] ") for line in shown[:4]] == [
        "begin",
        "epochs at 59",
        "batches at 59",
        "the end",
    ]
    file = io.StringIO()
    live.follow(Run(made.folder), display=PlainScreen(file))
    assert [line.removeprefix("[0-1] ") for line in file.getvalue().splitlines()] == [
        *("begin", "epochs at 59", "batches at 59", "the end"),
    ]


def test_a_flood_of_pictures_is_skipped_like_any_other(make: Callable[..., RunMaker]) -> None:
    made = make(1)
    tail = Tail(made.folder, tail_bytes=2000)
    for step in range(300):
        made.print(0, frame(step))
    batch = tail.poll()
    assert batch.skipped > 5000
    assert [line.strip() for line in batch.partial[0].split("\n")][-2:] == [
        "epochs at 299",
        "batches at 299",
    ]


def test_it_costs_what_a_search_costs_where_nothing_is_rewritten() -> None:
    data = b"step 12 loss 0.25 and so on, \x1b[32mall right\x1b[0m\n" * 200_000
    began = time.process_time()
    data.count(b"\x1b[")
    log_rendering._BEGIN.search(data)
    least = time.process_time() - began
    began = time.process_time()
    assert LogRendering().feed(data) == [log_rendering.Piece(len(data))]
    assert time.process_time() - began < 20 * least + 0.2
