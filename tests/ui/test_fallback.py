"""Without our labextension the kernel's widget shows the run: live, while its cell blocks, and after."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from .pages import LOAD, Lab, Notebook
from .server import JupyterServer

OURS = "jupyter-dist"
TRAIN = """%%distribute -np 2 --cold
import time
import jupyter_dist as dist
for step in dist.progress(range({steps})):
    dist.log(loss=1 / (step + 1) + 0.1 * dist.rank(), step=step)
    print("step", step)
    time.sleep(0.05)
dist.rank()
"""
SUBSHELLS = "@jupyterlab/services-extension:kernel-settings"


@pytest.fixture
def bare(server: JupyterServer, browser: Browser) -> Iterator[Lab]:
    """JupyterLab as it is where our labextension is not installed."""
    with server.without(OURS):
        found = Lab(browser, server)
        found.open()
        yield found
        found.renew()
        found.close()


def output(notebook: Notebook, cell: Any) -> Any:
    return cell.locator(".jp-OutputArea-output")


def test_the_widget_is_live_while_its_cell_blocks(bare: Lab, picture: Callable[[Page, str], Path]) -> None:
    notebook = bare.notebook(LOAD)
    cell = notebook.start(TRAIN.format(steps=100_000))
    view = notebook.view(cell)
    expect(view.node).to_have_attribute("data-source", "kernel")
    view.to_be("running").to_show("step 20")
    expect(view.metrics.locator("canvas").first).to_be_visible()
    view.rank(1).to_show("step 30")
    picture(bare.page, "fallback-live")
    view.stop.click()
    view.to_be("stopped")
    notebook.done(cell)
    expect(cell.locator(".jpd-run")).to_have_count(1)
    expect(view.logs.get_by_role("tab", name="Rank 1")).to_have_attribute("aria-selected", "true")
    picture(bare.page, "fallback-stopped")
    assert bare.complaints == []
