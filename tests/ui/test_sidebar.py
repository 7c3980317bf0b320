"""The sidebar: clusters to choose from, runs to watch, and both through forms, menus and dialogs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .pages import LOAD, Lab
from .server import JupyterServer

pytestmark = [pytest.mark.serial, pytest.mark.timeout(240)]

Picture = Callable[[Page, str], Path]
WaitFor = Callable[..., Any]


def test_a_cluster_is_added_used_inserted_and_run(
    lab: Lab, server: JupyterServer, wait_for: WaitFor, picture: Picture
) -> None:
    server.clusters.parent.mkdir(parents=True, exist_ok=True)
    server.clusters.write_text("# ours, by hand\n")
    notebook = lab.notebook(LOAD)
    sidebar = lab.sidebar()
    expect(sidebar.card("local")).to_contain_text("core")

    sidebar.clusters.get_by_role("button", name="New cluster").click()
    sidebar.form.get_by_label("Name").fill("three")
    # What is wrong is said by the same model as for the flag.
    sidebar.form.get_by_label("Workers", exact=True).fill("0")
    sidebar.form.get_by_role("button", name="Save").click()
    expect(sidebar.form.get_by_role("alert")).to_contain_text("1")
    expect(sidebar.form.get_by_label("Workers", exact=True)).to_be_focused()
    picture(lab.page, "cluster-form")
    sidebar.form.get_by_label("Workers", exact=True).fill("3")
    sidebar.form.get_by_role("button", name="Save").click()
    expect(sidebar.card("three")).to_contain_text("local × 3")
    assert server.clusters.read_text().startswith("# ours, by hand\n")
    assert "[clusters.three]" in server.clusters.read_text()

    sidebar.card("three").get_by_role("button", name="three").first.click()
    expect(sidebar.card("three")).to_contain_text("in use")
    expect(notebook.panel.locator(".jpd-toolbar-item")).to_contain_text("three")

    sidebar.card("three").get_by_role("button", name="Insert").click()
    inserted = notebook.cell(1)
    expect(inserted).to_contain_text("%%distribute --cluster three")
    expect(inserted).to_contain_class("jp-mod-active")
    lab.page.keyboard.press("Control+Enter")
    view = notebook.view(inserted).to_be("succeeded")
    expect(view.chips).to_have_count(3)
    expect(sidebar.rows).to_have_count(1)
    expect(sidebar.rows.get_by_role("button", name=re.compile("succeeded"))).to_contain_text("local × 3")
    # What a cell says of itself: the choice is the kernel's.
    said = notebook.run("%dist use")
    expect(said).to_contain_text("three")
    picture(lab.page, "cluster-in-use")
