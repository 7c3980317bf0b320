"""Results as HTML and in answers, media of `dist.log`: what is shown of them, bounded and harmless."""

from __future__ import annotations

import base64
import io
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist import queries
from jupyter_dist.record.outputs import result_outlines
from jupyter_dist.showing.run import Run
from jupyter_dist.text.safe_html import safe_html
from jupyter_dist.worker.output.result_outline import outline
from tests.rigs.run_maker import RunMaker

pytestmark = pytest.mark.usefixtures("warm")

np = pytest.importorskip("numpy")


def returned(*values: Any) -> Run:
    """A run whose ranks returned these, each on its own rank."""

    def give(values: tuple[Any, ...]) -> Any:
        return values[jupyter_dist.rank()]

    return jupyter_dist.run(give, values, np=len(values))


def texts(html: str) -> list[str]:
    """The rows of the tables, or what else there is, as text."""
    rows = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in rows]


@pytest.mark.needs("pandas", "PIL")
def test_dicts_stand_in_a_table_and_arrays_frames_and_pictures_are_shown(own_folders: Path) -> None:
    import pandas
    from PIL import Image

    picture = np.linspace(0, 1, 3 * 20 * 30, dtype="float32").reshape(3, 20, 30)
    run = returned(
        {"loss": 0.5, "acc": {"val": float("nan")}, "host": "<script>a</script>", "same": True},
        {"loss": 0.25, "acc": {"val": np.float32(0.5)}, "only": 3},
        "alone",
        picture,
        np.array([1.0, np.inf, 3.0]),
        pandas.DataFrame({"word": ["<img src=x onerror=alert(1)>"]}),
        ["x" * 100] * 10_000,
        None,
    )
    html = run.results._repr_html_()
    assert texts(html)[:6] == [
        *("rank loss acc/val host same only result", "0 0.5 nan &lt;script&gt;a&lt;/script&gt; True"),
        *("1 0.25 0.5 3", "2 alone"),
        *("mean 0.375 nan 3", "min 0.25 0.5 3"),
    ]
    assert "<script" not in html
    assert "ndarray 3 × 20 × 30 float32, 0 to 1, mean 0.5" in html
    assert "ndarray 3 float64, 1 to 3, mean 2, 1 not finite" in html
    assert "&lt;img src=x" in html
    assert len(html) < 20_000
    (source,) = re.findall(r'src="data:image/png;base64,([^"]*)"', html)
    with Image.open(io.BytesIO(base64.b64decode(source))) as opened:
        assert opened.size == (30, 20)
        assert np.abs(np.asarray(opened) / 255 - picture.transpose(1, 2, 0)).max() < 0.003
    answers = queries.results(run.folder.id)
    assert answers[0]["cells"][1] == {"name": "acc/val", "text": "nan", "number": None}
    assert answers[1]["cells"][0] == {"name": "loss", "text": "", "number": 0.25}
    assert [bool(answer.get("array")) for answer in answers] == [False] * 3 + [True] * 2 + [False] * 3
    assert "cells" not in answers[7], "a table of None would say nothing"


def test_ranks_without_a_result_say_why(own_folders: Path) -> None:
    def fail() -> float:
        if jupyter_dist.rank():
            raise ValueError("no luck")
        return 1.5

    with pytest.raises(jupyter_dist.errors.RunFailed) as caught:
        jupyter_dist.run(fail, np=2)
    assert caught.value.run is not None
    html = caught.value.run.results._repr_html_()
    assert "no result, it failed" in html


def test_what_ranks_make_up_is_checked(own_folders: Path) -> None:
    hostile: list[Any] = [
        *(None, 5, [], {}, {"cells": 5}, {"cells": []}, {"cells": [5]}, {"cells": [{}]}, {"array": None}),
        *({"array": {"type": "a", "shape": "no", "dtype": ""}}, {"array": {"type": "t", "dtype": "f"}}),
    ]
    assert [result_outlines.checked(one) for one in hostile] == [None] * len(hostile)
    made = RunMaker(own_folders, 1)
    cells = [{"name": "\x1b[2J" + "n" * 999, "number": 10**400, "text": "t" * 999}] * 70
    made.event(0, "result", repr="r", bytes=1, error=None, outline={"cells": cells})
    made.end()
    told = queries.results(made.folder.id)[0]["cells"]
    assert (len(told), told[0]["name"][:3], len(told[0]["text"])) == (64, "nnn", 200)
    assert len(Run(made.folder).results._repr_html_()) < 30_000


def test_outlines_of_odd_values() -> None:
    class Trap:
        shape = (2, 2)
        dtype = "float32"

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no data here")

    assert outline(Trap()) == {"array": {"type": "Trap", "shape": [2, 2], "dtype": "float32"}}

    class Lazy:
        @property
        def columns(self) -> Any:
            raise RuntimeError("read only if somebody asks for it")

        shape, dtype = (2, 2), "float32"

    assert outline(Lazy()) is None
    itself: dict[str, Any] = {}
    itself["again"] = itself
    assert outline(itself) is None
    assert outline({"f": print}) is None
    assert outline("two\nlines") is None
    assert outline(dict.fromkeys(range(100))) is None
    assert outline((1, "a")) == {"cells": [{"name": "0", "number": 1}, {"name": "1", "text": "a"}]}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("<b onclick=x>a</b><script>b</script><style>c</style>", "<b>a</b>"),
        (
            "<table><tr><td colspan=2 style='x'>1 &lt; 2",
            '<table><tr><td colspan="2">1 &lt; 2</td></tr></table>',
        ),
        ("<a href='javascript:x'>t</a><img src=x onerror=y><svg><script>1</script></svg>", "<a>t</a>"),
        ("</div></td>x<iframe>y", "x"),
        ("<p>" + "x" * 999, "<p>" + "x" * 97 + "…</p>"),
    ],
)
def test_of_html_only_what_cannot_act_is_kept(given: str, kept: str) -> None:
    assert safe_html(given, 100) == kept


def test_logged_media_come_back(own_folders: Path) -> None:
    def log() -> None:
        import numpy as np

        import jupyter_dist as dist

        red = np.zeros((8, 9, 3), dtype="uint8")
        red[..., 0] = 255
        for step in range(3):
            dist.log(loss=0.5, image={"red": red}, text=f"at {step}", step=step)
        dist.log(photo=red / 255.0, histogram=[1, 2, 2, float("nan")], table={"a": [1, 2]}, step=9)
        dist.log(text="later", step=9)

    run = jupyter_dist.run(log, np=2)
    assert run.media.names == ["red", "text", "photo", "histogram", "table"]
    assert [(one.step, one.rank) for one in run.media.of("red")] == [(s, r) for s in range(3) for r in (0, 1)]
    (item,) = run.media.of("red", step=1, rank=1)
    data = item.data["image/png"]
    start = data.index(b"IDAT") + 4
    assert zlib.decompress(data[start:-16])[:4] == b"\0\xff\0\0"
    (text,) = run.media.of("text", step=9, rank=0)
    assert text.data == {"text/plain": "later"}
    (counted,) = [d for d in run.media.of("histogram", rank=0)[0].data.values() if isinstance(d, dict)]
    assert (sum(counted["counts"]), counted["low"], counted["high"], counted["special"]) == (3, 1, 2, 1)
    assert "<td>2</td>" in run.media.of("table")[0].data["text/html"]
    html = run.media._repr_html_()
    assert html.count("<img") == 4, "equal ones of both ranks are shown once"
    assert "at 2" in html
    assert "<svg" in html
    assert {one["name"]: one["count"] for one in queries.media(run.folder.id)["series"]}["red"] == 3
    # The same content lies there once.
    assert run.folder.rank(0, 0).media.stat().st_size < 2 * len(data) + 2000
    assert set(run.metrics["name"]) == {"loss"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"image": object()}, "'image' cannot be logged as image: object is not a picture"),
        ({"image": {"a": np.zeros((2, 2, 2, 2, 2))}}, "'a' cannot be logged as image: .* is not a picture"),
        ({"image": b"BM"}, "not a PNG, JPEG, GIF or WebP"),
        ({"note": "x"}, "log\\(text={'note': …}\\)"),
        ({"loss": np.zeros(5)}, "histogram={'loss': …}"),
        ({"histogram": ["a"]}, "is not an array of numbers"),
        ({"table": 5j}, "complex is not a table"),
    ],
)
def test_what_cannot_be_logged_says_what_to_write(values: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        jupyter_dist.log(values)


@pytest.mark.needs("torch", "matplotlib", "pandas", "PIL")
def test_what_libraries_make_is_taken_as_it_is() -> None:
    import pandas
    import torch
    from matplotlib.figure import Figure
    from PIL import Image

    from jupyter_dist.worker.output.logged_media import split

    figure = Figure()
    figure.subplots().plot([1, 2])
    given = {
        "figure": figure,
        "pil": Image.new("RGB", (8, 8)),
        "tensor": torch.rand(3, 16, 16, requires_grad=True),
        "frame": pandas.DataFrame({"a": [1]}),
        "image": [torch.rand(1, 8, 8).bfloat16()] * 5,
        "loss": torch.tensor(0.5),
        "text": 0.25,
    }
    numbers, media = split(given)
    assert numbers == {"loss": 0.5, "text": 0.25}
    kinds = {one.name: (one.type, sorted(one.data)[0]) for one in media}
    picture = ("image", "image/png")
    assert kinds == {
        **dict.fromkeys(("figure", "pil", "tensor", "image"), picture),
        "frame": ("table", "text/html"),
    }
