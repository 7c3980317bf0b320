"""What ranks show besides text: from `display` on a rank to what views and notebooks are given."""

from __future__ import annotations

import base64
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from jupyter_dist import queries
from jupyter_dist.errors import InputError
from jupyter_dist.job import State
from jupyter_dist.record.outputs import rich_output
from jupyter_dist.text.safe_html import safe_html
from jupyter_dist.worker.output import displays, events, media, mime_bundles
from jupyter_dist.worker.rank import cell
from tests.rigs.launching import ended, launch_cell
from tests.rigs.run_maker import RunMaker

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_an_image_s_bytes_and_what_is_lost(own_folders: Path) -> None:
    run = RunMaker(own_folders, 2)
    for rank in (0, 1):
        events.open_writer(str(run.rank(rank).events))
        writer = media.MediaWriter(str(run.rank(rank).events))
        assert writer.display({"image/png": base64.b64encode(PNG).decode(), "text/plain": "a picture"})
        assert writer.display({"image/png": PNG + bytes([rank])}, line=3)
        assert writer.display({"image/png": PNG}, line=3)
        assert run.rank(rank).media.stat().st_size == 2 * len(PNG) + 1  # once per content
    events.close()
    shown = queries.displays(run.folder.id)["displays"]
    assert [[one["ranks"] for one in row["exhibits"]] for row in shown] == [[[0, 1]], [[0], [1]], [[0, 1]]]
    content: Any = shown[1]["exhibits"][1]["contents"][0]
    del content["mime"]
    found = queries.content(run.folder.id, 1, mime="image/png", **content)
    assert found == (PNG + b"\x01", "image/png")
    # Whatever it is said to be: a browser is told a type that runs nothing.
    assert queries.content(run.folder.id, 1, mime="text/html", **content).content_type.startswith(
        "text/plain"
    )
    for wrong in ({"offset": 1}, {"bytes": 3}, {"hash": "0" * 64}, {"bytes": 1 << 60}, {"offset": -1}):
        with pytest.raises(InputError, match="no such content"):
            queries.content(run.folder.id, 1, mime="image/png", **{**content, **wrong})
    # A rank's host was lost before all came: what is there is shown, in its order, and the rest is said.
    with run.rank(0).media.open("r+b") as file:
        file.truncate(len(PNG) + 3)
    with run.rank(0).events.open("ab") as file:
        file.write(b'{"seq": 9, "time": 1, "kind": "display", "da')
    events.open_writer(str(run.rank(1).events)).event("display", {"data": {"image/png": {"offset": -4}}})
    events.close()
    run.end()
    kept = rich_output.standing(rich_output.read(run.rank(0)))
    assert len(kept) == 3
    assert [rich_output.decoded(run.rank(0).media, one).get("image/png") is None for one in kept] == [
        False,
        True,
        False,
    ]


def test_content_that_is_not_json_fails_no_cell_and_no_view(
    own_folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NaN in one display would make the answer with all displays invalid."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(media, "_of_rank", None)

    class Number:
        """As numpy's numbers."""

        def tolist(self) -> float:
            return 0.5

    class Scores:
        """As `IPython.display.JSON`."""

        def _repr_json_(self) -> Any:
            return {"best": Number(), "loss": float("nan"), "limits": [float("-inf"), 1]}

    class Broken:
        _repr_html_ = _repr_json_ = lambda self: object()

        def __repr__(self) -> str:
            return "<broken>"

        def _ipython_display_(self) -> None:
            raise RuntimeError("no kernel")

    class Worse:
        def _repr_mimebundle_(self, **_: Any) -> Any:
            return "no bundle"

    run = RunMaker(own_folders, 1)
    events.open_writer(str(run.rank(0).events))
    displays.display(Scores())
    displays.display(Broken())
    cell._show_last({"source": "broken"}, Broken())
    cell._show_last({"source": "worse"}, Worse())
    events.close()
    shown = queries.displays(run.folder.id)["displays"]
    text = json.dumps(shown, allow_nan=False)  # as the server answers
    assert '"json": {"best": 0.5, "loss": "NaN", "limits": ["-Infinity", 1]}' in text
    errors = capsys.readouterr().err
    assert "Broken._ipython_display_ raised RuntimeError: no kernel" in errors
    assert "application/json of a display is left out: object is not JSON" in errors
    assert "text/html of a display is left out: text/html is object, not text or bytes" in errors
    assert "the last expression cannot be shown: ValueError" in errors


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("last", "shown"), [("card\n", 1), ("card;\n", 0), ("card ; \n\n", 0)])
def test_a_semicolon_hides_the_last_expression(last: str, shown: int) -> None:
    """The source of a cell magic ends in a newline."""
    source = f"class Card:\n    def _repr_html_(self):\n        return '<b>card</b>'\ncard = Card()\n{last}"
    run = launch_cell("local", source, 1)
    assert ended(run).state is State.SUCCEEDED
    assert len(queries.displays(run.id)["displays"]) == shown


@pytest.mark.needs("matplotlib")
@pytest.mark.usefixtures("warm")
def test_a_failed_cell_shows_its_open_figures() -> None:
    run = launch_cell("local", "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nraise ValueError('no')", 1)
    assert ended(run).state is State.FAILED
    (shown,) = queries.displays(run.id)["displays"]
    assert "image/png" in [content["mime"] for content in shown["exhibits"][0]["contents"]]


def test_what_is_shown_waits_for_its_bytes(own_folders: Path) -> None:
    """An agent brings each file by itself."""
    run = RunMaker(own_folders, 1)
    events.open_writer(str(run.rank(0).events))
    writer = media.MediaWriter(str(run.rank(0).events))
    writer.display({"image/png": PNG})
    writer.display({"text/html": "<b>later</b>", "text/plain": ""})
    data = run.rank(0).media.read_bytes()
    run.rank(0).media.write_bytes(data[:10])
    watch = queries.RunChanges([run.folder.id])
    assert "displays" not in [change["kind"] for change in watch.poll()]
    assert queries.displays(run.folder.id)["displays"] == []
    run.rank(0).media.write_bytes(data)
    (change,) = watch.poll()
    assert (change["kind"], len(queries.displays(run.folder.id)["displays"])) == ("displays", 2)
    events.close()


def test_displays_stand_between_the_lines(own_folders: Path) -> None:
    """Where their text is in a rank's log and in that of all, if nothing else is said there."""
    run = RunMaker(own_folders, 2)
    shown = {"image/png": PNG, "text/plain": "<Figure>"}
    now = 1_700_000_001.0

    def show(rank: int, text: str, line: int) -> None:
        events.open_writer(str(run.rank(rank).events))
        writer = media.MediaWriter(str(run.rank(rank).events))
        at = writer.output_size()
        run.print(rank, text)
        assert writer.display(shown, at=at, text_bytes=len(text.encode()), line=line)

    def places() -> list[list[tuple[int, ...]]]:
        found = queries.displays(run.folder.id)["displays"]
        return [
            [(one["rank"], one["line"], one["lines"], one["row"], one["rows"]) for one in display["places"]]
            for display in found
        ]

    for rank in (0, 1):
        run.print(rank, "begin\n")
        show(rank, "a  b\n1  2\n", 3)  # the same of both
        show(rank, f"<Figure> #00000{rank}\n", 4)
        run.print(rank, "unfinished: ")
        show(rank, "<Figure>\n", 5)  # its line says something else as well
    run.print(0, "a  b\n")  # by other means
    show(1, "a  b\n", 6)
    assert places() == [[], [], [], []]  # the log of all ranks has none of these lines yet
    for rank in (0, 1):
        run.print(rank, "", now)
    rows = [(line.get("ranks"), line["text"]) for line in queries.log_page(run.folder.id)["lines"]]
    assert rows == [
        ([0, 1], "begin"),
        ([0, 1], "a  b"),
        ([0, 1], "1  2"),
        ([0, 1], "<Figure> (differs by rank)"),
        ([0, 1], "unfinished: <Figure>"),
        ([0, 1], "a  b"),
    ]
    expected = [
        [(0, 1, 2, 1, 2), (1, 1, 2, 1, 2)],
        [(0, 3, 1, 3, 1), (1, 3, 1, 3, 1)],
        [(0, 4, 0, 4, 0), (1, 4, 0, 4, 0)],
        [(1, 5, 1, 5, 0)],
    ]
    assert places() == expected
    run.end()
    assert places() == expected
    # Of one rank; and what was shown before anything was printed has no line to stand below.
    run = RunMaker(own_folders, 1)
    events.open_writer(str(run.rank(0).events))
    writer = media.MediaWriter(str(run.rank(0).events))
    assert writer.display(shown)
    run.print(0, "bar\rbar done\n" + "line\n" * 1000)
    assert writer.display(shown)
    show(0, "<Figure>\n", 3)
    assert places() == [[], [(0, 1000, 0, 1000, 0)], [(0, 1001, 1, 1001, 1)]]
    events.close()


def test_bounds_are_said_and_a_loop_that_draws_anew_has_none(own_folders: Path) -> None:
    run = RunMaker(own_folders, 1)
    events.open_writer(str(run.rank(0).events))
    writer = media.MediaWriter(str(run.rank(0).events))
    for number in range(50):  # 20 MB in all, 400 kB at a time
        writer.clear(wait=True)
        assert writer.display({"image/png": PNG + number.to_bytes(4, "big") * 100_000})
        assert writer.display({"text/html": f"{number}"}, display_id="bar", update=True)
    done = [writer.display({"text/html": str(number)}) for number in range(300)]
    assert (done.count(True), done[198:200]) == (199, [True, False])
    assert not writer.display({"text/html": "more"})
    (note,) = queries.run(run.folder.id)["notes"]
    assert "200 displays or 10 MB" in note
    page = queries.displays(run.folder.id, start=190)
    assert (page["total"], page["start"], len(page["displays"])) == (200, 190, 10)
    assert writer.media("image", 3, "image", {"image/png": PNG})  # of dist.log: a bound of its own
    events.close()


def test_outside_a_run_there_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    displays.display({"a": 1}, "b", display_id="x")
    displays.clear_output()
    assert capsys.readouterr().out == "{'a': 1}\n'b'\n"


def test_widgets_are_still() -> None:
    """What one sees of them, made safe where it is shown; their models end with the rank."""
    import ipywidgets as widgets

    slider = widgets.IntSlider(value=3, description="layers")
    bar = widgets.IntProgress(value=7, max=9)
    box = widgets.VBox([slider, widgets.HBox([bar, widgets.HTML("<b>half</b>")]), widgets.Label("<i>")])
    data, _ = mime_bundles.forms(box)
    assert set(data) == {"text/plain", "text/html"}
    assert re.sub(r"</?(div|span)>", "", data["text/html"]).split() == [
        *("layers", "3", "7", "/", "9", "<b>half</b>", "&lt;i&gt;")
    ]
    assert mime_bundles.forms(widgets.Image(value=PNG, format="png"))[0]["image/png"] == PNG


def test_html_in_a_notebook_s_file_is_harmless() -> None:
    table = '<table border="1"><tr><th>a &amp; b</th><td colspan="2">1 &lt; 2</td></tr></table>'
    assert safe_html(table) == table
    bad = (
        "<p onclick=x()>t<script>alert(1)</script><style>p{}</style><iframe src=//x></iframe>"
        "<img src=x onerror=y()><a href='javascript:z()'>l</a><svg onload=q()>s</svg>"
        "<form><input></form><b>open"
    )
    assert safe_html(bad) == "<p>t<a>l</a><b>open</b></p>"
    picture = '<img src="data:image/png;base64,AAAA" width="3">'
    assert safe_html(picture) == picture


@given(some.text(alphabet="<>/=\"' abimgsrcptonlde:;&#x3!-", max_size=80))
def test_html_comes_out_as_tags_that_are_known(text: str) -> None:
    found = safe_html(text)
    for tag in re.findall(r"<[^>]*>?", found):
        assert re.fullmatch(r'</?[a-z0-9]+( [a-z]+="[^"<>]*")*>', tag), (text, found)
        assert " on" not in tag.split('"')[0]
    assert safe_html(found) == found or "&amp;" in found or json.dumps(found)


def test_charts_come_as_data_that_a_front_end_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Altair's own HTML fetches its library; its widget has a model, which ends with the rank."""
    altair = types.ModuleType("altair")

    class TopLevelMixin:
        def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
            return {"text/html": "<script src='https://cdn.jsdelivr.net/…'></script>"}

        def to_json(self) -> str:
            return '{"mark": "bar"}'

    class JupyterChart:
        chart = TopLevelMixin()

    for name, value in (("SCHEMA_VERSION", "v6.1.0"), ("TopLevelMixin", TopLevelMixin)):
        setattr(altair, name, value)
    altair.JupyterChart = JupyterChart  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "altair", altair)
    for shown in (TopLevelMixin(), JupyterChart()):
        data, _ = mime_bundles.forms(shown)
        assert data["application/vnd.vegalite.v6+json"] == {"mark": "bar"}
        assert "script" in data["text/html"]
    graph_objects = pytest.importorskip("plotly.graph_objects")
    monkeypatch.setattr(
        pytest.importorskip("plotly.io").renderers, "default", "plotly_mimetype"
    )  # as on a rank
    widget = graph_objects.FigureWidget(graph_objects.Scatter(y=[1, 3, 2]))
    assert "application/vnd.plotly.v1+json" in mime_bundles.forms(widget)[0]
