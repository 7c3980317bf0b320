"""What ranks show besides text, as one sees it: in JupyterLab, and what of it a saved notebook keeps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from jupyter_dist.conformance.deadlines import wait_until

from .pages import LOAD, Lab

Picture = Callable[[Page, str], Path]
Pictures = Callable[..., None]

SHOWN = r"""%%distribute -np 4
import os, time
import jupyter_dist as dist
import matplotlib.pyplot as plt
import pandas as pd
import plotly.graph_objects as go
from IPython.display import HTML, SVG, Latex, Markdown, clear_output, update_display
rank = dist.rank()
fig, axes = plt.subplots(figsize=(4, 2.4))
axes.plot([0, 1, 2, 3], [3 + rank, 2, 1.5 - 0.2 * rank, 1])
axes.set_title(f"loss of rank {rank}")
layout = {"height": 240, "width": 420, "margin": {"t": 20, "b": 40}}
line = go.Figure(go.Scatter(y=[1, 3, 2]), layout=layout)
fig.canvas.draw()  # it has its fonts: what follows takes ranks no time
line.to_html()
dist.barrier()
print("first a line")
display(pd.DataFrame({"layer": ["conv", "dense"], "parameters": [12800, 4100]}))
plt.show()
display(HTML("<b id='bold'>same</b> <script>window.jpdWasHere = 1</script>"
             "<img src=x onerror='window.jpdWasHere = 1'><a href='javascript:window.jpdWasHere=1'>no</a>"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg' width='60' height='30' onload='window.jpdWasHere=1'>"
            "<script>window.jpdWasHere = 1</script><circle cx='15' cy='15' r='12' fill='teal'/></svg>"))
display(Markdown("A **marked** word"), Latex(r"$\sum_i x_i^2$"))
display(HTML("<i>old</i>"), display_id="changes")
update_display(HTML(f"<i>new of {rank // 2}</i>"), display_id="changes")
vega = {"mark": "bar", "data": {"values": [{"a": 1, "b": 2}]},
        "encoding": {"x": {"field": "a", "type": "ordinal"}, "y": {"field": "b", "type": "quantitative"}}}
display({"application/vnd.vegalite.v6.json": vega, "text/plain": "a chart"}, raw=True)
display(line)
display(HTML("<p id='drawn' style='width:900px'></p><script src='https://cdn.plot.ly/none.js'></script>"
             "<script>drawn.textContent = `drawn by ${self.origin}`</script>"))
print("then another")
pd.DataFrame({"rank": [rank], "accuracy": [0.9 + rank / 100]})
"""


def test_rich_output_by_rank(lab: Lab, picture: Picture, pictures: Pictures) -> None:
    notebook = lab.notebook(LOAD)
    view = notebook.distribute(SHOWN).to_be("succeeded")
    shown = view.node.get_by_role("region", name="Displays")
    view.logs.scroll_into_view_if_needed()
    view.to_show("then another")
    rows = shown.locator(".jpd-display")
    expect(rows).to_have_count(11)
    run = view.run
    # The same in a tab, where there is room for it.
    view.header.get_by_role("button", name="Open in a tab").click()
    tab = lab.tab(run)
    shown = tab.node.get_by_role("region", name="Displays")
    rows = shown.locator(".jpd-display")
    table, figures, html, svg, markdown, latex, changed, chart, plotly, scripted, result = (
        rows.nth(i) for i in range(11)
    )
    expect(table).to_contain_text("[0-3]")
    expect(table.locator("td")).to_have_text(["conv", "12800", "dense", "4100"])
    expect(figures.locator("img")).to_have_count(4)
    expect(markdown.locator("strong")).to_have_text("marked")
    expect(changed.locator("i")).to_have_text(["new of 0", "new of 1"])
    expect(changed.locator(".jpd-ranks")).to_have_text(["[0-1]", "[2-3]"])
    expect(result).to_contain_text("Result")
    expect(result.locator("td")).to_have_count(8)
    expect(latex.locator("mjx-container, .MathJax, .katex")).to_have_count(1)
    expect(svg.locator("img")).to_have_js_property("naturalWidth", 60)
    chart.scroll_into_view_if_needed()
    expect(chart.locator("canvas, svg").first).to_be_visible()
    plotly.scroll_into_view_if_needed()
    expect(plotly.locator(".jpd-ranks")).to_have_text("[0-3]")
    expect(plotly.locator(".js-plotly-plot .trace")).to_have_count(1)  # by the renderer that it brings along
    expect(html.locator("b")).to_have_text("same")
    # A script runs when it is asked for, and where nothing is within its reach.
    expect(scripted.locator("iframe")).to_have_count(0)
    scripted.get_by_role("button", name="Run the script in an isolated frame").click()
    expect(scripted.frame_locator("iframe").locator("p")).to_have_text("drawn by null")
    # It is as wide as what it draws, and what cannot be loaded is named.
    expect(scripted.get_by_role("status")).to_have_text(
        re.compile("could not be loaded: https://cdn.plot.ly/none.js")
    )
    expect(scripted.locator("iframe")).to_have_css("min-width", "900px")
    taller = "node => node.offsetHeight - node.querySelector('.jpd-exhibit').offsetHeight"
    assert scripted.evaluate(taller) == 0
    assert tab.node.locator("script, a[href^='javascript'], [onerror], [onload]").count() == 0
    assert lab.page.evaluate("() => window.jpdWasHere") is None
    # One rank large, by the keyboard as well, and all of them again.
    tab.chips.first.focus()
    for _ in range(2):
        lab.page.keyboard.press("ArrowRight")
    lab.page.keyboard.press("Enter")
    expect(figures.locator("img")).to_have_count(1)
    expect(figures.locator(".jpd-display-cell .jpd-ranks")).to_have_text("[2]")
    picture(lab.page, "displays-one-large")
    figures.get_by_role("button", name="Show all ranks").click()
    expect(figures.locator("img")).to_have_count(4)
    # In the log each stands where it was shown, small, in place of the text that says the same.
    figure = lab.page.locator("img[alt^='<Figure']")
    tab.rank(None)
    log = tab.log.locator(".jpd-log")
    log.focus()
    lab.page.keyboard.press("Home")
    expect(tab.rows.first).to_contain_text("first a line")
    between = tab.rows.locator(".jpd-inlay")
    expect(between.first.locator("td")).to_have_text(["conv", "12800", "dense", "4100"])
    expect(between.locator(figure).first).to_be_visible()
    tab.node.evaluate("node => node.closest('.jpd-tab').scrollTo(0, 0)")
    pictures(lab, "displays", 1960)
    shown_large = between.get_by_role("button", name="Enlarge").filter(has=figure).last
    rank = (shown_large.get_attribute("aria-label") or "")[-1]
    shown_large.click()
    expect(figures.locator(".jpd-display-cell .jpd-ranks")).to_have_text(f"[{rank}]")
    expect(figures).to_be_in_viewport()
    tab.rank(1)
    log = tab.log.locator(".jpd-log")
    expect(log).to_have_attribute("aria-label", "Log of rank 1")
    log.focus()
    lab.page.keyboard.press("Home")
    expect(between.nth(1).locator(figure)).to_have_count(1)
    numbers = tab.rows.locator(".jpd-number")
    expect(numbers.nth(1)).to_have_text("2")  # of the table's three lines the first
    expect(numbers.nth(2)).to_have_text("5")
    expect(numbers.nth(3)).to_have_text("6")
    # A search finds the texts as well, which are then to be seen.
    search = tab.logs.get_by_role("searchbox")
    search.fill("<figure size")
    search.press("Enter")
    expect(tab.logs.locator(".jpd-hits")).to_have_text("1/1")
    expect(tab.rows.locator("mark")).to_be_in_viewport()
    expect(between.nth(1).locator(figure)).to_have_count(1)
    search.fill("")
    expect(tab.rows.locator("mark")).to_have_count(0)
    tab.logs.get_by_role("button", name="wrap").click()
    log.focus()
    lab.page.keyboard.press("Home")
    expect(tab.rows.first).to_be_in_viewport()
    lab.page.keyboard.press("End")
    expect(tab.rows.filter(has_text="then another")).to_be_in_viewport()
    tab.logs.get_by_role("button", name="wrap").click()
    expect(tab.rows.filter(has_text="then another")).to_be_in_viewport()


WIDE = """%%distribute -np 4
import jupyter_dist as dist
from IPython.display import HTML
names = "".join(f"<th>c{n} of {dist.rank()}</th>" for n in range(12))
display(HTML(f"<table><tr>{names}</tr></table>"))
display(HTML(f"<div style='width: 400px; height: 40px; background: gray'>{dist.rank()}</div>"))
"""


def test_what_is_wider_than_a_quarter_of_the_view_is_not_cut(lab: Lab) -> None:
    view = lab.notebook(LOAD).distribute(WIDE).to_be("succeeded")
    displays = view.node.get_by_role("region", name="Displays")
    expect(displays.locator("table")).to_have_count(4)
    boxes = displays.locator(".jpd-exhibit")
    expect(boxes).to_have_count(8)
    lost = "boxes => boxes.map(box => box.scrollWidth - box.clientWidth)"
    wait_until(lambda: not any(boxes.evaluate_all(lost)), "all of each display to be in sight")
