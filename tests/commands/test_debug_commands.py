"""`%dist debug` and `jupyter dist debug`: which run and rank it means, one line, and a terminal's prompt."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pexpect  # type: ignore[import-untyped]
import pytest

from jupyter_dist import commands
from jupyter_dist.commands import debug_commands, dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.deadlines import PATIENCE_S, run_process
from jupyter_dist.errors import DistError, InputError, RunNotFound
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.magics import _expander
from jupyter_dist.manage import stop
from jupyter_dist.manage.rank_prompts import Prompts
from jupyter_dist.start import last_run
from tests.rigs.answering import AT_CALL, User, waiting
from tests.rigs.launching import ended, launch_cell, results, story, until
from tests.rigs.run_maker import RunMaker

pytestmark = pytest.mark.usefixtures("warm")

NOTEBOOK = Context()
TERMINAL = Context(terminal=True)

STOPS = """
import os
rank = int(os.environ["RANK"])
names = {"a b": rank // 2}
breakpoint()
name = input("Name: ")
rank, name
"""


@pytest.fixture(autouse=True)
def no_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_run, "_last_run_id", None)


def debug(line: str) -> str:
    return str(dispatch(f"debug {line}", NOTEBOOK))


def test_one_line_goes_to_all_ranks_that_stopped_and_equal_answers_are_folded() -> None:
    folder = launch_cell("local", STOPS, 3)
    waiting(folder, 3)
    assert debug("--all p names['a b']") == "ranks 0-1: 0\nrank 2: 1"
    assert debug("Eve Smith").startswith("ranks 0-2: *** ")
    assert debug('p "{rank}",  "two  blanks"') == "ranks 0-2: ('{rank}', 'two  blanks')"
    assert debug(f"{folder.id} 1 p rank") == "rank 1: 1"
    assert debug(f"{folder.id[-8:]} 0,2 p rank") == "rank 0: 0\nrank 2: 2"
    assert str(dispatch(["debug", "1-2", "p names['a b']"], TERMINAL)) == "rank 1: 0\nrank 2: 1"
    assert debug("1 continue") in ("rank 1 continues.", "rank 1 waits for input: 'Name:'.")
    place = f"In[1], line {6 - AT_CALL}"
    one = f"ranks 0,2 wait at {place}; rank 1 waits for input: 'Name:' (to answer: %dist debug)"
    until(folder, lambda status: status.reason == one, "rank 1 to ask")
    assert debug("p rank") == "rank 0: 0\nrank 2: 2", "the ranks that have waited longest"
    debug("0,2 continue")
    waiting(folder, 3, "input")
    assert debug("0 Ada") == "rank 0 continues."
    assert debug("--all 12") == "ranks 1-2 continue."
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 3) == [(0, "Ada"), (1, "12"), (2, "12")]
    with pytest.raises(DistError, match=rf"Run {folder.id} has ended \(succeeded\), so no rank waits"):
        debug(folder.id)


def test_what_cannot_be_answered_is_one_clear_error(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug_commands, "_ARRIVE_S", 0.0)
    with pytest.raises(RunNotFound, match="there are no runs yet"):
        debug("")
    folder = launch_cell("local", STOPS, 2)
    waiting(folder, 2)
    with pytest.raises(InputError, match=rf"run {folder.id} has no rank 7. It has ranks 0-1"):
        debug("7 p rank")
    with pytest.raises(RunNotFound, match="no run '20000101-000000-00000000'"):
        debug("20000101-000000-00000000 0")
    with pytest.raises(InputError, match="%dist debug needs an input box, and this process has no input"):
        debug("0")
    User(folder, 0).say("c")
    User(folder, 0).say("Ada")
    with pytest.raises(DistError, match=r"Rank 0 of run .* does not wait for you. Rank 1 waits at In"):
        debug("0 p rank")
    other = launch_cell("local", "input()", 1)
    waiting(other, 1)
    with pytest.raises(InputError, match=r"the ranks of 2 runs wait. Name one of them: "):
        debug("p 1")
    monkeypatch.setattr(last_run, "_last_run_id", folder.id)
    assert debug("p rank") == "rank 1: 1"
    silent = RunMaker(own_folders)
    with pytest.raises(DistError, match=r"No rank of run .* waits for you. All ranks run. A rank stops at"):
        debug(silent.folder.id)
    for running in (folder, other):
        stop.stop(running)
        ended(running)


def test_a_line_for_a_rank_that_has_just_gone_on_is_not_dropped_in_silence(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debug_commands, "_ARRIVE_S", 0.0)
    check, looks = debug_commands._check, []

    def works_at_first(prompts: Prompts, ranks: list[int] | None) -> None:
        looks.append(ranks)
        if looks[1:]:
            check(prompts, ranks)

    monkeypatch.setattr(debug_commands, "_check", works_at_first)
    with pytest.raises(DistError, match=r"Rank 0 of run .* does not wait for you. All ranks run."):
        debug(f"{RunMaker(own_folders).folder.id} 0 p loss")


def test_q_ends_a_rank_and_so_the_run() -> None:
    folder = launch_cell("local", STOPS, 2)
    waiting(folder, 2)
    assert debug("0 q") == "rank 0 ends."
    assert ended(folder).state is State.FAILED


def test_a_range_of_no_ranks() -> None:
    with pytest.raises(InputError, match=r"'3-1' names no rank\. Write the smaller rank first"):
        debug("3-1 p loss")


def test_help_says_what_it_takes() -> None:
    text = str(dispatch("debug --help", NOTEBOOK))
    assert text.startswith("usage: %dist debug [ID] [RANKS | --all] [LINE]")


# `jupyter dist`, whose prompt waits until all ranks have arrived, however late one of them does.
PATIENT = """
import sys
from jupyter_dist.commands import main
from jupyter_dist.showing.debugger import conversation
conversation._SETTLE_S = 1000.0
sys.exit(main())
"""


def script(folder: Path, source: str) -> list[str]:
    path = folder / "train.py"
    path.write_text(source)
    return ["-c", PATIENT, "run", "-np", "2", str(path)]


def test_a_terminal_opens_the_prompt_of_the_ranks(tmp_path: Path) -> None:
    terminal = pexpect.spawn(sys.executable, script(tmp_path, STOPS), encoding="utf-8", timeout=PATIENCE_S)
    terminal.expect_exact("ranks 0-1 (Pdb) ")
    assert ("-> breakpoint()" if AT_CALL else "-> name = input(") in terminal.before
    terminal.sendline("1: p rank * 21")
    terminal.expect_exact("rank 1: 21")
    terminal.expect_exact("ranks 0-1 (Pdb) ")
    terminal.sendline("c")
    terminal.expect_exact("ranks 0-1: Name: ")
    terminal.sendline("Ada")
    terminal.expect_exact("[0-1] Name: Ada")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_ctrl_c_at_a_terminals_prompt_stops_the_run(tmp_path: Path) -> None:
    terminal = pexpect.spawn(sys.executable, script(tmp_path, STOPS), encoding="utf-8", timeout=PATIENCE_S)
    terminal.expect_exact("ranks 0-1 (Pdb) ")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130


def test_a_pipe_answers_and_its_end_is_the_end_of_the_input(tmp_path: Path) -> None:
    asks = script(tmp_path, "name = input('Name: ')\nprint('Hello', name)\ninput()")
    done = run_process([sys.executable, *asks], input="Ada\n")
    assert done.returncode == 1
    assert re.search(r"\[0-1\] +Hello Ada", done.stdout), done.stdout
    assert "EOFError: EOF when reading a line" in done.stderr
    debugs = script(tmp_path, "x = 1\nbreakpoint()\nx = 2")
    done = run_process([sys.executable, *debugs], input="p x\n")
    assert done.returncode == 1
    assert "ranks 0-1: 1" in done.stdout
    assert "BdbQuit" in done.stderr


def test_the_words_of_the_command(own_folders: Path) -> None:
    made = RunMaker(own_folders).folder
    read = debug_commands._read
    last: RunFolder | None
    last, ranks, line = read(f"{made.id} 0,2-3 p x")
    assert (last and last.id, ranks, line) == (made.id, [0, 2, 3], "p x")
    assert read("--all p x  + 1") == (None, None, "p x  + 1")
    assert read("1") == (None, [1], "")
    assert read("") == (None, None, "")
    assert read("beef") == (None, None, "beef"), "it is a name, because no run has this id"
    assert read("p 1") == (None, None, "p 1")


def test_the_runs_id_may_be_in_a_variable_and_the_line_stays_the_ranks_own() -> None:
    id = "20261128-151244-2eae8e2a-t1"
    expand = _expander({"r": SimpleNamespace(id=id), "x": 5})
    assert commands._verbatim("debug {r.id} 1  p {x}", NOTEBOOK, expand) == ["debug", f"{id} 1  p {{x}}"]
    assert commands._verbatim("debug {x}", NOTEBOOK, expand) == ["debug", "{x}"]
    assert commands._verbatim("debug", NOTEBOOK, expand) == ["debug", ""]
