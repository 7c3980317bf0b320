"""Folding equal lines of several ranks, and cleaning what a rank printed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_dist.text.fold import Entry, Fold, pick, ranges
from jupyter_dist.text.safe import clean, clean_lines, one_line

lines = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "c", "d"])), max_size=60)


def texts(entries: list[Entry]) -> list[tuple[str, str]]:
    return [(entry.label(), entry.text) for entry in entries]


def of_rank(entries: list[Entry], rank: int) -> list[str]:
    return [entry.text for entry in entries if rank in entry.ranks]


def fold(pairs: list[tuple[int, str]], keep: int = 1000) -> Fold:
    folded = Fold(keep)
    for rank, text in pairs:
        folded.add(rank, text)
    return folded


def test_equal_lines_of_several_ranks_become_one() -> None:
    folded = fold([(rank, line) for rank in range(8) for line in ("epoch 1", f"rank {rank}", "epoch 2")])
    shown = texts(list(folded.entries))
    assert shown[0] == ("[0-7]", "epoch 1")
    assert ("[3]", "rank 3") in shown
    assert sum(text == "epoch 1" for _, text in shown) == 1


def test_what_stands_for_pictures_folds_and_says_when_they_differ() -> None:
    same = [(0, "<Figure> #00aa00"), (1, "<Figure> #00aa00")]
    assert texts(fold(same).entries) == [("[0-1]", "<Figure> #00aa00")]
    others = [(2, "<Figure> #bb0000"), (3, "<Figure>")]
    assert texts(fold(same + others).entries) == [("[0-3]", "<Figure> (differs by rank)")]


def test_lines_fold_although_one_rank_is_ahead() -> None:
    pairs = [(rank, line) for rank in (2, 0, 1) for line in ("a", f"rank {rank}", "b", f"{rank} done", "c")]
    shown = texts(list(fold(pairs).entries))
    assert [text for label, text in shown if label == "[0-2]"] == ["a", "b", "c"]
    assert len(shown) == 9


def test_what_is_older_than_the_window_stays_where_it_is() -> None:
    folded = Fold(100, window_s=0.3)
    for text in ("a", "b", "c"):
        folded.add(0, text, 1.0)
    folded.add(1, "a", 2.0)
    folded.add(1, "x", 2.0)
    assert [entry.text for entry in folded.entries] == ["a", "b", "c", "x"]


def test_ranks_side_by_side_are_in_their_order() -> None:
    folded = fold([(rank, line) for rank in range(4) for line in ("a", f"rank {rank}", "b")])
    assert [entry.text for entry in folded.entries] == ["a", "rank 0", "rank 1", "rank 2", "rank 3", "b"]


def test_a_line_never_moves_before_the_ranks_own_earlier_line() -> None:
    folded = fold([(0, "a"), (1, "b"), (1, "a")])
    assert texts(list(folded.entries)) == [("[0]", "a"), ("[1]", "b"), ("[1]", "a")]


def test_a_repeated_line_stays_repeated() -> None:
    folded = fold([(0, "a"), (0, "a"), (1, "a"), (1, "a"), (1, "a")])
    assert texts(list(folded.entries)) == [("[0-1]", "a"), ("[0-1]", "a"), ("[1]", "a")]


def test_nothing_joins_across_a_mark() -> None:
    folded = fold([(0, "a")])
    folded.mark("attempt 1")
    folded.add(1, "a")
    assert texts(list(folded.entries)) == [("[0]", "a"), ("", "attempt 1"), ("[1]", "a")]


@given(lines)
def test_every_ranks_lines_keep_their_order_and_number(pairs: list[tuple[int, str]]) -> None:
    entries = list(fold(pairs).entries)
    for rank in range(4):
        assert of_rank(entries, rank) == [text for r, text in pairs if r == rank]
    assert all(entry.ranks for entry in entries)


@given(lines, st.integers(1, 8))
def test_a_rolling_tail_is_the_end_of_every_ranks_lines(pairs: list[tuple[int, str]], keep: int) -> None:
    folded = fold(pairs, keep)
    entries = folded.shown()
    assert len(folded.entries) <= keep
    assert folded.dropped + sum(len(entry.ranks) for entry in entries) == len(pairs)
    for rank in range(4):
        printed = [text for r, text in pairs if r == rank]
        shown = of_rank(entries, rank)
        assert shown == printed[len(printed) - len(shown) :]
        assert bool(shown) == bool(printed)  # a quiet rank's last line stays


@given(lines, st.lists(st.integers(0, 60)))
def test_taking_from_the_front_loses_and_moves_nothing(pairs: list[tuple[int, str]], cuts: list[int]) -> None:
    folded, out = Fold(1000), list[Entry]()
    for now, (rank, text) in enumerate(pairs):
        folded.add(rank, text, now)
        if now in cuts:
            out += folded.take(now - 2)
    out += folded.take(1e9)
    for rank in range(4):
        assert of_rank(out, rank) == [text for r, text in pairs if r == rank]


@given(lines, st.integers(1, 8), st.integers(4, 20))
def test_what_is_picked_is_in_order_and_has_something_of_every_rank(
    pairs: list[tuple[int, str]], keep: int, limit: int
) -> None:
    entries = fold(pairs, keep).shown()
    picked = pick(entries, limit)
    assert len(picked) == min(limit, len(entries))
    assert [entry.number for entry in picked] == sorted({entry.number for entry in picked})
    for rank in range(4):
        assert bool(of_rank(picked, rank)) == bool(of_rank(entries, rank))


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_exactly_these_ranks(ranks: set[int]) -> None:
    found: set[int] = set()
    for part in filter(None, ranges(ranks).split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    assert found == ranks


def test_ranges_of_a_thousand_ranks_stay_short() -> None:
    assert ranges({0, 2, 3}) == "0,2-3"
    assert ranges(range(0, 1000, 2), 24).endswith("500 ranks")
    assert len(ranges(range(0, 1000, 2), 24)) < 32


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ünïcode ✓", "plain ünïcode ✓"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
        ("\x1b[1;31mred\x1b[mplain", "\x1b[1;31mred\x1b[0mplain"),
        ("\x1b[2Jcleared\x1b[10;10H", "cleared"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x07c\x1b", "abc"),
        ("\r  0%|   | 0/10\r 50%|█  | 5/10\r100%|██| 10/10", "100%|██| 10/10"),
        ("long old state\rnew\x1b[K", "new"),
        ("x" * 5000 + "\r\x1b[Knew", "new"),
        ("12345\b\b\b\b\b\r678", "67845"),
        ("10/10\r", "10/10"),
        ("a\u202eb", "ab"),
        ("bad \ud800 half", "bad \ufffd half"),
    ],
)
def test_clean_shows_what_a_terminal_would(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text(st.sampled_from("ab\r\b\x1b[]0;31mKGCD \x07\x9b\\█"), max_size=80), st.integers(1, 40))
def test_clean_leaves_no_control_but_colours(raw: str, limit: int) -> None:
    cleaned = clean(raw, limit=limit)
    bare = re.sub(r"\x1b\[[0-9;:]*m", "", cleaned)
    assert bare.isprintable()
    assert len(bare) <= limit
    colours = re.findall(r"\x1b\[[0-9;:]*m", cleaned)
    assert colours[-1:] in ([], ["\x1b[0m"]), "none is open at the end"
    assert clean(raw, limit=limit, colour=False) == bare
    assert clean(cleaned, limit=limit) == cleaned


@given(st.text(max_size=60).filter(str.isprintable))
def test_clean_leaves_printable_text_alone(raw: str) -> None:
    assert clean(raw) == raw


def test_a_megabyte_of_progress_bar_costs_little_and_shows_its_end() -> None:
    bar = "".join(f"\r{n:6d}/100000 {'#' * 40}" for n in range(20_000))
    assert clean(bar, limit=300) == f"{19_999:6d}/100000 {'#' * 40}"


def test_clean_cuts_what_is_too_wide() -> None:
    assert clean("x" * 1000, limit=300) == "x" * 299 + "…"
    assert clean("\x1b[31m" + "x" * 1000, limit=10) == "\x1b[31m" + "x" * 9 + "\x1b[0m…"


def test_multi_line_text_and_reprs() -> None:
    assert clean_lines("a\x1b[31mb\nc\rd") == "ab\nd"
    assert one_line("{'a': 1,\n   'b': \x1b[31m2}", 80) == "{'a': 1, 'b': 2}"
