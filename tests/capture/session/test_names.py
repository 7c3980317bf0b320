"""The choice of the names that a session's cell sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture.session.choice import Choice
from jupyter_dist.capture.session.names import Where, choose, seen_value
from jupyter_dist.worker.session.content import digest

EMPTY: dict[str, Any] = {"owned": [], "sent": {}, "seen": {}, "names": {}, "uses": {}}


def chosen(cell: str, namespace: dict[str, Any], **about: Any) -> Choice:
    return choose(cell, "In[1]", 0, namespace, Where("main", {**EMPTY, **about}))


def space(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
    return names


def test_new_and_changed_names_are_sent_and_others_are_not() -> None:
    names = space("a = [1]; b = [2]; c = [3]")
    sent = {name: digest(names[name], names) for name in ("a", "b")}
    names["b"].append(4)
    choice = chosen("a, b, c", names, sent=sent)
    assert ({*choice.sent}, choice.without) == ({"b", "c"}, {"a"})


def test_a_changed_name_behind_an_unchanged_function_is_sent() -> None:
    names = space("def f(): return g()\ndef g(): return h\nh = 1")
    first = chosen("f()", names)
    assert first.sent.keys() == {"f", "g", "h"}
    names["h"] = 2
    second = chosen("f()", names, sent=first.sent)
    assert ({*second.sent}, second.without) == ({"h"}, {"f", "g"})


@pytest.mark.needs("numpy")
def test_a_mapped_file_that_has_changed_is_sent_to_ranks_elsewhere(tmp_path: Path) -> None:
    import numpy as np

    array = np.memmap(tmp_path / "array", np.float64, "w+", shape=1000)
    names = {"__name__": "__main__", "array": array}

    def sent(sent: dict[str, str], *, here: bool) -> dict[str, str]:
        return choose("array", "In[1]", 0, names, Where("main", {**EMPTY, "sent": sent}, here)).sent

    first = {here: sent({}, here=here) for here in (True, False)}
    assert [seen_value("array", names, Where("main", EMPTY, here)) for here in first] == [*first.values()]
    assert [sent(first[here], here=here) for here in (True, False)] == [{}, {}]
    array[5] = 1
    assert sent(first[True], here=True) == {}  # the ranks see the change in the file
    assert sent(first[False], here=False).keys() == {"array"}


def test_a_name_of_the_ranks_stays_behind_with_one_note_for_each_change() -> None:
    names = space("x = 1")
    about: dict[str, Any] = {"owned": ["x"], "names": {"x": "int"}}
    first = chosen("x", names, **about)
    assert (first.sent, first.without) == ({}, {"x"})
    assert len(first.notes) == 1
    assert first.notes[0].endswith('jupyter_dist.session("main")["x"] = x')
    again = chosen("x", names, **about, seen={"": first.seen})
    assert again.notes == []
    names["x"] = 2
    assert len(chosen("x", names, **about, seen={"": again.seen}).notes) == 1


def test_names_that_a_value_of_the_ranks_reads_are_sent() -> None:
    names = space("lr = 1\ndef h(): return deep\ndeep = 2; other = 3")
    about: dict[str, Any] = {
        "owned": ["g", "big"],
        "uses": {"g": ["h", "len", "k"], "k": ["lr"], "big": None},
    }
    assert chosen("g()", names, **about).sent.keys() == {"h", "deep", "lr"}
    assert chosen("big", names, **about).sent.keys() == {"h", "deep", "lr"}
    assert chosen("len", names, **about).sent.keys() == set()


def test_the_notebooks_value_before_a_cell_assigns_the_name_is_remembered() -> None:
    names = space("x = 1")
    choice = chosen("x = 5", names)
    assert ({*choice.sent}, {*choice.seen}) == (set(), {"x"})


def test_names_that_share_an_object_are_sent_together() -> None:
    names = space("w = [1]; model = {'w': w}; optimizer = {'of': w, 'lr': 1}; other = [w[0]]")
    first = chosen("model, optimizer, other", names)
    names["optimizer"]["lr"] = 2
    second = chosen("optimizer", names, sent=first.sent)
    assert second.sent.keys() == {"model", "optimizer"}
    assert second.together == [["model", "optimizer"]]
    alone = chosen("other", {**names, "other": [7]}, sent=first.sent)
    assert alone.sent.keys() == {"other"}
