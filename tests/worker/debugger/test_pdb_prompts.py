"""pdb on real ranks: breakpoints, errors with --pdb, other debuggers, and ends."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jupyter_dist import queries
from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.job import State
from jupyter_dist.manage import stop
from jupyter_dist.record import reader
from jupyter_dist.record.failures import failures
from tests.rigs.answering import AT_CALL, User, waiting
from tests.rigs.launching import ended, launch_cell, logs, results, story, until
from tests.rigs.time_limit import TimeLimit

pytestmark = pytest.mark.usefixtures("warm")

STOPS = """
import os
rank = int(os.environ["RANK"])

def scaled(value):
    factor = 10
    breakpoint()
    doubled = value * 2
    return doubled * factor

total = scaled(rank)
print("total", total)
total
"""


@pytest.mark.parametrize("backend", ["local", pytest.param("torchrun", marks=pytest.mark.needs("torch"))])
def test_a_breakpoint_opens_pdb_where_the_rank_is(backend: str) -> None:
    folder = launch_cell(backend, STOPS, 2)
    assert waiting(folder, 2) == f"ranks 0-1 wait at In[1], line {8 - AT_CALL} (to answer: %dist debug)"
    assert queries.run(folder.id)["waiting"] == [0, 1]
    user = User(folder, 0, 1)
    prompt, printed = user.prompt()
    printed = user.asks("n") if AT_CALL else printed
    assert prompt == "(Pdb) "
    assert printed == dict.fromkeys((0, 1), "> In[1](8)scaled()\n-> doubled = value * 2\n")
    assert user.asks("p value") == {0: "0\n", 1: "1\n"}
    assert user.asks("w")[0] == (
        "  In[1](11)<module>()\n-> total = scaled(rank)\n> In[1](8)scaled()\n-> doubled = value * 2\n"
    ), "the calls that lead to the cell are not the user's"
    assert "  8  ->\t    doubled = value * 2\n" in user.asks("ll")[1]
    assert "total = scaled(rank)" in user.asks("u")[0]
    assert "doubled = value * 2" in user.asks("d")[0]
    assert user.asks("n")[0] == "> In[1](9)scaled()\n-> return doubled * factor\n"
    assert user.asks("!factor = 100") == {}
    assert user.asks("pp {'factor': factor}")[0] == "{'factor': 100}\n"
    assert "Breakpoint 1 at In[1]:12\n" in user.asks("b 12")[1]
    assert "*** NameError" in user.asks("p nothing")[0]
    assert user.asks("c")[0] == '> In[1](12)<module>()\n-> print("total", total)\n'
    user.say("c")
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 2) == [0, 200], story(folder)
    assert "Pdb" not in logs(folder, 0)
    assert reader.status(folder).waits == ()
    assert "waiting" not in queries.run(folder.id)


def test_stepping_past_the_end_ends_the_cell_and_not_in_our_code() -> None:
    folder = launch_cell("local", "breakpoint()\nx = 1\nx + 1", 1)
    user = User(folder, 0)
    printed = user.prompt()[1].get(0, "")
    while not printed.endswith("-> x + 1\n"):
        assert "--Call--" not in printed
        printed = user.asks("s").get(0, "")
    user.say("n")

    def stepped() -> bool:
        user.prompts.look()
        for one in user.prompts.ready:
            assert one.wait is not None
            assert one.wait.place == "In[1], line 3"
            user.say("n")
        return reader.status(folder).state.ended

    wait_until(stepped, "the end of the cell", lambda: story(folder))
    assert results(folder, 1) == [2], story(folder)


def test_q_ends_the_rank_with_one_line() -> None:
    folder = launch_cell("local", STOPS, 2)
    User(folder, 0, 1).say("q", [1])
    status = ended(folder)
    assert status.state is State.FAILED
    assert status.reason == "rank 1 failed: BdbQuit: you ended this rank with `q` in the debugger"
    (error,) = [error for error in failures.failures(folder) if error.rank == 1]
    assert (
        error.text
        == f"bdb.BdbQuit: you ended this rank with `q` in the debugger at In[1], line {8 - AT_CALL}\n"
    )
    assert error.frames[-1]["function"] == "scaled"
    assert logs(folder, 1) == error.text.splitlines()


RAISES = """
import os
rank = int(os.environ["RANK"])

def check(loss):
    limit = 10
    if loss > limit:
        raise ValueError("the loss is too large")
    return loss

if rank == 2:
    raise KeyError("later")
check(50 * rank)
"""


def test_with_pdb_a_failing_rank_stays_at_its_error_and_the_others_live() -> None:
    folder = launch_cell("local", RAISES.replace("raise KeyError", "input(); raise KeyError"), 3, pdb=True)
    assert "rank 1 waits at an error in In[1], line 8 (ValueError: the loss is too large)" in waiting(
        folder, 2
    )
    user = User(folder, 1)
    prompt, printed = user.prompt()
    assert prompt == "(Pdb) "
    assert printed[1].startswith('Traceback (most recent call last):\n  File "In[1]", line 13, in <module>\n')
    assert printed[1].endswith(
        'ValueError: the loss is too large\n> In[1](8)check()\n-> raise ValueError("the loss is too large")\n'
    )
    assert user.asks("p loss, limit") == {1: "(50, 10)\n"}
    assert "check(50 * rank)" in user.asks("u")[1]
    assert reader.status(folder).state is State.RUNNING, "the other ranks are not ended"
    # The rank that fails second does not become the first because somebody looked at the first for longer.
    User(folder, 2).say("")
    second = User(folder, 2)
    assert second.prompt()[1][2].endswith(
        "KeyError: 'later'\n> In[1](12)<module>()\n-> input(); raise KeyError(\"later\")\n"
    )
    second.say("c")
    user.say("q")
    status = ended(folder)
    assert status.state is State.FAILED
    first = failures.failures(folder)[0]
    assert (first.rank, first.type) == (1, "ValueError"), story(folder)
    assert "bdb.py" not in first.text


@pytest.mark.parametrize("ends", ["stop", "interrupt"])
@pytest.mark.parametrize("source", ["breakpoint()\n1", "input('go on? ')", "1 / 0"])
def test_a_waiting_rank_obeys_a_stop(ends: str, source: str) -> None:
    folder = launch_cell("local", source, 2, pdb=True)
    waiting(folder, 2)
    stop.stop(folder, interrupt=ends == "interrupt")
    status = ended(folder)
    assert status.state is State.STOPPED, story(folder)
    assert status.waits == ()
    assert all(rank.signal != 9 for rank in status.ranks), "it did not have to be killed"
    assert "pdb.py" not in logs(folder, 0)


NESTED = """
def asks():
    return input("Name: ")

def twice(value):
    value = value * 2
    return value

breakpoint()
x = 1
1
"""


def test_a_command_that_asks_stops_within_the_outer_stop() -> None:
    folder = launch_cell("local", NESTED, 1)
    user = User(folder, 0)
    place = f"rank 0 waits at In[1], line {10 - AT_CALL} (to answer: %dist debug)"
    assert waiting(folder, 1, "breakpoint") == place
    user.say("p asks()")
    assert waiting(folder, 1, "input") == "rank 0 waits for input: 'Name:' (to answer: %dist debug)"
    assert user.prompt()[0] == "Name: "
    assert user.asks("Ada") == {0: "'Ada'\n"}
    assert waiting(folder, 1, "breakpoint") == place
    assert user.prompts.ready[0].prompt_text == "(Pdb) "
    user.asks("debug twice(1)")
    assert user.prompt()[0] == "((Pdb)) "
    user.say("c")
    prompt, printed = user.prompt()
    assert (prompt, printed[0].splitlines()[-1]) == ("(Pdb) ", "LEAVING RECURSIVE DEBUGGER")
    user.say("interact")
    assert user.prompt()[0] == ">>> "
    user.say(None)
    assert user.prompt()[0] == "(Pdb) "
    assert waiting(folder, 1, "breakpoint") == place
    user.say("c")
    assert ended(folder).state is State.SUCCEEDED, story(folder)


WORKS = """
import pathlib, time
try:
    breakpoint()
    x = 1
finally:
    pathlib.Path("saved").touch()
"""


@pytest.mark.parametrize("ends", ["stop", "interrupt"])
@pytest.mark.parametrize("line", ["!pathlib.Path('works').touch(); time.sleep(600)", "interact"])
def test_a_rank_that_works_on_a_command_obeys_a_stop(
    ends: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = launch_cell("local", WORKS, 1)
    user = User(folder, 0)
    user.say(line)
    if line == "interact":
        assert user.prompt()[0] == ">>> "
    else:
        wait_until((tmp_path / "works").exists, "the command", lambda: story(folder))
    stop.stop(folder, interrupt=ends == "interrupt")
    status = ended(folder)
    assert status.state is State.STOPPED, story(folder)
    assert status.ranks[0].signal != 9, "it did not have to be killed"
    assert (tmp_path / "saved").exists()
    assert "***" not in folder.rank(0, 0).prompts.read_text()


def test_a_stop_that_was_interrupted_is_no_step() -> None:
    folder = launch_cell("local", "breakpoint()\n1", 1)
    waiting(folder, 1, "breakpoint")
    stop.stop(folder, interrupt=True)
    ended(folder)
    lines = [json.loads(line) for line in folder.rank(0, 0).prompts.read_text().splitlines()]
    assert next(line["steps"] for line in lines if line["kind"] == "go") is False


LARGE = "x = 'a' * 3_000_000\nraise ValueError(x)"


def test_with_pdb_an_error_of_any_length_waits_and_survives_exit() -> None:
    folder = launch_cell("local", LARGE, 1, pdb=True)
    assert waiting(folder, 1).startswith("rank 0 waits at an error in In[1], line 2 (ValueError: aaa")
    user = User(folder, 0)
    assert user.asks("p len(x)") == {0: "3000000\n"}
    user.say("interact")
    user.say("raise SystemExit(3)")

    def left() -> bool:
        user.prompts.look()
        if [one.prompt_text for one in user.prompts.ready] == ["(Pdb) "]:  # Python 3.13 ends only `interact`
            user.say("q")
        return user.prompts.ended

    wait_until(left, "the end", lambda: story(folder))
    (error,) = failures.failures(folder)
    assert error.type == "ValueError", story(folder)


def test_time_limits_stand_still_while_a_rank_waits(tmp_path: Path) -> None:
    limit = TimeLimit(tmp_path)
    folder = launch_cell(
        "local", "x = input()\nx", 1, timeout=limit.seconds, stall_timeout=0.2, env=limit.env
    )
    waiting(folder, 1)
    limit.pass_by()
    passed = time.time()
    status = until(folder, lambda status: status.heartbeat > passed + 1, "some turns of the supervisor")
    assert (status.state, status.stall) == (State.RUNNING, None)
    User(folder, 0).say("done")
    assert ended(folder).state is State.SUCCEEDED, story(folder)


AWAITS = """
import asyncio, shipped
async def waits():
    await asyncio.sleep(0)
    shipped.stops(4)
    return 1
await waits()
"""


def test_the_stack_begins_with_the_cell_also_if_it_awaits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped.py").write_text("def stops(value):\n    breakpoint()\n    return value\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    folder = launch_cell("local", AWAITS, 1)
    assert waiting(folder, 1) == f"rank 0 waits at shipped.py:{3 - AT_CALL} (to answer: %dist debug)"
    user = User(folder, 0)
    lines = user.asks("w")[0].splitlines()
    assert lines[:4] == [
        "  In[1](7)<module>()",
        "-> await waits()",
        "  In[1](5)waits()",
        "-> shipped.stops(4)",
    ]
    assert lines[4].endswith(f"shipped.py({3 - AT_CALL})stops()")
    user.say("c")
    assert ended(folder).state is State.SUCCEEDED, story(folder)


OTHERS = """
import pdb, sys
from IPython.core.debugger import set_trace
from IPython.terminal.debugger import TerminalPdb

def of_pdb():
    pdb.Pdb().set_trace()
    return 1

def of_ipython():
    set_trace()
    return 2

def of_a_terminal():
    TerminalPdb().set_trace()
    return 4

def after_error():
    try:
        {}["key"]
    except KeyError:
        pdb.post_mortem()
    return 3

of_pdb(), of_ipython(), of_a_terminal(), after_error()
"""


@pytest.mark.needs("IPython")
def test_other_ways_into_a_debugger() -> None:
    folder = launch_cell("local", OTHERS, 1)
    user = User(folder, 0)
    for line, place in ((8, "of_pdb"), (12, "of_ipython"), (16, "of_a_terminal"), (20, "after_error")):
        stop = line if place == "after_error" else line - AT_CALL
        assert f"> In[1]({stop}){place}()" in user.prompt()[1][0]
        user.say("c")
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == [(1, 2, 4, 3)]


ALONE = """
import os, pdb, sys

def stops():
    breakpoint()
    return 12

os.environ["PYTHONBREAKPOINT"] = "0"
passed = stops()
del os.environ["PYTHONBREAKPOINT"]
read, write = os.pipe()
os.write(write, b"p 6 * 111\\ncontinue\\nBob\\n")
sys.stdin = open(read)
passed, stops(), input("Name: ")
"""


def test_a_debugger_with_an_input_of_its_own_stays_as_it_is() -> None:
    folder = launch_cell("local", ALONE, 1)
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == [(12, 12, "Bob")]
    assert "(Pdb) 666" in logs(folder, 0)


CHILD = """
import multiprocessing

def stops(_):
    try:
        breakpoint()
    except RuntimeError as error:
        return str(error)

with multiprocessing.get_context("fork").Pool(1) as pool:
    (said,) = pool.map(stops, [0])
said
"""


def test_a_process_of_a_rank_says_that_nobody_can_type_into_it() -> None:
    folder = launch_cell("local", CHILD, 1)
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    (said,) = results(folder, 1)
    assert said.startswith("The rank has started this process, and nobody can type into it.")
