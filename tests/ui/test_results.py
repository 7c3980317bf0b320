"""What ranks return and log besides numbers: tables, arrays and pictures, and the slider over steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .pages import LOAD, Lab

Picture = Callable[[Page, str], Path]

LOGS = """%%distribute -np 4 --out trained
import numpy as np
import jupyter_dist as dist
rank, colours = dist.rank(), np.random.default_rng(dist.rank())
for step in range(40):
    square = np.zeros((24, 24, 3))
    square[..., rank % 3] = step / 40
    dist.log(loss=1 / (1 + step), image={"square": square}, text=f"<b>step {step}</b>", step=step)
    dist.log(histogram={"weights": colours.normal(size=500)}, step=step)
    dist.log(table={"predictions": [{"seen": "cat", "right": bool(step % 2)}]}, step=step)
{"loss": 0.5 - rank / 10, "acc": {"val": float("nan") if rank == 2 else rank / 4}, "host": "<i>node</i>"}
"""


@pytest.mark.needs("numpy")
def test_results_and_logged_media(lab: Lab, picture: Picture, pictures: Callable[..., None]) -> None:
    page = lab.page
    notebook = lab.notebook(LOAD)
    view = notebook.distribute(LOGS).to_be("succeeded")
    results = view.node.get_by_role("region", name="Results", exact=True)
    rows = results.locator("tbody tr")
    said = ["00.50<i>node</i>", "10.40.25<i>node</i>", "20.3nan<i>node</i>", "30.20.75<i>node</i>"]
    expect(rows).to_have_text(said)
    expect(results.locator("tfoot tr")).to_have_text(["mean0.35nan", "min0.20", "max0.50.75"])
    results.get_by_role("button", name="acc/val").click()
    results.get_by_role("button", name="acc/val").click()
    expect(rows.locator("td:first-child")).to_have_text(["3", "1", "0", "2"])

    media = view.node.get_by_role("region", name="Media")
    square = media.get_by_role("group", name="square")
    square.scroll_into_view_if_needed()
    expect(square).to_contain_text("step 39 · 40/40")
    drawn = square.get_by_role("img")
    expect(drawn).to_have_count(3)  # ranks 0 and 3 logged the same
    expect(square.locator(".jpd-ranks")).to_have_text(["[0,3]", "[1]", "[2]"])
    slider = square.get_by_role("slider")
    before = drawn.first.evaluate("canvas => canvas.toDataURL()")
    slider.focus()
    page.keyboard.press("Home")
    expect(square).to_contain_text("step 0 · 1/40")
    expect(drawn).to_have_count(1)  # at first all are black
    page.keyboard.press("ArrowRight")
    expect(square).to_contain_text("step 1 · 2/40")
    expect(drawn).to_have_count(3)
    first = drawn.first.element_handle()
    page.wait_for_function("([canvas, before]) => canvas.toDataURL() !== before", arg=[first, before])
    expect(media.get_by_role("group", name="text")).to_contain_text("<b>step 39</b>")
    weights = media.get_by_role("group", name="weights")
    expect(weights.locator("path")).to_have_count(4)
    expect(weights).to_contain_text("500 values")
    expect(media.get_by_role("group", name="predictions").locator("td").first).to_have_text("cat")
    slider.fill("30")
    expect(square).to_contain_text("step 30 · 31/40")
    results.scroll_into_view_if_needed()
    pictures(lab, "results")
    media.scroll_into_view_if_needed()
    pictures(lab, "media")
    # Without the view, as a saved notebook keeps it.
    cell = notebook.run("trained.results")
    expect(cell.locator(".jp-OutputArea tfoot tr").first).to_have_text("mean0.35nan")
    cell.locator("th", has_text="loss").click()
    expect(cell.locator("tbody tr td:first-child")).to_have_text(["3", "2", "1", "0"])
    saved = notebook.run("trained.media")
    expect(saved.get_by_role("img").first).to_be_visible()
    picture(page, "results-saved")


TEN_THOUSAND = """%%distribute -np 2
import numpy as np
import jupyter_dist as dist
for step in range(5000):
    dist.log(image=np.full((8, 8), step % 251, dtype="uint8"), step=step)
"""

SHADE = """([canvas, shade]) =>
  canvas.isConnected && canvas.getContext('2d').getImageData(0, 0, 1, 1).data[0] === shade"""


@pytest.mark.needs("numpy")
def test_ten_thousand_media_do_not_grow_the_page(lab: Lab) -> None:
    view = lab.notebook(LOAD).distribute(TEN_THOUSAND).to_be("succeeded")
    image = view.node.get_by_role("group", name="image")
    expect(image).to_contain_text("step 4999 · 5000/5000")
    image.scroll_into_view_if_needed()
    slider = image.get_by_role("slider")
    expect(image.get_by_role("img")).to_have_count(1)
    # What is read after the end of a run is there as well.
    expect(view.node.locator(".jpd-steps .jpd-progress-row")).to_have_count(2)
    nodes = view.node.locator("*").count()
    canvas = image.get_by_role("img").element_handle()
    for step in range(0, 5000, 250):
        slider.fill(str(step))
        expect(image).to_contain_text(re.compile(rf"step {step} ·"))
        # The same one each time: what an `<img>` has shown a browser keeps.
        lab.page.wait_for_function(SHADE, arg=[canvas, step % 251])
    expect(image.get_by_role("img")).to_have_count(1)
    assert view.node.locator("*").count() <= nodes + 5
