"""Everybody can use it: by keyboard, on a dark theme, with a screen reader as far as axe-core can tell."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from jupyter_dist.job import State
from tests.rigs.run_maker import RunMaker

from .pages import LOAD, Lab, Sidebar
from .test_run_view import ENDLESS, FAILS, HELLO

Picture = Callable[[Page, str], Path]
AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_CHECK = """async selectors => {
  // The buttons of section toolbars are JupyterLab's own elements.
  const parts = { include: selectors.map(selector => [selector]), exclude: [['jp-toolbar']] };
  const { violations } = await axe.run(parts, { resultTypes: ['violations'] });
  return violations.map(({ id, impact, help, nodes }) => ({
    id, impact, help, nodes: nodes.map(n => n.html.slice(0, 200) + ' :: ' + n.failureSummary)
  }));
}"""


def violations(page: Page, *selectors: str) -> list[dict[str, Any]]:
    """What axe-core calls serious or critical in these parts of the page, all of which are there."""
    for selector in selectors:
        assert page.locator(selector).count(), f"nothing to check: {selector}"
    if not page.evaluate("() => Boolean(window.axe)"):
        page.add_script_tag(path=AXE)
    found: list[dict[str, Any]] = page.evaluate(_CHECK, list(selectors))
    return [violation for violation in found if violation["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("themed", ["JupyterLab Light", "JupyterLab Dark"], indirect=True)
def test_axe_finds_nothing_serious(themed: Lab, own_folders: Path, picture: Picture) -> None:
    lab = themed
    old = RunMaker(own_folders, 64, label="sixty-four ranks", began=time.time() - 300)
    for step in range(20):
        for rank in range(64):
            old.metric(rank, step, {"loss": 1 / (step + 1 + rank)})
    old.end()
    notebook = lab.notebook(LOAD)
    sidebar = lab.sidebar()
    view = notebook.distribute(HELLO).to_be("succeeded").to_show("hello from 1")
    panel, in_cell = "#jupyter-dist-sidebar", ".jp-Notebook .jpd-run"
    expect(view.metrics.locator("canvas").first).to_be_visible()
    assert violations(lab.page, panel, in_cell) == []
    failed = notebook.distribute(FAILS).to_be("failed")
    expect(failed.failure).to_be_visible()
    failed.node.scroll_into_view_if_needed()
    assert violations(lab.page, in_cell) == []
    sidebar.clusters.get_by_role("button", name="New cluster").click()
    expect(sidebar.form).to_be_visible()
    sidebar.row("sixty-four ranks").get_by_role("button").first.click()
    tab = lab.tab(old.folder.id).to_be("succeeded")
    expect(tab.metrics.locator("canvas").first).to_be_visible()
    assert violations(lab.page, panel, f".jpd-run[data-run='{old.folder.id}']") == []
    sidebar.form.get_by_role("button", name="Cancel").click()
    lab.command("jupyter-dist:show-runs")
    expect(lab.page.locator(".jpd-runs tbody tr[data-id]")).to_have_count(3)
    assert violations(lab.page, ".jpd-runs") == []
    picture(lab.page, f"axe-{'dark' if 'Dark' in lab.page.evaluate(_THEME) else 'light'}")


_THEME = "() => document.body.dataset.jpThemeName"


def test_a_dark_theme_reaches_every_part(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    sidebar = lab.sidebar()
    view = notebook.distribute(HELLO).to_be("succeeded").to_show("hello from 1")
    canvas = view.metrics.locator("canvas").first
    expect(canvas).to_be_visible()
    light = canvas.evaluate(_PIXELS)
    lab.set_theme("JupyterLab Dark")
    try:
        for part in (view.node, view.logs, sidebar.node):
            assert _brightness(part, "color") > 0.6
        assert _behind(view.rows.first) < 0.35
        # A canvas does not follow the theme's variables by itself: axes are drawn anew.
        lab.until(f"light => ({_PIXELS})(document.querySelector('.jpd-run canvas')) !== light", light)
        picture(lab.page, "dark-theme")
    finally:
        lab.set_theme("JupyterLab Light")


_PIXELS = "canvas => canvas.toDataURL()"
_RGB = """(node, [name, behind]) => {
  for (let at = node; at; at = behind ? at.parentElement : null) {
    const parts = getComputedStyle(at)[name].match(/[\\d.]+/g).map(Number);
    if (!behind || parts.length < 4 || parts[3] > 0.9) {
      return parts.slice(0, 3);
    }
  }
}"""


def _brightness(node: Locator, name: str) -> float:
    return float(sum(node.evaluate(_RGB, [name, False]))) / 3 / 255


def _behind(node: Locator) -> float:
    """The brightness of the background that is seen behind a node."""
    return float(sum(node.evaluate(_RGB, ["backgroundColor", True]))) / 3 / 255


def test_with_the_keyboard_alone(lab: Lab) -> None:
    lab.notebook(LOAD)
    page = lab.page
    press = page.keyboard.press
    # A cell is written and run.
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:insert-cell-below')")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:enter-edit-mode')")
    page.keyboard.insert_text(ENDLESS)
    press("Control+Enter")
    view = lab.page.locator(".jp-Notebook .jpd-run")
    expect(view).to_have_attribute("data-state", "running")
    # Tab goes through the view: Stop, ranks, logs.
    stop = view.get_by_role("button", name="Stop")
    tab_to(page, stop)
    chips = view.get_by_role("group", name="Ranks").get_by_role("button")
    tab_to(page, chips.first)
    expect(view.get_by_role("tooltip")).to_contain_text("pid")
    press("ArrowRight")
    expect(chips.nth(1)).to_be_focused()
    press("Enter")
    expect(view.get_by_role("tab", name="Rank 1")).to_have_attribute("aria-selected", "true")
    tab_to(page, view.get_by_role("tab", name="Rank 1"))
    press("ArrowLeft")
    expect(view.get_by_role("tab", name="Rank 0")).to_have_attribute("aria-selected", "true")
    press("Control+f")
    expect(view.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("tick 2")
    press("Enter")
    expect(view.locator("mark").first).to_be_visible()
    tab_to(page, view.get_by_role("log"))
    press("Home")
    expect(view.get_by_role("log").get_by_text(re.compile(r"^tick 0$"))).to_be_visible()
    tab_to(page, stop, "Shift+Tab")
    press("Enter")
    expect(view).to_have_attribute("data-state", "stopped")


def test_the_sidebar_with_the_keyboard_alone(lab: Lab, own_folders: Path) -> None:
    made = [RunMaker(own_folders, 2, label=f"run {n}", began=time.time() - 60 * n) for n in (3, 2, 1)]
    for run in made:
        run.end(State.SUCCEEDED)
    notebook = lab.notebook(LOAD)
    page = lab.page
    press = page.keyboard.press
    # From the palette, as every command.
    press("Control+Shift+c")
    palette = page.locator("#modal-command-palette")
    expect(palette).to_be_visible()
    page.keyboard.type("Select Cluster")
    expect(palette.get_by_text("Select Cluster for This Notebook")).to_be_visible()
    press("Enter")
    sidebar = Sidebar(page.locator("#jupyter-dist-sidebar"))
    card = sidebar.card("local")
    expect(card.get_by_role("button").first).to_be_focused()
    press("Enter")
    expect(card).to_contain_text("in use")
    expect(notebook.panel.locator(".jpd-toolbar-item")).to_contain_text("local")
    expect(sidebar.rows).to_have_count(3)
    # One row of the list is in the order of Tab: the one that was chosen last.
    tab_to(page, sidebar.rows.locator("[data-main][tabindex='0']"))
    press("Home")
    expect(sidebar.rows.nth(0).get_by_role("button").first).to_be_focused()
    press("ArrowDown")
    expect(sidebar.rows.nth(1).get_by_role("button").first).to_be_focused()
    press("End")
    expect(sidebar.rows.nth(2).get_by_role("button").first).to_be_focused()
    press("Delete")
    with lab.dialog() as dialog:
        expect(dialog).to_contain_text("run 3")
        tab_to(page, dialog.get_by_role("button", name="Remove"))
        press("Enter")
    expect(sidebar.rows).to_have_count(2)
    tab_to(page, sidebar.rows.locator("[data-main][tabindex='0']"))
    press("Home")
    expect(sidebar.rows.nth(0).get_by_role("button").first).to_be_focused()
    press("Enter")
    lab.tab(made[2].folder.id).to_be("succeeded")


def tab_to(page: Page, target: Locator, key: str = "Tab") -> None:
    """Press Tab until the focus is there."""
    for _ in range(60):
        if target.evaluate(
            "node => node === document.activeElement || node.contains(document.activeElement)"
        ):
            return
        page.keyboard.press(key)
    held = page.evaluate("document.activeElement?.outerHTML?.slice(0, 300)")
    pytest.fail(f"{key} does not lead to {target}; the focus is in {held}")
