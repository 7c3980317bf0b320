"""The quickstart notebook from its first cell to its last, as a newcomer sees it; the README's pictures.

To take those of the README anew:
JUPYTER_DIST_PICTURES=docs/pictures python -m pytest tests/ui/test_quickstart.py
"""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

from tests.rigs.gates import Gates

from .pages import ENDED, Lab, RunView
from .server import JupyterServer

Picture = Callable[[Page, str], Path]
ROOT = Path(__file__).parents[2]
MOVIE_PX = 960
LAST_FRAME_MS = 4000


def test_quickstart(lab: Lab, server: JupyterServer, picture: Picture, tmp_path: Path) -> None:
    gates = Gates(tmp_path)
    source = (ROOT / "notebooks" / "quickstart.ipynb").read_text()
    if "JUPYTER_DIST_PICTURES" not in os.environ:  # whose film shows each epoch as long as it takes
        source = with_gate(source, gates)
    (server.root / "quickstart.ipynb").write_text(source)
    notebook = lab.open_notebook("quickstart.ipynb")
    lab.command("application:close-other-tabs")
    sidebar = lab.sidebar()
    sidebar.set_width(280)
    number = notebook.find("%%distribute")
    notebook.select(number)
    lab.command("notebook:run-all-above")
    notebook.select(number)
    lab.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    view = notebook.view(notebook.cell(number)).to_be("running")
    notebook.select(number, "start")
    expect(view.header.get_by_role("progressbar")).to_be_visible()

    def halfway() -> None:
        picture(lab.page, "light")
        gates.open("epoch 9")

    frames = film(lab.page, view, halfway)
    view.to_be("succeeded")
    expect(view.metrics.get_by_role("figure")).to_have_count(2)
    last = re.compile("^accuracy over steps; at step 14")
    expect(view.metrics.get_by_role("img", name=last)).to_be_visible()
    expect(view.node.get_by_role("region", name="Results")).to_contain_text("weights")
    row = sidebar.rows.get_by_role("button", name=re.compile("succeeded"))
    expect(row).to_contain_text("quickstart")
    view.to_show(re.compile(r"\[1\].*epoch 14: loss"))
    notebook.select(number, "start")
    frames.append((lab.page.screenshot(), LAST_FRAME_MS))
    lab.set_theme("JupyterLab Dark")
    movie = picture(lab.page, "dark").with_name("run.webp")
    lab.set_theme("JupyterLab Light")
    save_movie(frames, movie)
    assert movie.stat().st_size < 1_000_000

    lab.command("notebook:run-all-below")
    notebook.save()
    cells = json.loads(notebook.file.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("of the test digits right" in "".join(output.get("text", "")) for output in outputs)
    # All that a saved notebook keeps of the view: which run it was, and a summary without us.
    ours = [o["data"] for o in outputs if "application/x-jupyter-dist-run+json" in o.get("data", {})]
    assert [data["application/x-jupyter-dist-run+json"]["run"] for data in ours] == [view.run]
    assert "succeeded" in "".join(ours[0]["text/html"])


def with_gate(source: str, gates: Gates) -> str:
    """The notebook whose ranks wait before the tenth epoch, so that it is seen halfway."""
    content = json.loads(source)
    (cell,) = (
        one for one in content["cells"] if any(line.startswith("def train(") for line in one["source"])
    )
    shuffle = cell["source"].index("        random.shuffle(mine)\n")
    cell["source"][shuffle:shuffle] = ["        if epoch == 9:\n", "            gate('epoch 9')\n"]
    cell["source"][:0] = gates.source.splitlines(keepends=True)
    return json.dumps(content)


def film(page: Page, view: RunView, halfway: Callable[[], object]) -> list[tuple[bytes, int]]:
    """Screenshots until the run has ended, and how many ms each is to be seen."""
    frames: list[tuple[bytes, int]] = []
    taken = False
    while not ENDED.fullmatch(view.node.get_attribute("data-state") or ""):
        began = time.monotonic()
        frame = page.screenshot()
        if not taken and re.search(r"\b(8|9|10|11|12|13)/15", view.header.inner_text()):
            halfway()
            taken = True
        frames.append((frame, round(1000 * (time.monotonic() - began))))
    assert taken, "the run was never seen halfway"
    return frames


def save_movie(frames: list[tuple[bytes, int]], path: Path) -> None:
    """An animated picture in which equal frames are one."""
    images: list[Image.Image] = []
    shown: list[int] = []
    for data, ms in frames:
        whole = Image.open(io.BytesIO(data)).convert("RGB")
        small = whole.resize((MOVIE_PX, whole.height * MOVIE_PX // whole.width), Image.Resampling.LANCZOS)
        if images and small.tobytes() == images[-1].tobytes():
            shown[-1] += ms
        else:
            images.append(small)
            shown.append(ms)
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=shown, loop=0, quality=70, method=4
    )
