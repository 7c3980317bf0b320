"""The lint of texts: which sentences it refuses, and where it looks for them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def plain_words() -> ModuleType:
    place = Path(__file__).parents[2] / "tools" / "plain_words.py"
    spec = importlib.util.spec_from_file_location("plain_words", place)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("The run ends. Stop it with `%dist stop`.", []),
        ("Where a rank fails, the run ends.", ["starts with a clause"]),
        ("The log says why.", ["verb 'says'"]),
        ("The value is given.", ["verb 'given'"]),
        (" ".join(["word"] * 20) + ".", []),
        (" ".join(["word"] * 21) + ".", ["21 words"]),
        ("A run of `" + "code " * 30 + "` is one word.", []),
        ("See [the page](https://example.org/a/long/address) for more.", []),
    ],
)
def test_what_is_wrong_with_a_text(plain_words: ModuleType, text: str, why: list[str]) -> None:
    assert [found for found, _ in plain_words.faults(text)] == why


def test_the_texts_of_a_module(plain_words: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        """
def refuse(name: str) -> None:
    \"\"\"Where a docstring says this, nobody minds.\"\"\"
    note("a note of a run")
    raise ValueError(f"the name {name!r} is in use" if name else "no name")
"""
    )
    found = [text for _, text in plain_words.texts(path)]
    assert sorted(found) == ["a note of a run", "no name", "the name CODE is in use"]


def test_the_texts_of_a_page(plain_words: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "# Title\n\nOne line\nand its end.\n\n```\ncode that says much\n```\n"
        "- an item\n\n| a cell | another |\n|---|---|\n"
    )
    assert list(plain_words.texts(path)) == [
        (1, "Title"),
        (3, "One line and its end."),
        (9, "an item"),
        (11, "a cell"),
        (11, "another"),
    ]
