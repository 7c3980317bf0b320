"""What a cell shows of a run: one output, whatever the front-end, and text that says it all once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import run_process, wait_until
from jupyter_dist.job import State
from jupyter_dist.showing import display
from jupyter_dist.showing.run import Run
from tests.rigs.run_maker import RunMaker

RUN = "application/x-jupyter-dist-run+json"
VIEW = "application/vnd.jupyter.widget-view+json"
LOAD = "%load_ext jupyter_dist"
SLOW = """%%distribute -np 2
import time
for i in range(30):
    print(i, flush=True)
    time.sleep(.1)
"""
STUBBORN = """%%distribute -np 2
import signal, time
for ignored in (signal.SIGINT, signal.SIGTERM): signal.signal(ignored, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
GOOD = "%%distribute -np 2\nprint('<b>hello</b>')\n7"
BAD = """%%distribute -np 2
import jupyter_dist as dist
print("so far")
dist.barrier()  # both have said it before rank 0 fails and rank 1 is stopped
1 / dist.rank()
"""


def say_hello(kernel: Any, folder: Path) -> None:
    """As a front-end with widgets would, in a checkout whose own one need not be built."""
    (folder / "widget.js").write_text("export default { render() {} };")
    (folder / "widget.css").write_text("")
    kernel.run(
        "from pathlib import Path\nfrom jupyter_dist.showing import widget\n"
        "from jupyter_dist.showing import frontends\n"
        f"widget._STATIC = Path({str(folder)!r})\nfrontends.heard()"
    )


def outputs(cell: Any) -> list[str]:
    return [kind for kind, _ in cell.messages if kind in ("display_data", "execute_result")]


def test_a_run_is_one_output_with_its_id_and_its_text(kernel: Any, own_folders: Path) -> None:
    kernel.run(LOAD)
    cell = kernel.run(GOOD)
    assert outputs(cell) == ["display_data"]
    (bundle,) = cell.displays
    (run,) = own_folders.iterdir()
    assert bundle[RUN] == {"run": run.name, "root": str(own_folders), "ended": True}
    lines = bundle["text/plain"].split("\n")
    assert lines[0] == "[0-1] <b>hello</b>"
    assert sum(line.startswith(f"run {run.name} succeeded: 2 ranks") for line in lines) == 1
    # In place of the text: it has the printed lines as well.
    assert "[0-1] &lt;b&gt;hello&lt;/b&gt;" in bundle["text/html"]
    assert f"run {run.name} succeeded" in bundle["text/html"]
    # Nobody has said that widgets are shown here.
    assert VIEW not in bundle


def test_the_id_is_there_from_the_start_and_stays(kernel: Any, own_folders: Path) -> None:
    kernel.run(LOAD)
    cell = kernel.start("%%distribute -np 2\nimport time\nfor i in range(600):\n    time.sleep(.1)")
    cell.until(lambda cell: "running" in cell.text)
    kernel.interrupt()
    cell.finish()
    shown = [content["data"][RUN] for kind, content in cell.messages if kind.endswith("display_data")]
    assert len(shown) > 1
    assert all({**data, "ended": False} == shown[0] for data in shown)
    assert shown[-1]["ended"]


def test_the_result_is_kept_although_it_is_not_shown_twice(kernel: Any) -> None:
    kernel.run(LOAD)
    kernel.run(GOOD)
    assert kernel.run("_.results[1]").text.strip() == "7"
    assert kernel.run("Out[2].results[0]").text.strip() == "7"
    again = kernel.run("Out[2]")
    assert outputs(again) == ["execute_result"]
    assert again.displays[0].keys() == {RUN, "text/html", "text/plain"}
    assert kernel.run("run = Out[2]\nrun.id").text


def test_runs_from_python_are_shown_once_too(kernel: Any) -> None:
    kernel.run("import jupyter_dist\ndef f():\n    print('in f')")
    cell = kernel.run("run = jupyter_dist.run(f, np=1)\nrun")
    assert outputs(cell) == ["display_data"]
    assert cell.text.count("succeeded: 1 rank") == 1
    cell = kernel.run("jupyter_dist.run(f, np=1)\n'another result'")
    assert outputs(cell) == ["display_data", "execute_result"]
    assert cell.text.count("succeeded: 1 rank") == 1


def test_a_detached_run_is_the_result(kernel: Any) -> None:
    kernel.run(LOAD)
    cell = kernel.run(GOOD.replace("-np 2", "-np 2 --detach"))
    assert outputs(cell) == ["execute_result"]
    assert RUN in cell.displays[0]
    kernel.run("_.wait()")


def test_a_failure_is_told_by_the_output_where_there_is_no_view(kernel: Any) -> None:
    """The card is first in it. The error that follows names it, and its value has the whole report."""
    kernel.run(LOAD)
    cell = kernel.start(BAD).finish()
    assert outputs(cell) == ["display_data"]
    (bundle,) = cell.displays
    assert bundle["text/plain"].startswith("rank 0 failed first")
    for part in ("text/html", "text/plain"):
        assert "1 / dist.rank()" in bundle[part].partition("so far")[0]
    (error,) = [content for kind, content in cell.messages if kind == "error"]
    assert "rank 0 failed first" in error["traceback"][0]
    assert "1 / dist.rank()" not in "\n".join(error["traceback"])
    assert "1 / dist.rank()" in error["evalue"].partition("\n")[2]


def test_a_failure_is_told_by_the_view_where_there_is_one(kernel: Any, tmp_path: Path) -> None:
    kernel.run(LOAD)
    say_hello(kernel, tmp_path)
    cell = kernel.start(BAD).finish()
    (bundle,) = cell.displays
    assert bundle.keys() == {RUN, VIEW, "text/html", "text/plain"}
    for part in ("text/html", "text/plain"):  # what a saved notebook shows to others
        assert "so far" in bundle[part]
        assert "1 / dist.rank()" in bundle[part]
    (traceback,) = ["\n".join(content["traceback"]) for kind, content in cell.messages if kind == "error"]
    assert "rank 0 failed first" in traceback
    assert "ZeroDivisionError" in traceback
    assert "1 / dist.rank()" not in traceback
    # Asked for later, elsewhere: in full.
    later = kernel.start(
        "_dist_run = __import__('jupyter_dist').attach()\n_dist_run.raise_for_state()"
    ).finish()
    (traceback,) = ["\n".join(content["traceback"]) for kind, content in later.messages if kind == "error"]
    assert "1 / dist.rank()" in traceback


def test_a_front_end_that_shows_widgets_is_not_sent_text_all_the_time(kernel: Any, tmp_path: Path) -> None:
    kernel.run(LOAD)
    say_hello(kernel, tmp_path)
    cell = kernel.run(SLOW)
    kinds = [kind for kind, _ in cell.messages if kind.endswith("display_data")]
    assert kinds == ["display_data", "update_display_data"]
    assert "[0-1] 29" in cell.displays[0]["text/plain"]


def test_an_interrupt_is_answered_where_a_view_is_shown(
    kernel: Any, tmp_path: Path, own_folders: Path
) -> None:
    kernel.run(LOAD)
    say_hello(kernel, tmp_path)
    cell = kernel.start(STUBBORN)
    cell.until(lambda cell: cell.displays)
    (run,) = own_folders.iterdir()
    logs = [run / f"attempts/0/ranks/{rank}/output.log" for rank in range(2)]
    # An interrupt would end a rank that does not ignore it yet.
    wait_until(lambda: all(log.exists() and "up" in log.read_text() for log in logs), "both ranks")
    kernel.interrupt()
    cell.until(lambda cell: "stopping … interrupt again to kill it" in cell.stdout)
    kernel.interrupt()
    cell.finish()
    assert "RunStopped" in cell.error


def test_without_a_kernel_a_run_is_html_and_text_and_no_more(own_folders: Path) -> None:
    run = Run(RunMaker(own_folders).end())
    bundle = run._repr_mimebundle_()
    assert bundle.keys() == {"text/html", "text/plain"}
    assert bundle["text/html"] == run._repr_html_()
    with pytest.raises(NotImplementedError):
        run._ipython_display_()


def test_a_run_that_was_removed_is_one_line(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    run = Run(made.end(State.FAILED))
    made.folder.job.unlink()
    assert list(run._repr_mimebundle_()) == ["text/plain"]


def test_static_html_holds_text_as_text() -> None:
    html = display.static_html("<p>summary</p>", "\x1b[31mred\x1b[0m <script>alert(1)</script>\n")
    assert html.startswith("<p>summary</p>")  # with the cause of a failure, before what was printed
    assert "red &lt;script&gt;" in html
    assert "\x1b" not in html
    assert display.static_html("<p>summary</p>", "\n") == "<p>summary</p>"


def test_nbclient_keeps_the_text_once_and_no_widget(tmp_path: Path) -> None:
    """What papermill, nbconvert and `make demo` see."""
    # Imported here: it takes 3 s of CPU, which each worker of pytest would spend when it collects.
    import nbformat

    cells = [LOAD, GOOD, "run = _\nprint(run.state)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = tmp_path / "one.ipynb"
    nbformat.write(notebook, path)
    code = f"""
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read({str(path)!r}, as_version=4)
client = NotebookClient(notebook, timeout=100, resources={{"metadata": {{"path": {str(tmp_path)!r}}}}})
manager = client.create_kernel_manager()
manager.transport = "ipc"
manager.connection_file = {str(tmp_path / "k.json")!r}
client.execute()
nbformat.write(notebook, {str(path)!r})
"""
    run_process([sys.executable, "-c", code], check=True, stdout=None, stderr=None)
    saved = json.loads(path.read_text())
    (output,) = saved["cells"][1]["outputs"]
    assert output["output_type"] == "display_data"
    assert output["data"].keys() == {RUN, "text/html", "text/plain"}
    assert "".join(output["data"]["text/plain"]).count("succeeded: 2 ranks") == 1
    assert saved["cells"][2]["outputs"][0]["text"] == ["succeeded\n"]
    assert len(path.read_text()) < 100_000
