"""A rank that waits, in JupyterLab: the box under the cell, and the button that opens it from a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, expect

from tests.rigs.answering import AT_CALL

from .pages import Lab

TRAIN = """%%distribute -np 2 {more}
import os
rank = int(os.environ["RANK"])

def step(batch):
    loss = sum(batch) / (1 - rank % 2 * 1e-9)
    breakpoint()
    return round(loss, 3)

step([1, 2, 3])
"""
# The prompt waits until all ranks have arrived, however late one of them does.
LOAD = """%load_ext jupyter_dist
from jupyter_dist.showing.debugger import conversation
conversation._SETTLE_S = 1000.0
"""
PLACE = f"line {8 - AT_CALL}"


def answer(cell: Locator, prompt: str, line: str) -> None:
    """Type a line into the box under a cell. JupyterLab keeps a box for half a second after its answer."""
    box = cell.locator(".jp-Stdin:not([data-answered])")
    expect(box).to_have_count(1)
    expect(box.locator(".jp-Stdin-prompt")).to_have_text(prompt)
    typed = box.locator("input").element_handle()
    typed.fill(line)
    box.evaluate("node => { node.dataset.answered = 'yes'; }")
    typed.press("Enter")


def test_the_box_under_the_cell_talks_with_all_ranks(lab: Lab, pictures: Callable[..., None]) -> None:
    notebook = lab.notebook(LOAD)
    cell = notebook.start(TRAIN.format(more=""))
    view = notebook.view(cell)
    answer(cell, "ranks 0-1 (Pdb) ", "p batch")
    answer(cell, "ranks 0-1 (Pdb) ", "1: p rank, loss")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("ranks 0-1: [1, 2, 3]")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("rank 1: (1, 6.000000006)")
    expect(view.header).to_contain_text(f", {PLACE} (to answer: %dist debug)")
    notebook.select(-1, "start")
    pictures(lab, "debugger", 1000)
    answer(cell, "ranks 0-1 (Pdb) ", "c")
    notebook.done(cell)
    view.to_be("succeeded")


def test_the_button_of_a_waiting_run_opens_its_prompt(lab: Lab) -> None:
    notebook = lab.notebook(LOAD)
    view = notebook.distribute(TRAIN.format(more="--detach"))
    button: Any = view.header.get_by_role("button", name="Answer the ranks that wait for you")
    button.click()
    cell = notebook.cell(notebook.find(f"%dist debug {view.run}"))
    answer(cell, "ranks 0-1 (Pdb) ", "p rank")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("rank 1: 1")
    answer(cell, "ranks 0-1 (Pdb) ", "c")
    notebook.done(cell)
    view.to_be("succeeded")
    expect(button).to_be_hidden()
