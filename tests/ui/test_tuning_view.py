"""A tuning run under its cell: its trials in drawings and a table, each of which opens as a run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from jupyter_dist.conformance.deadlines import wait_until

from .pages import LOAD, Lab, RunView
from .server import JupyterServer

pytestmark = pytest.mark.needs("optuna")

Picture = Callable[[Page, str], Path]

CLICK_AT_ONCE = """() => {
    const seen = new MutationObserver(() => {
        const button = document.querySelector('[aria-label="Open trial 2"]');
        if (button) {
            seen.disconnect();
            button.click();
        }
    });
    seen.observe(document.body, { childList: true, subtree: true });
}"""
"""The click of somebody who is faster than the kernel's first message to the view."""

TUNE = """%%distribute -np 1 --tune lr=choice(.001,.01,.1) --tune kind=choice(a,b) --objective max:score \
--strategy grid --parallel 2
import math
import jupyter_dist as dist
for step in range(3):
    dist.log(score=step - (math.log10(lr) + 2) ** 2 - 0.25 * (kind == "b"))
print("tried", lr, kind)
"""


def test_trials_are_drawn_sorted_filtered_and_opened(
    lab: Lab, server: JupyterServer, browser: Browser, picture: Picture, pictures: Callable[..., None]
) -> None:
    notebook = lab.notebook(LOAD)
    view = notebook.distribute(TUNE)
    view.to_be("succeeded")
    run = view.run
    trials = view.node.get_by_role("region", name="Trials", exact=True).first
    expect(trials).to_contain_text("6 of 6 trials have ended")
    for name in ("score over time", "Parallel coordinates", "Importance"):
        expect(trials.get_by_role("img", name=name)).to_be_visible()
    rows = trials.locator("tbody tr")
    expect(rows.first).to_have_class("jpd-best")
    _to_be(trials, 2, ["2", "1.75", "1", "1", "0.75", "0.75"])
    # By lr, both ways; then what fits a text.
    rate = trials.get_by_role("button", name=re.compile("^lr"))  # an arrow may follow
    rate.click()
    _to_be(trials, 3, ["0.001", "0.001", "0.01", "0.01", "0.1", "0.1"])
    rate.click()
    _to_be(trials, 3, ["0.1", "0.1", "0.01", "0.01", "0.001", "0.001"])
    trials.get_by_role("searchbox").fill("kind=b succ")
    expect(rows).to_have_count(3)
    trials.get_by_role("searchbox").fill("")
    trials.scroll_into_view_if_needed()
    pictures(lab, "tuning")
    # Each is a run, in a tab of its own.
    trials.get_by_role("button", name="Open trial 2").click()
    lab.tab(f"{run}-t2").to_be("succeeded").to_show("tried 0.01 a")
    with server.without("jupyter-dist"), contextlib.closing(Lab(browser, server)) as bare:
        bare.open()
        again = bare.notebook(LOAD, "import jupyter_dist")
        bare.page.evaluate(CLICK_AT_ONCE)
        cell = again.run(f"jupyter_dist.attach({run!r})")
        # The trial may be there before this looks: then the run's view is hidden beside it.
        whole = RunView(cell.locator(f".jpd-run[data-run='{run}']"))
        expect(whole.node).to_have_attribute("data-source", "kernel")
        trial = RunView(cell.locator(f".jpd-run[data-run='{run}-t2']"))
        trial.to_be("succeeded").to_show("tried 0.01 a")
        picture(bare.page, "tuning-widget-trial")
        cell.get_by_role("button", name=re.compile("Back to run")).click()
        expect(cell.get_by_role("button", name="Open trial 2")).to_be_visible()
        assert bare.complaints == []
        bare.renew()


def _to_be(trials: Locator, index: int, texts: list[str]) -> None:
    """Wait until a column of the table has these texts."""

    def column() -> list[str]:
        return [row.split("\t")[index] for row in trials.locator("tbody tr").all_inner_texts()]

    wait_until(lambda: column() == texts, f"{texts} in the column {index}", lambda: str(column()))
