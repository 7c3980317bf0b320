"""How it looks: nothing overlaps, and nothing is cut off.

The checks are of boxes on the page. The pictures are for people: set JUPYTER_DIST_PICTURES to keep them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from jupyter_dist.job import State
from tests.rigs.run_maker import RunMaker

from .pages import LOAD, Lab
from .server import JupyterServer

Picture = Callable[[Page, str], Path]
SIDEBAR_PX = 280
CLUSTERS = """[clusters.laptop]
backend = "local"
np = 2

[clusters.gpu-box-with-a-long-name]
backend = "local"
np = 8
gpus_per_worker = 1
"""
# Text that is cut by its own box, and boxes that leave the panel or lie over each other.
_CUT = """root => {
  const box = root.getBoundingClientRect();
  const found = [];
  for (const node of root.querySelectorAll('*')) {
    const own = [...node.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    const style = getComputedStyle(node);
    const rect = node.getBoundingClientRect();
    if (!rect.width || style.visibility === 'hidden' || node.closest('[hidden], .jpd-sr, .jpd-log-body')) {
      continue;
    }
    const cut = own && node.scrollWidth > node.clientWidth + 1 && node.clientWidth
      && style.display !== 'inline' && style.textOverflow !== 'ellipsis';
    if (cut || (own && (rect.left < box.left - 1 || rect.right > box.right + 1))) {
      found.push(`${node.tagName}.${node.className}: ${node.textContent.trim().slice(0, 60)}`);
    }
  }
  return found;
}"""
_OVERLAPS = """root => {
  // What is scrolled out of sight lies over nothing.
  const seen = node => {
    let { left, top, right, bottom } = node.getBoundingClientRect();
    for (let at = node.parentElement; at && root.contains(at); at = at.parentElement) {
      if (getComputedStyle(at).overflowY !== 'visible') {
        const box = at.getBoundingClientRect();
        [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
        [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
      }
    }
    return { left, top, right, bottom };
  };
  const nodes = [...root.querySelectorAll('button, input, select, b, h4, header span')]
    .filter(n => n.offsetParent && !n.closest('.jpd-log-body, .jpd-tip, .u-over'))
    .map(n => [n, seen(n)]).filter(([, r]) => r.right > r.left && r.bottom > r.top);
  const found = [];
  nodes.forEach(([a, ra], i) => nodes.slice(i + 1).forEach(([b, rb]) => {
    const x = Math.min(ra.right, rb.right) - Math.max(ra.left, rb.left);
    const y = Math.min(ra.bottom, rb.bottom) - Math.max(ra.top, rb.top);
    if (x > 1 && y > 1 && !a.contains(b) && !b.contains(a)) {
      found.push(`${a.tagName} ${a.textContent.slice(0, 30)} / ${b.tagName} ${b.textContent.slice(0, 30)}`);
    }
  }));
  return found;
}"""


# Parts of a header that have a row for themselves, although they are short.
_ALONE = """header => {
  const rows = '.jpd-state, .jpd-name, .jpd-facts, .jpd-elapsed';
  const boxes = [...header.querySelectorAll(rows)].map(node => [node, node.getBoundingClientRect()]);
  const beside = (a, b) => Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  return boxes
    .filter(([node, box]) => !boxes.some(([other, its]) => other !== node && beside(box, its)))
    .map(([node]) => node.textContent);
}"""


def well_laid_out(part: Locator) -> None:
    """Check that no text leaves its place and no control lies over another one."""
    expect(part).to_be_visible()
    assert part.evaluate(_CUT) == []
    assert part.evaluate(_OVERLAPS) == []


def make_runs(root: Path) -> dict[str, RunMaker]:
    """Runs as they stand after some work: of 64 ranks and of one, going on, failed, stalled, lost."""
    now = time.time()
    made = {}
    for number, (label, size, notebook) in enumerate(
        [
            ("In[3]", 2, "quickstart.ipynb"),
            ("fine-tune on everything", 64, "work/a folder/fine-tuning of the large model.ipynb"),
            ("In[12]", 8, "imagenet.ipynb"),
            ("In[7]", 4, "imagenet.ipynb"),
            ("In[4]", 1, "quickstart.ipynb"),
            ("sweep", 64, "imagenet.ipynb"),
            ("hosts", 64, "imagenet.ipynb"),
            ("no-such-host", 2, "imagenet.ipynb"),
        ]
    ):
        made[label] = RunMaker(root, size, label=label, notebook=notebook, began=now - 4000 + 600 * number)
    made["In[3]"].end(after_s=25)
    big = made["fine-tune on everything"]
    for rank in range(64):
        for step in range(0, 300, 10):
            big.metric(
                rank,
                step,
                {"loss": 2 / (1 + step / 40) + (rank % 7) / 60, "accuracy": 1 - 1 / (1 + step / 30)},
            )
        big.print(rank, f"rank {rank}: epoch 1 done\nsaved\n", now)
    big.end(after_s=1830)
    broken = made["In[12]"]
    source = "        raise ValueError('labels do not fit')"
    frames = [
        {"file": "In[12]", "label": "In[12]", "line": 9, "function": "<module>", "source": "train(epochs=3)"},
        {"file": "In[12]", "label": "In[12]", "line": 5, "function": "train", "source": source},
    ]
    text = "Traceback (most recent call last):\n  In[12]:9\nValueError: labels do not fit\n"
    broken.print(3, "loading\n", now)
    broken.fail(3, "ValueError", "labels do not fit", text, when=now - 2700, frames=frames)
    for rank in (0, 1, 2, 4, 5, 6, 7):
        broken.fail(rank, "RuntimeError", "connection closed by peer", "", when=now - 2699, collateral=True)
    broken.end(State.FAILED, after_s=100, reason="rank 3 failed: ValueError: labels do not fit")
    made["In[7]"].end(State.STOPPED, after_s=12)
    alone = made["In[4]"]
    for step in range(60):
        alone.metric(0, step, {"loss": 1 / (1 + step / 5)})
        alone.print(0, f"step {step}: loss {1 / (1 + step / 5):.3f}\n", now)
    alone.end(after_s=61)
    going = made["sweep"]
    for rank in range(64):
        going.event(rank, "progress", now, id=0, n=40 + rank % 9, total=120, desc="epoch")
        for step in range(30):
            going.metric(rank, step, {"loss": 1 / (1 + step / 9) + (rank % 5) / 40})
        going.print(rank, f"rank {rank} is at step 30\n", now)
    hosts = made["hosts"]
    for rank in range(64):
        hosts.set_rank(rank, host=f"gpu-node-{rank // 8:02}")
        hosts.print(rank, f"rank {rank} is at step 30\n", now)
        hosts.metric(rank, 0, {"loss": 1.0})
        hosts.metric(rank, 1, {"loss": 0.8})
    hosts.write(reason="host gpu-node-03 has not answered since 12:04:10; trying again for 60 s")
    for host in range(8):
        (hosts.folder.path / "attempts" / "0" / f"launcher-gpu-node-{host:02}.log").write_text("started\n")
    hosts.folder.files.mkdir()
    (hosts.folder.files / "timeline.json").write_bytes(bytes(2_340_000))
    unknown = made["no-such-host"]
    text = "ssh: Could not resolve hostname gpu-node-99: Name or service not known\n"
    (unknown.folder.path / "attempts" / "0" / "launcher.log").write_text(text)
    unknown.end(State.STOPPED, after_s=3)
    unknown.write(state=State.FAILED, reason=f"horovodrun ended with exit code 1: {text.strip()}")
    return made


@pytest.mark.parametrize("themed", ["JupyterLab Light", "JupyterLab Dark"], indirect=True)
def test_every_part_is_well_laid_out(
    themed: Lab,
    server: JupyterServer,
    own_folders: Path,
    picture: Picture,
) -> None:
    lab = themed
    theme = "dark" if "Dark" in str(lab.page.evaluate("() => document.body.dataset.jpThemeName")) else "light"
    server.clusters.parent.mkdir(parents=True, exist_ok=True)
    server.clusters.write_text(CLUSTERS)
    made = make_runs(own_folders)
    notebook = lab.notebook(LOAD)
    sidebar = lab.sidebar()
    sidebar.set_width(SIDEBAR_PX)
    sidebar.clusters.page.get_by_role("button", name="Refresh").first.click()
    expect(sidebar.card("laptop")).to_be_visible()
    expect(sidebar.rows).to_have_count(len(made))
    sidebar.card("laptop").get_by_role("button").first.click()
    expect(sidebar.card("laptop")).to_contain_text("in use")
    well_laid_out(sidebar.node)
    picture(lab.page, f"sidebar-{theme}")
    for name, label in (
        ("64", "fine-tune on everything"),
        ("64-going", "sweep"),
        ("1", "In[4]"),
        ("hosts", "hosts"),
        ("unexplained", "no-such-host"),
        ("failed", "In[12]"),
    ):
        run = made[label].folder.id
        sidebar.rows.get_by_role("button", name=label).first.click()
        view = lab.tab(run)
        expect(view.node).to_be_visible()
        if label == "In[12]":
            expect(view.failure).to_contain_text("Rank 3 failed first")
        elif label == "no-such-host":
            expect(view.failure).to_contain_text("Could not resolve hostname gpu-node-99")
            view.failure.get_by_role("button", name="Show the launcher’s log").click()
        else:
            expect(view.metrics.locator("canvas").first).to_be_visible()
        expect(view.rows.first).to_be_visible()
        well_laid_out(view.node)
        picture(lab.page, f"run-{name}-{theme}")
        # What a newcomer looks for is in sight without scrolling.
        if label in ("sweep", "hosts"):
            expect(view.stop).to_be_in_viewport()
        if label == "hosts":
            expect(view.header).to_contain_text("Host gpu-node-03 has not answered since 12:04:10")
            expect(
                view.node.get_by_role("group", name="Host gpu-node-07").get_by_role("button")
            ).to_have_count(8)
            lab.page.set_viewport_size({"width": 660, "height": 800})
            well_laid_out(view.node)
            picture(lab.page, f"run-{name}-narrow-{theme}")
            lab.page.set_viewport_size({"width": 1280, "height": 800})
        if label == "In[12]":
            expect(view.failure).to_be_in_viewport()
    sidebar.choose("gpu-box-with-a-long-name", "Edit…")
    well_laid_out(sidebar.form)
    picture(lab.page, f"form-{theme}")
    sidebar.form.get_by_role("button", name="Cancel").click()
    lab.page.set_viewport_size({"width": 800, "height": 800})
    narrow = lab.tab(made["In[12]"].folder.id)
    well_laid_out(narrow.node)
    assert narrow.header.evaluate(_ALONE) == []
    picture(lab.page, f"narrow-{theme}")
    lab.page.set_viewport_size({"width": 1280, "height": 800})
    assert notebook.path


@pytest.mark.parametrize("themed", ["JupyterLab Light", "JupyterLab Dark"], indirect=True)
def test_forms_of_clusters(themed: Lab, picture: Picture, request: pytest.FixtureRequest) -> None:
    """The forms with the most options, at first, with something folded open, and with a search."""
    lab, page = themed, themed.page
    theme = "dark" if "Dark" in request.node.name else "light"
    lab.notebook(LOAD)
    sidebar = lab.sidebar()
    try:
        for width in (1280, 900):
            page.set_viewport_size({"width": width, "height": 800})
            for backend, said in (
                ("horovod", {"Workers": "8", "Hosts": "node1:4,node2:4"}),
                ("sagemaker", {}),
            ):
                sidebar.choose(backend, "New Cluster…")
                form = sidebar.form
                form.get_by_label("Name", exact=True).fill("vision")
                for label, text in said.items():
                    form.get_by_label(label, exact=True).fill(text)
                expect(form.get_by_label("The form as a line")).to_contain_text(f"--backend {backend}")
                if said:
                    line = "%%distribute --backend horovod -np 8 -H node1:4,node2:4"
                    expect(form.get_by_label("The form as a line")).to_have_text(line)
                    assert form.get_by_role("textbox").count() == 6, "the name, and five fields that matter"
                picture(page, f"form-{backend}-{theme}-{width}")
                assert form.evaluate(_CUT) == []
                assert form.evaluate(_OVERLAPS) == []
                form.get_by_label("Search options").fill("timeout" if said else "spot")
                picture(page, f"form-{backend}-search-{theme}-{width}")
                form.get_by_label("Search options").fill("")
                form.locator("summary").first.click()
                form.locator("summary").last.scroll_into_view_if_needed()
                picture(page, f"form-{backend}-sections-{theme}-{width}")
                form.get_by_role("button", name="Cancel").click()
    finally:
        page.set_viewport_size({"width": 1280, "height": 800})
