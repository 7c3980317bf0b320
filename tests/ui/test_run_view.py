"""The view under a cell: a run from its first line to its end, and what can be done with it."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from jupyter_dist.conformance.deadlines import wait_until
from tests.rigs.gates import Gates

from .pages import LOAD, Lab

Picture = Callable[[Page, str], Path]

HELLO = """%%distribute -np 2
import jupyter_dist as dist
dist.barrier()  # the log folds only those equal lines that come within half a second
print("hello from", dist.rank())
dist.barrier()
print("hello to all")
dist.log(loss=0.5, step=0)
dist.log(loss=0.25, step=1)
"result of", dist.rank()
"""
ENDLESS = """%%distribute -np 2
import itertools, time
for tick in itertools.count():
    print("tick", tick)
    time.sleep(0.1)
"""
BAR = """%%distribute -np 2
import jupyter_dist as dist, sys, time
dist.barrier()  # the log folds only those equal lines that come within half a second
print("started")
for step in range(100_000):
    print(f"\\rstep {step}", end="", flush=True)
    time.sleep(0.1)
"""
BARS = """%%distribute -np 2
{gate}
import subprocess, sys, time
from rich.console import Console
from rich.progress import Progress
from tqdm.notebook import tqdm
for epoch in tqdm(range(3), desc="epochs"):
    # By default tqdm counts some batches later than the loop, which waits at one of them.
    batches = tqdm(range(20), desc=f"epoch {{epoch}}", leave=False, mininterval=0, miniters=1)
    for batch in batches:
        time.sleep(0.05)
        batches.set_postfix(loss=1 / (1 + batch))
        if epoch == 1 and batch == 10:
            gate("epoch 1")
with Progress(console=Console(force_terminal=True, width=60)) as progress:
    tasks = [progress.add_task(name, total=40) for name in ("files", "bytes")]
    for step in range(40):
        for task in tasks:
            progress.update(task, advance=1)
        if step == 20:
            progress.console.print("half of it")
            gate("half of rich")
        time.sleep(0.05)
# What another program draws stands in the log, and there once.
child = "import time, tqdm\\nfor i in tqdm.trange(2): [time.sleep(0.1) for _ in tqdm.trange(9, leave=False)]"
subprocess.run([sys.executable, "-c", child])
print("all done")
"""
STEPS = """%%distribute -np 2
import jupyter_dist as dist, time
from tqdm.auto import tqdm
dist.barrier()  # a rank that began later would add the height of its bar later
for step in {loop}:
    dist.log(loss=1 / (1 + step), accuracy=step / 20, step=step)
    print("step", step)
    time.sleep(0.05)
"""
_HEIGHTS = """() => {
  window.jpdHeights = [];
  const before = new Set(document.querySelectorAll('.jpd-run'));
  const note = entries => window.jpdHeights.push(Math.round(entries.at(-1).contentRect.height));
  const observer = new ResizeObserver(note);
  new MutationObserver((_, self) => {
    const view = [...document.querySelectorAll('.jpd-run')].find(one => !before.has(one));
    if (view) {
      self.disconnect();
      observer.observe(view);
    }
  }).observe(document.body, { childList: true, subtree: true });
}"""
FAILS = """%%distribute -np 4
import jupyter_dist as dist, time
def step(batch):
    if dist.rank() == 2:
        raise ValueError("bad <b>batch</b> of rank 2")
    time.sleep(60)
print("before the end")
step(batch=7)
"""
HOSTILE = r"""%%distribute -np 1
import os
os.write(1, b"<script>window.jpdWasHere = 1</script> & <img src=x onerror=\"window.jpdWasHere = 1\">\n")
os.write(1, b"\x1b[31mred\x1b[0m plain \x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07 \x1b]0;hijacked\x07\n")
os.write(1, b"broken \xff\xfe utf-8, a \0 NUL\n")
os.write(1, b"long " + b"x" * 1_000_000 + b"\n")
os.write(1, b"10%\r50%\rdone 100%\n")
print("the last line")
"""


def test_a_run_from_its_lines_to_its_results(lab: Lab) -> None:
    notebook = lab.notebook(LOAD)
    view = notebook.distribute(HELLO).to_be("succeeded")
    expect(view.header).to_contain_text("local · 2 ranks")
    expect(view.stop).to_be_hidden()
    expect(view.chips).to_have_count(2)
    view.to_show("hello from 0", "hello from 1")
    both = view.rows.filter(has_text="hello to all")
    expect(both).to_have_count(1)
    expect(both).to_contain_text("[0-1]")
    view.rank(1).to_show("hello from 1")
    expect(view.rows).to_have_count(2)
    expect(view.rows.filter(has_text="hello from 0")).to_have_count(0)
    expect(view.node.get_by_role("region", name="Results")).to_contain_text("('result of', 1)")
    expect(view.metrics.get_by_role("img", name="loss over steps; at step 1 it is 0.25")).to_be_visible()
    # A chip opens the log of its rank.
    view.chips.first.click()
    view.to_show("hello from 0")
    expect(view.rows.filter(has_text="hello from 1")).to_have_count(0)


def step_of(bar: Locator) -> int:
    expect(bar).to_have_text(re.compile(r"^\[(0|1|0-1)\]step \d+$"))
    return int(bar.inner_text().rpartition(" ")[2])


def test_stop(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    cell = notebook.start(BAR)
    view = notebook.view(cell).to_be("running").to_show("started")
    # What is not finished is shown as it stands.
    bar = view.rows.filter(has_text=re.compile(r"step \d")).first
    first = step_of(bar)
    wait_until(lambda: step_of(bar) > first, "the bar to go on")
    # Nor does a log that grows all the time put off a search.
    view.logs.get_by_role("searchbox").fill("started")
    expect(view.logs.locator("output")).to_have_text("1")
    view.stop.click()
    view.to_be("stopped")
    expect(view.stop).to_be_hidden()
    expect(view.chips.and_(lab.page.get_by_role("button", name=re.compile("stopped")))).to_have_count(2)
    notebook.done(cell)
    assert notebook.run("1 + 1").locator(".jp-OutputArea").inner_text().strip().endswith("2")
    view.node.scroll_into_view_if_needed()
    picture(lab.page, "stopped")


def test_bars_have_one_live_line_each_and_leave_no_debris(lab: Lab, picture: Picture, tmp_path: Path) -> None:
    notebook = lab.notebook(LOAD)
    gates = Gates(tmp_path)
    cell = notebook.start(BARS.format(gate=gates.source))
    view = notebook.view(cell).to_be("running")
    bars = view.node.get_by_role("group", name="Progress of each rank")
    # The slowest rank is in the header, with the time left; below it each rank, one bar within the other.
    expect(view.header).to_contain_text(re.compile(r"epochs 1/3 · .* left"))
    expect(bars.get_by_text(re.compile(r"^epochs 1/3 · .* left"))).to_have_count(2)
    expect(bars.get_by_text(re.compile(r"^epoch 1 1\d/20 · .* left · loss=0\.0"))).to_have_count(2)
    picture(lab.page, "bars")
    expect(view.rows.filter(has_text="epoch")).to_have_count(0)
    gates.open("epoch 1")
    expect(bars.get_by_text(re.compile(r"^bytes 21/40"))).to_have_count(2)
    picture(lab.page, "bars-of-rich")
    gates.open("half of rich")
    view.to_be("succeeded")
    view.to_show("all done")
    shown = ["epochs: 100%", "half of it", "files", "bytes", "", "100%", "all done"]
    expect(view.rank(1).rows).to_have_text([re.compile(rf"^\d*{text}") for text in shown])
    notebook.done(cell)
    notebook.save()
    saved = notebook.file.read_text()
    assert "all done" in saved
    assert not re.search(r"\d/20\b", saved), "a bar that was drawn over"


def test_the_rank_that_failed_is_named_with_its_line(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    cell = notebook.start(FAILS)
    view = notebook.view(cell).to_be("failed")
    expect(view.failure).to_contain_text("Rank 2 failed first")
    expect(view.failure).to_contain_text("ValueError: bad <b>batch</b> of rank 2")
    expect(view.failure).to_contain_text('raise ValueError("bad <b>batch</b> of rank 2")')
    expect(view.failure.locator("b", has_text=re.compile("^batch$"))).to_have_count(0)
    expect(view.chips.nth(2)).to_have_accessible_name(re.compile("^Rank 2, failed"))
    view.to_show("before the end")
    # Above the fold of the view: the cause comes before metrics and logs.
    cause, logs = view.failure.bounding_box(), view.logs.bounding_box()
    assert cause
    assert logs
    assert cause["y"] < logs["y"]
    view.node.scroll_into_view_if_needed()
    picture(lab.page, "failed")


@pytest.mark.parametrize(
    ("cell", "most"),
    [
        ('%%distribute -np 2\nimport time\ntime.sleep(0.3)\nprint("hello")', 0),
        (STEPS.format(loop="range(20)"), 2),
        (STEPS.format(loop="tqdm(range(20))"), 3),
    ],
    ids=["one line", "steps", "steps with a bar"],
)
def test_the_height_of_a_view_rarely_changes(lab: Lab, cell: str, most: int) -> None:
    notebook = lab.notebook(LOAD)
    lab.page.evaluate(_HEIGHTS)
    notebook.distribute(cell).to_be("succeeded")
    # What comes late would be drawn by then: the browser draws between two of these.
    lab.page.evaluate("() => new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))")
    heights = lab.page.evaluate("() => window.jpdHeights")
    assert heights
    changes = [after for before, after in itertools.pairwise(heights) if after != before]
    assert len(changes) <= most, heights


def test_hostile_output_is_text(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    view = notebook.distribute(HOSTILE).to_be("succeeded")
    view.to_show("<script>window.jpdWasHere = 1</script> & <img src=x", "the last line", "red plain link")
    expect(view.rows.filter(has_text="broken")).to_contain_text("broken \ufffd\ufffd utf-8")
    expect(view.rows.filter(has_text="long xxx")).to_contain_text("more characters")
    assert len(view.rows.filter(has_text="long xxx").inner_text()) < 50_000
    expect(view.rows.filter(has_text="done 100%")).not_to_contain_text("50%")
    assert view.node.locator("script, img, a[href^='javascript']").count() == 0
    assert lab.page.evaluate("() => window.jpdWasHere") is None
    assert "hijacked" not in lab.page.title()
    red = view.rows.get_by_text("red", exact=True)
    assert red.evaluate("node => getComputedStyle(node).color") != view.rows.first.evaluate(
        "node => getComputedStyle(node).color"
    )
    picture(lab.page, "hostile")


def test_a_long_log_is_searched_copied_and_downloaded(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    view = notebook.distribute(
        "%%distribute -np 1\n"
        "for i in range(50_000):\n"
        "    print('line', i, 'needle' if i % 5000 == 77 else 'hay')"
    ).to_be("succeeded")
    view.to_show("line 49999 hay")
    assert view.rows.count() < 500
    search = view.logs.get_by_role("searchbox")
    search.fill("needle")
    hits = view.logs.locator("output")
    expect(hits).to_have_text("10")
    view.logs.get_by_role("button", name="Next hit").click()
    expect(hits).to_have_text("1/10")
    view.to_show("line 77 needle")
    search.press("Enter")
    expect(hits).to_have_text("2/10")
    view.to_show("line 5077 needle")
    picture(lab.page, "search")
    # Not at the end any more, and one press goes there.
    view.logs.get_by_role("button", name="To the end").click()
    view.to_show("line 49999 hay")
    with lab.page.expect_download() as download:
        view.logs.get_by_role("button", name="Download the whole log").click()
    saved = Path(download.value.path()).read_text()
    assert saved.count("\n") == 50_000
    assert saved.endswith("line 49999 hay\n")


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun: apt-get install openmpi-bin")
def test_what_a_launcher_says(lab: Lab, picture: Picture) -> None:
    notebook = lab.notebook(LOAD)
    view = notebook.distribute("%%distribute --backend mpi -np 2\nprint('of a rank')").to_be("succeeded")
    expect(view.logs.get_by_role("tab", name="Launcher")).to_be_visible()
    view.to_show("of a rank")
    # It ends before any rank is there: its own words are all there is.
    view = notebook.distribute("%%distribute --backend mpi -np 2 --mpi-args '--no-such-option 1'\n1")
    view.to_be("failed")
    expect(view.failure).to_contain_text("The run failed")
    expect(view.failure).to_contain_text("no-such-option")
    view.failure.get_by_role("button", name="Show the launcher’s log").click()
    view.to_show(re.compile("no-such-option"))
    view.node.scroll_into_view_if_needed()
    picture(lab.page, "launcher")


def test_new_lines_do_not_move_what_is_read(lab: Lab, tmp_path: Path) -> None:
    notebook = lab.notebook(LOAD)
    gates = Gates(tmp_path)
    code = ENDLESS.replace("import itertools", f"{gates.source}\nimport itertools")
    code = code.replace("    print", '    if tick == 45: gate("tick 45")\n    print')
    view = notebook.distribute(code).to_be("running")
    last = view.rows.filter(has_text=re.compile(r"tick 44$"))

    def of_both() -> bool:
        labels = "".join(text.partition("]")[0] for text in last.all_inner_texts())
        return "0" in labels and "1" in labels

    # A line that arrives in the frame of the wheel moves its end, so the ranks wait.
    wait_until(of_both, "the last line of both ranks")
    scrolled = view.log.get_by_role("log")
    scrolled.hover()
    lab.page.mouse.wheel(0, -10_000)
    view.to_show(re.compile(r"tick 0$"))
    expect(scrolled).to_have_js_property("scrollTop", 0)
    gates.open("tick 45")
    news = view.logs.get_by_role("button", name=re.compile(r"\d+ new lines?"))
    expect(news).to_be_visible()
    before = int(news.inner_text().split()[0])
    wait_until(lambda: int(news.inner_text().split()[0]) > before + 5)
    assert scrolled.evaluate("node => node.scrollTop") == 0
    news.click()
    view.to_show(re.compile(r"tick (?:[6-9]\d|\d{3})"))
    view.stop.click()
    view.to_end()
