"""The prompt under a cell and of `%dist debug`, in a real kernel, and folded answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.folder import find, runs
from jupyter_dist.manage import stop
from jupyter_dist.record import reader
from jupyter_dist.showing.debugger import input_box
from jupyter_dist.showing.debugger.conversation import folded
from tests.conftest import Cell, Kernel
from tests.rigs.answering import AT_CALL
from tests.rigs.gates import Gates

STOPS = """%%distribute -np 2
import os
rank = int(os.environ["RANK"])

def scaled(value):
    breakpoint()
    return value * 2

total = scaled(rank + 1)
name = input("Name: ")
print(total, name)
"""


def load(kernel: Kernel, late_s: float = 1000.0) -> None:
    """Load the extension. Its prompt waits until all ranks have arrived. The last one may be so late."""
    kernel.run(
        "%load_ext jupyter_dist\nfrom jupyter_dist.showing.debugger import conversation\n"
        f"conversation._SETTLE_S = {late_s}"
    )


def asked(kernel: Kernel, cell: Cell) -> str:
    """Wait until the cell opens the input box, and return the prompt."""

    def prompt() -> str:
        try:
            return str(kernel.client.get_stdin_msg(timeout=0.05)["content"]["prompt"])
        except Empty:
            kernel.read(0.05)
            assert not cell.done, cell.text
            return ""

    return wait_until(prompt, "the input box", lambda: cell.text)


def talk(kernel: Kernel, cell: Cell, *lines: tuple[str, str]) -> None:
    """Answer prompts: the expected prompt, and the line."""
    for prompt, line in lines:
        assert asked(kernel, cell) == prompt, cell.text
        kernel.client.input(line)


def without_input(kernel: Kernel, code: str) -> Cell:
    """Run a cell as nbclient does."""
    msg_id = kernel.client.execute(code, allow_stdin=False)
    cell = kernel._cells[msg_id] = Cell(kernel, msg_id)
    return cell.finish()


def test_a_cell_opens_the_box_for_all_ranks_that_wait(kernel: Kernel) -> None:
    load(kernel)
    cell = kernel.start(STOPS)
    talk(
        kernel,
        cell,
        ("ranks 0-1 (Pdb) ", "p value"),
        ("ranks 0-1 (Pdb) ", "1: p value * 10"),
        ("ranks 0-1 (Pdb) ", "7: p value"),
        ("ranks 0-1 (Pdb) ", "where"),
        ("ranks 0-1 (Pdb) ", "c"),
        ("ranks 0-1: Name: ", "Ada"),
    )
    assert cell.finish().error is None, cell.text
    printed = cell.stdout
    assert f"ranks 0-1:\n> In[2]({7 - AT_CALL})scaled()\n" in printed
    assert (
        "rank 0: 1\nrank 1: 2\nrank 1: 20\nThese ranks do not wait here. There are: ranks 0-1.\n" in printed
    )
    assert printed.count("-> total = scaled(rank + 1)") == 1, "equal answers are shown once"
    # The lines that differ stand in the order of their arrival.
    lines = ["[0]   2 Ada\n", "[1]   4 Ada\n"]
    orders = (lines, lines[::-1])
    assert any(f"[0-1] Name: Ada\n{one}{other}" in cell.text for one, other in orders), cell.text


def test_without_a_box_the_ranks_get_an_error(kernel: Kernel) -> None:
    kernel.run("%load_ext jupyter_dist")
    why = "Nobody can answer this rank: this notebook runs without an input box. Run the cell with --detach"
    for code, name in (("input('Name: ')", "EOFError"), ("breakpoint()\n1", "RuntimeError")):
        cell = without_input(kernel, f"%%distribute -np 1\n{code}")
        assert cell.error is not None
        assert f"{name}: {why}" in cell.text
        assert "bdb.py" not in cell.text
    cell = without_input(kernel, "%%distribute -np 1 --pdb\n1 / 0")
    assert "ZeroDivisionError" in (cell.error or "")
    assert why in cell.text


def test_an_interrupt_at_the_box_stops_the_run(kernel: Kernel) -> None:
    kernel.run("%load_ext jupyter_dist")
    cell = kernel.start(STOPS)
    asked(kernel, cell)
    kernel.interrupt()
    assert "RunStopped" in (cell.finish().error or ""), cell.text
    assert "interrupted by the user" in cell.text
    assert kernel.run("1 + 1").text.strip() == "2"


def test_the_box_closes_when_the_run_ends(kernel: Kernel) -> None:
    kernel.run("%load_ext jupyter_dist")
    cell = kernel.start(STOPS)
    asked(kernel, cell)
    (run,) = re.findall(r"\d{8}-\d{6}-[0-9a-f]{8}", str(cell.displays[0]))[:1]
    stop.stop(find(run))
    assert "RunStopped" in (cell.finish().error or ""), cell.text
    assert kernel.run("1 + 1").text.strip() == "2", "the interrupt that closes the box hits nothing else"


AWAITS = """
import asyncio, jupyter_dist
def asks():
    input("Name: ")
await asyncio.sleep(0)
jupyter_dist.run(asks, np=1)
"""


def test_the_box_of_a_cell_that_awaits_closes_and_obeys_an_interrupt(kernel: Kernel) -> None:
    for interrupts in (True, False):
        cell = kernel.start(AWAITS)
        assert asked(kernel, cell) == "Name: "
        if interrupts:
            kernel.interrupt()
        else:
            (run,) = [one for one in runs() if not reader.status(one).state.ended]
            stop.stop(run)
        assert "RunStopped" in (cell.finish().error or ""), cell.text
    assert kernel.run("1 + 1").text.strip() == "2"


def test_lines_before_the_question_are_shown_with_the_box(kernel: Kernel) -> None:
    kernel.run("%load_ext jupyter_dist")
    prints = "import time\nfor i in range(30):\n    print('line', i)\n    time.sleep(0.02)\n"
    cell = kernel.start(f"%%distribute -np 1\n{prints}input('Name: ')")
    assert asked(kernel, cell) == "Name: "

    def shown() -> bool:
        kernel.read(0.05)
        return "line 29" in cell.text

    wait_until(shown, "the last line", lambda: cell.text)
    kernel.client.input("Ada")
    cell.finish()


def test_only_the_main_thread_opens_a_box() -> None:
    raised: list[str] = []

    def ask() -> None:
        try:
            input_box.read_line("", lambda: True)
        except input_box.NoInput as why:
            raised.append(str(why))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert raised == ["only the main thread of this process can ask"]


def test_another_kernel_debugs_a_run_whose_kernel_is_gone(
    start_kernel: Callable[[], Kernel], tmp_path: Path
) -> None:
    first, second = start_kernel(), start_kernel()
    load(first)
    load(second)
    gates = Gates(tmp_path)
    cell = first.start(STOPS.replace("name = ", f"{gates.source}gate('the question')\nname = "))
    asked(first, cell)
    first.kill()
    assert second.run("%dist debug --all p value").text.strip() == "rank 0: 1\nrank 1: 2"
    debug = second.start("%dist debug 1")
    talk(second, debug, ("rank 1 (Pdb) ", "p rank"), ("rank 1 (Pdb) ", "c"))
    # The command ends while the rank runs. Only a gate makes sure that the rank runs long enough.
    assert debug.finish().error is None
    gates.open("the question")
    debug = second.start("%dist debug 1")
    talk(second, debug, ("rank 1: Name: ", "Eve"))
    assert debug.finish().error is None
    left = second.start("%dist debug")
    asked(second, left)
    second.interrupt()
    assert f"Left the debugger. Rank 0 waits at In[2], line {7 - AT_CALL}." in left.finish().text
    second.run("%dist debug c")
    second.run("%dist debug Bob")
    told: Any = second.run("%dist attach").text
    assert "4 Eve" in told
    assert "2 Bob" in told


WAITS = """%%distribute -np 2
import os, time, jupyter_dist
rank = int(os.environ["RANK"])

def meet():
    while rank == 0 and not os.path.exists("met"):
        time.sleep(0.01)
    if rank == 1:
        open("met", "w")

jupyter_dist.barrier()
breakpoint()
meet()
rank
"""


def test_a_rank_that_needs_another_one_does_not_hold_up_the_prompt(kernel: Kernel) -> None:
    load(kernel, 3.0)
    cell = kernel.start(WAITS)
    talk(
        kernel,
        cell,
        *[("ranks 0-1 (Pdb) ", "n")] * AT_CALL,
        ("ranks 0-1 (Pdb) ", "0: n"),
        ("rank 1 (Pdb) ", "0: p rank"),
        ("rank 1 (Pdb) ", "n"),
        ("ranks 0-1 (Pdb) ", "c"),
    )
    assert cell.finish().error is None, cell.text
    assert cell.stdout.count("Rank 0 is still running.\n") == 1
    assert "These ranks do not wait here. There are: rank 1.\n" in cell.stdout


def test_answers_are_folded() -> None:
    assert folded({0: "0.31\n", 1: "nan\n", 2: "0.31\n", 3: "0.31\n"}) == "ranks 0,2-3: 0.31\nrank 1: nan"
    assert folded({0: "a\nb\n", 1: "a\nb\n"}) == "ranks 0-1:\na\nb"
    assert folded({0: "a\nb\n"}, alone=True) == "a\nb"
    assert folded({}) == ""


def test_of_a_long_answer_the_notebook_keeps_both_ends() -> None:
    lines = [f"line {number}" for number in range(10_000)]
    text = "\n".join(lines) + "\n"
    found = folded({0: text, 1: text, 2: text.replace("line 5000", "other")}, file="/run/{}".format)
    for rank, who in ((0, "ranks 0-1:"), (2, "rank 2:")):
        gap = f"… 9500 lines are left out. All lines: /run/{rank}"
        assert "\n".join([who, *lines[:250], gap, *lines[-250:]]) in found
    assert len(folded({0: "\n".join(["x" * 5000] * 400)})) < 110_000
    assert folded({0: "\n".join(lines[:500])}, alone=True) == "\n".join(lines[:500])
