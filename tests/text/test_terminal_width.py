"""Lines of a terminal with letters that take two columns, or none."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest

from jupyter_dist.record.reader import Event
from jupyter_dist.showing.screens import PlainScreen
from jupyter_dist.showing.view import View
from jupyter_dist.text.table import Table
from jupyter_dist.text.terminal_width import cut, padded, width
from tests.rigs.run_maker import BEGAN, RunMaker


def test_wide_letters_take_two_columns_and_accents_none() -> None:
    assert [width(text) for text in ("", "abc", "训练", "e\u0301", "한글 ok")] == [0, 3, 4, 1, 7]
    assert [
        cut(text, 5) for text in ("abcde", "abcdef", "训练集", "训练a", "e\u0301" * 5, "e\u0301" * 6)
    ] == [
        "abcde",
        "abcd…",
        "训练…",
        "训练a",
        "e\u0301" * 5,
        "e\u0301" * 4 + "…",
    ]
    assert padded("训练", 6) == "训练  "


def test_a_table_is_aligned() -> None:
    lines = repr(Table(("name", "state"), [("训练", "failed"), ("train", "lost")])).split("\n")
    assert lines == ["name   state", "训练   failed", "train  lost"]


def test_a_bar_never_takes_more_lines_than_are_erased(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RunMaker(own_folders, 2)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    view = View(made.folder, made.job, keep=10)
    bar = {"id": 0, "n": 40, "total": 100, "desc": "训练" * 20}
    view.progress.feed(Event(0, 0, 0, BEGAN, "progress", bar))
    screen = PlainScreen(io.StringIO())
    screen._tty = True
    assert [width(line) < 80 for line in screen._bar_lines(view).split("\n")] == [True]
