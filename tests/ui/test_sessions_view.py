"""Sessions in the sidebar: what their ranks hold, and what can be done with them."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.record.sessions import find_session

from .pages import LOAD, Lab

Pictures = Callable[[Lab, str], None]


def test_a_session_is_shown_used_restarted_and_stopped(lab: Lab, pictures: Pictures) -> None:
    notebook = lab.notebook(LOAD)
    notebook.distribute(
        "%%distribute --session view -np 2\nimport numpy\nweights = numpy.zeros((4, 5))\nlosses = [1, 2]"
    ).to_be("succeeded")
    sidebar = lab.sidebar()
    session = sidebar.runs.get_by_role("region", name="Sessions").locator(".jpd-sb-card")
    expect(session).to_have_count(1)
    expect(session.locator("summary")).to_have_text(
        re.compile(r"^view 2 ranks on local · idle .* · [\d.]+ MB$")
    )
    session.locator("summary").click()
    names = session.get_by_role("table", name="Names on rank 0")
    expect(names.get_by_role("row", name="weights")).to_contain_text("ndarray 4×5 float64")
    expect(names.get_by_role("row", name="losses")).to_contain_text("list, 2 items")
    expect(session.get_by_role("table", name="Ranks").get_by_role("row")).to_have_count(2)
    pictures(lab, "sessions")

    session.get_by_role("button", name="Insert a cell for the session view").click()
    expect(notebook.cell(2).locator(".cm-content")).to_be_focused()
    lab.page.keyboard.type("weights.sum()")
    lab.page.keyboard.press("Shift+Enter")
    notebook.view(notebook.cell(2)).to_be("succeeded")

    before = pids()
    session.get_by_role("button", name="Restart the ranks of view").click()
    with lab.dialog() as dialog:
        dialog.get_by_role("button", name="Restart").click()
    wait_until(lambda: not set(pids()) & set(before), "fresh ranks")
    failed = notebook.distribute("%%distribute --session view\nweights").to_be("failed")
    expect(failed.failure).to_contain_text("NameError")

    session.get_by_role("button", name="Stop the session view").click()
    with lab.dialog() as dialog:
        dialog.get_by_role("button", name="Stop").click()
    expect(session).to_have_count(0)


def pids() -> list[int]:
    session = find_session("view")
    assert session is not None
    return [rank["pid"] for rank in session.about["ranks"]]
