"""`input()` on real ranks."""

from __future__ import annotations

import pytest

from jupyter_dist.job import State
from tests.rigs.answering import User, waiting
from tests.rigs.launching import ended, launch_cell, logs, results, story

pytestmark = pytest.mark.usefixtures("warm")

ASKS = """
import os
if os.environ["RANK"] == "0":
    name = input("Name: ")
    again = input()
else:
    name = again = None
name, again
"""


def test_a_rank_asks_and_its_log_reads_as_a_terminal() -> None:
    folder = launch_cell("local", ASKS, 2)
    assert waiting(folder, 1) == "rank 0 waits for input: 'Name:' (to answer: %dist debug)"
    user = User(folder, 0)
    assert user.prompt() == ("Name: ", {})
    assert logs(folder, 0) == ["Name: "]
    user.say('Ada "L" {x}')
    user.say("")
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 2) == [('Ada "L" {x}', ""), (None, None)]
    assert logs(folder, 0) == ['Name: Ada "L" {x}', ""]


def test_the_end_of_the_input_is_an_error() -> None:
    folder = launch_cell("local", ASKS, 2)
    User(folder, 0).say(None)
    status = ended(folder)
    assert status.state is State.FAILED
    assert status.reason == "rank 0 failed: EOFError: EOF when reading a line"


REDIRECTED = """
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as said:
    input("Name: ")
said.getvalue()
"""


def test_the_answer_is_not_in_a_redirected_stream() -> None:
    folder = launch_cell("local", REDIRECTED, 1)
    User(folder, 0).say("Ada")
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == ["Name: "]
    assert logs(folder, 0)[0] == "Ada"
