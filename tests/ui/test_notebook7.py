"""In Notebook 7, which is another application made of the same parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from .pages import LOAD, Lab
from .server import JupyterServer
from .test_run_view import HELLO


@pytest.fixture
def classic(server: JupyterServer, browser: Browser) -> Iterator[Lab]:
    found = Lab(browser, server)
    yield found
    found.close()


def test_a_run_and_the_sidebar_in_notebook_7(classic: Lab, picture: Callable[[Page, str], Path]) -> None:
    notebook = classic.open_in_notebook7()
    notebook.run(LOAD)
    view = notebook.distribute(HELLO)
    expect(view.node).to_have_attribute("data-source", "server")
    view.to_be("succeeded").to_show("hello from 1")
    expect(view.metrics.locator("canvas").first).to_be_visible()
    sidebar = classic.sidebar()
    expect(sidebar.rows.get_by_role("button", name=re.compile("succeeded"))).to_contain_text("local × 2")
    expect(sidebar.card("local")).to_be_visible()
    picture(classic.page, "notebook7")
    notebook.save()
    classic.reload()
    view.to_be("succeeded").to_show("hello from 1")
    assert classic.complaints == []
