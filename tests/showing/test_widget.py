"""The kernel's side of the widget: asked over a comm, telling where it cannot be heard, saved at the end."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist import __version__, queries
from jupyter_dist.conformance.deadlines import Deadline, wait_until
from jupyter_dist.errors import DistError, RunNotFound
from jupyter_dist.job import State
from jupyter_dist.queries.snapshot import snapshot
from jupyter_dist.showing import downloads, frontends
from tests.rigs.gates import Gates
from tests.rigs.run_maker import BEGAN, RunMaker

VIEW = "application/vnd.jupyter.widget-view+json"
STATIC = """
from pathlib import Path
from jupyter_dist.showing import widget
widget._STATIC = Path({folder!r})
"""
MADE = """
import sys
sys.path.insert(0, {tests!r})
from tests.rigs.run_maker import RunMaker
def made():
    run = RunMaker(widget.Path({runs!r}), 1)
    run.end()
    return run.folder
"""
COUNT = """%%distribute -np 2
import time
import jupyter_dist as dist
dist.barrier()
for i in range({steps}):
    dist.log(loss=1 / (i + 1), step=i)
    print("line", i)
    time.sleep(0.02)
"""


class FrontEnd:
    """A front-end with widgets, as far as the kernel can tell: it runs the probe, asks and watches."""

    def __init__(self, kernel: Any, folder: Path, *, subshell: bool, view: str | None = None) -> None:
        (folder / "widget.js").write_text("export default { render() {} };")
        (folder / "widget.css").write_text(".jpd-run {}")
        self.kernel = kernel
        self.states: dict[str, dict[str, Any]] = {}
        self.custom: list[dict[str, Any]] = []
        self.comms: list[dict[str, Any]] = []
        self.subshell: str | None = None
        self.sends = 1
        """How often it sends each question: a view repeats one that may have been lost."""
        self._numbers = itertools.count(1)
        self._listen()
        if subshell:
            message = kernel.client.session.msg("create_subshell_request", {})
            kernel.client.control_channel.send(message)
            self.subshell = kernel.client.get_control_msg(timeout=20)["content"]["subshell_id"]
        kernel.run("%load_ext jupyter_dist")
        kernel.run(STATIC.format(folder=str(folder)))
        (self.probe,) = [comm for comm, state in self.states.items() if "hello" in state.get("_esm", "")]
        self.send(self.probe, {"kind": "hello", "view": view})
        self.until(lambda: kernel.run("widget.frontends.shows_widgets()").text.strip() == "True")

    def _listen(self) -> None:
        real = self.kernel.client.get_iopub_msg

        def get(**options: Any) -> Any:
            message = real(**options)
            self._take(message)
            return message

        self.kernel.client.get_iopub_msg = get

    def _take(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "comm_open":
            self.states[content["comm_id"]] = content["data"]["state"]
        elif message["msg_type"] == "comm_msg":
            self.comms.append(content)
            data = content["data"]
            if data["method"] == "update":
                self.states[content["comm_id"]].update(data["state"])
            elif data["method"] == "custom":
                self.custom.append({**data["content"], "buffers": message.get("buffers", [])})

    def send(self, comm: str, content: dict[str, Any]) -> None:
        data = {"comm_id": comm, "data": {"method": "custom", "content": content}}
        message = self.kernel.client.session.msg("comm_msg", data)
        if self.subshell is not None:
            message["header"]["subshell_id"] = self.subshell
        self.kernel.client.shell_channel.send(message)

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = Deadline()
        while not (found := condition()):
            if deadline.passed():
                pytest.fail(f"waited {deadline.patience_s:g} s; last messages: {self.custom[-5:]}")
            self.kernel.read(0.2)
        return found

    def widget(self, cell: Any) -> str:
        """The widget that a cell shows, as soon as it does."""
        cell.until(lambda cell: any(VIEW in bundle for bundle in cell.displays))
        return str(cell.displays[0][VIEW]["model_id"])

    def ask(self, comm: str, method: str, **args: Any) -> dict[str, Any]:
        number = next(self._numbers)
        for _ in range(self.sends):
            self.send(comm, {"kind": "ask", "ask": number, "method": method, "args": args})
        answers: Iterator[dict[str, Any]] = self.until(
            lambda: [m for m in self.custom if m["kind"] == "answer" and m["ask"] == number]
        )
        return next(iter(answers))

    def changes(self, kind: str) -> list[dict[str, Any]]:
        """What it was told of one kind."""
        return [c for m in self.custom for c in m.get("changes", []) if c["kind"] == kind]

    def snapshot(self, comm: str) -> dict[str, Any]:
        return dict(self.states[comm]["snapshot"])


@pytest.fixture
def heard(kernel: Any, tmp_path: Path) -> FrontEnd:
    """A front-end whose messages come in while a cell runs."""
    return FrontEnd(kernel, tmp_path, subshell=True)


@pytest.fixture
def unheard(kernel: Any, tmp_path: Path) -> FrontEnd:
    """A front-end of before subshells: its messages wait for the end of the cell."""
    return FrontEnd(kernel, tmp_path, subshell=False)


def test_questions_are_answered_and_stop_works_while_the_cell_blocks(kernel: Any, heard: FrontEnd) -> None:
    cell = kernel.start(COUNT.format(steps=100_000))
    comm = heard.widget(cell)
    heard.send(comm, {"kind": "watch"})
    heard.until(lambda: any(m["kind"] == "here" for m in heard.custom))
    heard.until(lambda: any(change["ranks"]["1"] > 20 for change in heard.changes("log")))
    run = heard.ask(comm, "run")["result"]
    assert (run["state"], run["world_size"]) == ("running", 2)
    page = heard.ask(comm, "log_page", rank=1, start=0, count=3)["result"]
    assert [line["text"] for line in page["lines"]] == ["line 0", "line 1", "line 2"]
    assert heard.ask(comm, "log_search", query="line 1")["result"]["count"] >= 1
    assert heard.ask(comm, "curves", points=100)["result"]["names"] == ["loss"]
    assert heard.ask(comm, "stacks")["result"]["groups"]
    assert heard.snapshot(comm) == {}, "nothing is told twice"
    assert not cell.done
    heard.ask(comm, "stop", kill=False)
    cell.finish()
    assert "RunStopped" in cell.error
    assert heard.snapshot(comm)["run"]["state"] == "stopped"


def test_changes_come_at_most_ten_times_a_second(kernel: Any, heard: FrontEnd) -> None:
    cell = kernel.start(COUNT.format(steps=150))
    comm = heard.widget(cell)
    heard.send(comm, {"kind": "watch"})
    began = time.monotonic()
    cell.finish()
    took = time.monotonic() - began
    kernel.read(0.5)
    assert 3 < len([m for m in heard.custom if m["kind"] == "changes"]) <= 10 * took + 3


def test_a_kernel_that_cannot_be_heard_tells(kernel: Any, unheard: FrontEnd, tmp_path: Path) -> None:
    gates = Gates(tmp_path)
    # A snapshot has only the last lines, so the ranks wait at the one that is looked for.
    code = COUNT.format(steps=100_000) + "    if i == 20: gate('line 20')\n"
    cell = kernel.start(code.replace("import time\n", f"import time\n{gates.source}", 1))
    comm = unheard.widget(cell)
    unheard.send(comm, {"kind": "watch"})  # waits for the end of the cell

    def lines() -> list[str]:
        return [line["text"] for line in unheard.snapshot(comm).get("log", {}).get("lines", [])]

    def both_have_logged() -> bool:
        curves = unheard.snapshot(comm).get("curves", {}).get("curves", [])
        return [len(curve["ranks"]) for curve in curves] == [2]

    unheard.until(lambda: "line 20" in lines() and both_have_logged())
    told = unheard.snapshot(comm)
    assert (told["told"], told["final"], told["run"]["state"]) == (True, False, "running")
    assert told["curves"]["curves"][0]["ranks"][1]["values"][0] == 1.0
    assert set(told["totals"]) == {"0", "1"}
    assert not [m for m in unheard.custom if m["kind"] in ("here", "changes")]
    gates.open("line 20")
    kernel.interrupt()
    cell.finish()
    unheard.until(lambda: any(m["kind"] == "here" for m in unheard.custom))
    end = unheard.snapshot(comm)
    assert (end["told"], end["final"], end["run"]["state"]) == (False, True, "stopped")


def test_a_flood_is_told_in_bounded_pieces(kernel: Any, unheard: FrontEnd) -> None:
    cell = kernel.start("%%distribute -np 2\nfor i in range(100_000):\n    print('x' * 400, i)")
    began = time.monotonic()
    cell.finish()
    took = time.monotonic() - began
    sizes = [len(json.dumps(content)) for content in unheard.comms]
    assert max(sizes) < 150_000
    assert len(sizes) <= 5 * took + 5
    assert sum(sizes) < 100_000 * took + 300_000


def test_a_detached_run_is_live_and_a_download_comes_in_pieces(
    kernel: Any, heard: FrontEnd, own_folders: Path
) -> None:
    cell = kernel.run(COUNT.format(steps=60).replace("-np 2", "-np 2 --detach"))
    comm = heard.widget(cell)
    heard.send(comm, {"kind": "watch"})
    heard.until(lambda: any(change["run"]["state"] == "succeeded" for change in heard.changes("run")))
    heard.sends = 2  # a piece that a repeated question took would be missing
    whole = b""
    while (answer := heard.ask(comm, "download", key="k", rank=0))["result"]:
        whole += b"".join(bytes(buffer) for buffer in answer["buffers"])
    assert whole == b"".join(b"line %d\n" % i for i in range(60))
    assert "no attempt 3" in heard.ask(comm, "download", key="a", rank=0, attempt=3)["error"]
    (run,) = own_folders.iterdir()
    run.joinpath("files").mkdir()
    run.joinpath("files", "timeline.json").write_bytes(b"[]")
    answer = heard.ask(comm, "download", key="f", file="timeline.json")
    assert b"".join(bytes(buffer) for buffer in answer["buffers"]) == b"[]"
    assert heard.ask(comm, "download", key="f", file="timeline.json")["result"] == 0
    assert "no launcher" in heard.ask(comm, "download", key="l", launcher="launcher")["error"]


def test_what_cannot_be_answered_is_said(kernel: Any, heard: FrontEnd, own_folders: Path) -> None:
    comm = heard.widget(kernel.run(COUNT.format(steps=1)))
    assert "not a regular expression" in heard.ask(comm, "log_search", query="(", regex=True)["error"]
    assert "has ranks 0 to 1, not 9" in heard.ask(comm, "log_page", rank=9)["error"]
    assert "error" in heard.ask(comm, "remove")
    assert "error" in heard.ask(comm, "run", id="20260101-000000-abcd")
    (run,) = own_folders.iterdir()
    run.joinpath("job.json").unlink()
    answer = heard.ask(comm, "run")
    assert answer["missing"] == str(own_folders)


def test_the_code_travels_once(kernel: Any, heard: FrontEnd) -> None:
    first, second = (heard.widget(kernel.run(COUNT.format(steps=1))) for _ in range(2))
    assert first != second
    codes = {heard.states[comm]["code"] for comm in (first, second)}
    assert len(codes) == 1
    code = heard.states[codes.pop().removeprefix("IPY_MODEL_")]
    assert code["script"] == "export default { render() {} };"
    assert code["_css"] == ".jpd-run {}"
    assert len(json.dumps(heard.states[second])) < 20_000
    again = kernel.run("_dist = __import__('jupyter_dist').attach()\n_dist")
    assert again.displays[0][VIEW]["model_id"] == second


def test_a_page_with_the_view_gets_the_code_when_nothing_waits(kernel: Any, tmp_path: Path) -> None:
    page = FrontEnd(kernel, tmp_path, subshell=True, view=__version__)
    cell = kernel.start(COUNT.format(steps=5))
    first = page.widget(cell)
    assert not page.states[first]["code"]
    assert not [state for state in page.states.values() if "script" in state]
    cell.finish()
    assert page.states[first]["code"], "a saved notebook is shown by other front-ends"


def test_the_code_is_sent_as_soon_as_another_page_lacks_it(
    kernel: Any, tmp_path: Path, own_folders: Path
) -> None:
    page = FrontEnd(kernel, tmp_path, subshell=True, view=__version__)
    kernel.run(MADE.format(tests=str(Path(__file__).parents[2]), runs=str(own_folders)))
    comm = kernel.run("print(*widget.view(made(), blocking=True).popitem()[1].values())").stdout.split()[-1]
    assert not page.states[comm]["code"]
    page.send(page.probe, {"kind": "hello", "view": "0.0.1"})
    page.until(lambda: page.states[comm]["code"])
    assert page.states[page.states[comm]["code"].removeprefix("IPY_MODEL_")]["script"]


def test_a_view_that_no_cell_waits_for_has_the_code(kernel: Any, tmp_path: Path, own_folders: Path) -> None:
    page = FrontEnd(kernel, tmp_path, subshell=True, view=__version__)
    kernel.run(MADE.format(tests=str(Path(__file__).parents[2]), runs=str(own_folders)))
    comm = kernel.run("print(*widget.view(made()).popitem()[1].values())").stdout.split()[-1]
    page.until(lambda: page.states[comm]["code"])


def test_a_hello_in_the_main_thread_is_asked_for_again(kernel: Any, tmp_path: Path) -> None:
    page = FrontEnd(kernel, tmp_path, subshell=False)
    page.until(lambda: [m for m in page.custom if m["kind"] == "again"])
    page.send(page.probe, {"kind": "hello", "again": True})
    kernel.run("1")
    assert len([m for m in page.custom if m["kind"] == "again"]) == 1


def test_widgets_that_nobody_looks_at_are_closed(kernel: Any, heard: FrontEnd, own_folders: Path) -> None:
    kernel.run(MADE.format(tests=str(Path(__file__).parents[2]), runs=str(own_folders)))
    kernel.run(
        """
import gc
def alive():
    gc.collect()
    return sum(isinstance(found, widget.RunWidget) for found in gc.get_objects())
"""
    )
    first = kernel.run("view = widget.view(made())\nfolder = made()\nprint(*view.popitem()[1].values())")
    shown = first.stdout.split()[-1]
    heard.send(shown, {"kind": "watch"})
    heard.until(lambda: any(m["kind"] == "here" for m in heard.custom))
    again = kernel.run("print(widget.view(folder).popitem()[1]['model_id'])").stdout.strip()
    cell = kernel.run("for _ in range(120): widget.view(made())\nprint(alive())")
    assert int(cell.stdout) <= 51, "fifty, and the one that somebody looks at"
    closed = [content["comm_id"] for kind, content in cell.messages if kind == "comm_close"]
    assert again in closed
    assert shown not in closed
    assert heard.ask(shown, "run")["result"]["state"] == "succeeded"
    # A closed one is made again where its run is displayed again.
    assert kernel.run("print(widget.view(folder).popitem()[1]['model_id'])").stdout.strip() != again


def test_a_download_that_was_left_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "_LEFT_S", 0.2)
    now = 100.0
    monkeypatch.setattr(downloads, "time", SimpleNamespace(monotonic=lambda: now))
    closed: list[str] = []

    def pieces(name: str) -> Iterator[bytes]:
        try:
            for number in itertools.count():
                yield b"%d" % number
        finally:
            closed.append(name)

    taken = downloads.Downloads()
    assert [taken.next("a", lambda: pieces("a")) for _ in range(3)] == [b"0", b"1", b"2"]
    now += 1.0
    wait_until(lambda: closed == ["a"], "the end of a download that nobody goes on with")
    with pytest.raises(DistError, match="start it again"):
        taken.next("a", lambda: pieces("a"))
    for name in "bcdefghijk":
        taken.next(name, partial(pieces, name))
    assert closed[:3] == ["a", "b", "c"], "eight at a time"
    taken.close()
    assert sorted(closed) == sorted("abcdefghijk")


def test_a_download_in_time_is_whole() -> None:
    taken = downloads.Downloads()
    parts = [taken.next("k", lambda: iter([b"a", b"b"])) for _ in range(3)]
    assert parts == [b"a", b"b", None]


def test_without_the_built_front_end_there_is_no_widget(kernel: Any, heard: FrontEnd, tmp_path: Path) -> None:
    (tmp_path / "widget.js").unlink()
    cell = kernel.run(COUNT.format(steps=1))
    assert VIEW not in cell.displays[0]
    assert "[0-1] line 0" in cell.displays[0]["text/plain"]


def test_without_anywidget_there_is_text(kernel: Any) -> None:
    kernel.run("import sys\nsys.modules['anywidget'] = None\n%load_ext jupyter_dist")
    kernel.run("from jupyter_dist.showing import frontends\nfrontends.heard()")
    cell = kernel.run(COUNT.format(steps=1))
    assert VIEW not in cell.displays[0]
    assert "[0-1] line 0" in cell.displays[0]["text/plain"]


# The snapshot


def test_a_snapshot_holds_what_a_view_shows(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    for rank in range(2):
        made.print(rank, "".join(f"line {n}\n" for n in range(500)), BEGAN + 1)
        for step in range(50):
            made.metric(rank, step, {"loss": 1 / (step + 1)})
        for step in range(3):
            text = {"text/plain": {"text": f"text of rank {rank} at step {step}"}}
            made.event(rank, "media", name="notes", type="text", step=step, data=text, metadata={})
    made.result(0, {"acc": 1})
    made.fail(1, "ValueError", "bad", "Traceback …\nValueError: bad\n")
    made.end(State.FAILED)
    found = snapshot(made.folder.id, lines=200, points=8000, each=200, final=True)
    assert found["run"] | {"host_time": 0} == queries.run(made.folder.id) | {"host_time": 0}
    assert found["log"]["total"] == 500
    assert [line["text"] for line in found["log"]["lines"]] == [f"line {n}" for n in range(300, 500)]
    assert found["totals"] == {"0": 500, "1": 500}
    assert [len(rank["steps"]) for rank in found["curves"]["curves"][0]["ranks"]] == [50, 50]
    assert found["errors"][0]["text"].endswith("ValueError: bad\n")
    assert found["results"][0]["repr"] == "{'acc': 1}"
    (series,), (page,) = found["media"]["list"]["series"], found["media"]["pages"]
    assert (series["name"], series["count"], series["first_step"]) == ("notes", 1, 2), "the last one"
    (logged,) = page["steps"]
    assert [(one["ranks"], one["contents"][0].get("text")) for one in logged["exhibits"]] == [
        ([0], "text of rank 0 at step 2")
    ]
    assert logged["more_ranks"] == 1


@pytest.mark.parametrize("world_size", [2, 64])
def test_a_snapshot_is_bounded(own_folders: Path, world_size: int) -> None:
    made = RunMaker(own_folders, world_size)
    for rank in range(world_size):
        made.print(rank, "".join("é" * 5000 + f" {rank} {n}\n" for n in range(20)), BEGAN + 1)
        made.event(rank, "result", repr="r" * 20_000 + str(rank), bytes=1, error=None)
        events = [
            json.dumps(
                {
                    "seq": n,
                    "time": BEGAN,
                    "kind": "metric",
                    "step": n,
                    "values": dict.fromkeys("abcdefgh", n / 7),
                }
            )
            for n in range(300)
        ]
        with made.rank(rank).events.open("a") as file:
            file.write("\n".join(events) + "\n")
        made.fail(rank, "ValueError", "m" * 50_000, "t" * 100_000)
    made.end(State.FAILED)
    found = snapshot(made.folder.id, lines=200, points=8000, each=200, final=True)
    assert len(json.dumps(found, ensure_ascii=False).encode()) < 350_000
    assert found["curves"]["names"] == list("abcdefgh")


def test_a_run_that_is_gone_has_no_snapshot(own_folders: Path) -> None:
    with pytest.raises(RunNotFound):
        snapshot("20260101-000000-abcd", lines=1, points=10, each=10, final=True)


def test_a_terminal_asks_nobody() -> None:
    assert not frontends.shows_widgets()
    assert not frontends.hears_while_busy()
