"""`%%distribute`, `%dist` and `jupyter_dist.run`, in a shell of this process and in real kernels."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import jupyter_dist
from jupyter_dist import clusters, folder, magics, queries, start
from jupyter_dist.conformance.deadlines import Deadline, wait_until
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import InputError, RunFailed
from jupyter_dist.job import State
from jupyter_dist.launch import template
from jupyter_dist.manage import stop
from jupyter_dist.showing.run import Run
from tests.rigs.notebook_shell import notebook_shell
from tests.rigs.stopwatch import Stopwatch

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[InteractiveShell]:
    """A shell with the extension loaded."""
    with notebook_shell(monkeypatch, tmp_path) as opened:
        yield opened


SHOWS = r"""%%distribute -np 2
import os, signal
import jupyter_dist as dist
import matplotlib.pyplot as plt
from IPython.display import HTML, clear_output, update_display
rank = dist.rank()
print("before")
display("only text")
class Rich:
    def __init__(self, word): self.word = word
    def __repr__(self): return f"<{self.word}>"
    def _repr_html_(self): return f"<b>{self.word}</b>"
    def _repr_png_(self): raise RuntimeError("no picture today")
    def __getattr__(self, name): raise AttributeError(name)
display(Rich("gone"))
clear_output(wait=True)
display(Rich("equal"))                                          # line 17
for step in range(2):
    display(Rich(f"rank {rank}, step {step}"), display_id=f"s{step}")
update_display(Rich("changed"), display_id="s1")
handle = display(HTML("<i>one</i>"), display_id=True)
handle.update(HTML("<i>two</i>"))
plt.plot([rank, 1]); plt.show()
plt.plot([1, 1])
if rank == 1:
    display(Rich("only of rank 1"))
for step in (1, 2):
    dist.log(histogram={"weights": [1.0, 2.0, rank + step]}, step=step)
Rich(f"result {rank}")
"""


def _shown(run_id: str) -> list[tuple[str, list[tuple[list[int], str]]]]:
    """Of each display its key, and what which ranks show."""
    return [
        (one["key"], [(each["ranks"], _richest(each["contents"])) for each in one["exhibits"]])
        for one in queries.displays(run_id)["displays"]
    ]


def _richest(contents: list[Any]) -> str:
    found = {one["mime"]: one.get("text", one["mime"]) for one in contents}
    return str(found.get("text/html") or found.get("image/png") or found["text/plain"])


def run_cell(shell: InteractiveShell, code: str) -> Any:
    """The value of a cell; its error is raised."""
    with capture_output():
        done = shell.run_cell(code, store_history=True)
    done.raise_error()
    return done.result


def fails(shell: InteractiveShell, code: str, kind: type[Exception] = InputError) -> str:
    with pytest.raises(kind) as caught:
        run_cell(shell, code)
    return str(caught.value)


def tab(shell: InteractiveShell, line: str) -> list[str]:
    with provisionalcompleter():
        return [found.text for found in shell.Completer.completions(line, len(line))]


class TestInTheShell:
    def test_results_by_rank(self, shell: InteractiveShell) -> None:
        run_cell(shell, "import os\nscale = 10\ndef f(x):\n    return scale * x")
        run = run_cell(shell, "%%distribute -np 2\nf(int(os.environ['RANK']) + 1)")
        assert isinstance(run, Run)
        assert run.state is State.SUCCEEDED
        assert list(run.results) == [10, 20]
        assert run.job.label == "In[2]"
        assert run.job.source == "f(int(os.environ['RANK']) + 1)\n"

    def test_a_result_that_cannot_be_pickled_names_its_type_once(self, shell: InteractiveShell) -> None:
        run = run_cell(shell, "%%distribute -np 1\n(i for i in [1])")
        assert repr(run.results).startswith("[<rank 0: cannot pickle 'generator' object; its repr: <gen")
        run = run_cell(shell, "%%distribute -np 1\n[i for i in [1]], (i for i in [1])")
        assert "cannot pickle 'tuple': cannot pickle 'generator' object; its" in repr(run.results)

    @pytest.mark.needs("torch")
    def test_hooks_of_a_cell_leave_those_of_the_notebook(
        self, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(torch.utils.hooks.RemovableHandle, "next_id", 0)  # as in a new kernel
        run_cell(
            shell,
            "import torch\nran = []\nnet = torch.nn.Linear(2, 1)\n"
            "for _ in range(50): net.register_forward_hook(lambda *_: ran.append('notebook'))",
        )
        cell = "net.register_forward_hook(lambda *_: ran.append('cell'))\nnet(torch.ones(1, 2))\nran"
        found = run_cell(shell, f"%%distribute -np 1\n{cell}").results[0]
        assert found == ["notebook"] * 50 + ["cell"]

    def test_ranks_have_the_arguments_that_a_cell_has_set(
        self, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "argv", sys.argv)
        parse = (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--lr', type=float, default=1)\ndef main(): return parser.parse_args().lr"
        )
        run_cell(shell, parse)
        assert list(run_cell(shell, "%%distribute -np 1\nmain()").results) == [1]
        run_cell(shell, "import sys, jupyter_dist\nsys.argv = ['train.py', '--lr', '3']")
        assert list(run_cell(shell, "%%distribute -np 1\nmain()").results) == [3]
        assert list(run_cell(shell, "jupyter_dist.run(main, np=1)").results) == [3]

    def test_a_failure_raises_and_the_variable_is_set(self, shell: InteractiveShell) -> None:
        code = "%%distribute -np 1 --out r\nx = 1\nraise KeyError('nope')"
        text = fails(shell, code, RunFailed)
        assert "rank 0" in text
        assert "KeyError" in text
        assert "In[1]" in text
        assert "raise KeyError('nope')" in text
        assert shell.user_ns["r"].state is State.FAILED

    def test_a_crash_shows_its_line(self, shell: InteractiveShell) -> None:
        text = fails(shell, "%%distribute -np 1\nimport ctypes\nctypes.string_at(0)", RunFailed)
        assert "Fatal Python error: Segmentation fault\n  In[1], line 3, in <module>\n" in text
        assert "worker" not in text

    def test_the_error_is_shown_without_our_frames(self, shell: InteractiveShell) -> None:
        with capture_output() as shown:
            shell.run_cell("%%distribute -np 0\n1")
        text = re.sub(r"\x1b\[[0-9;]*m", "", shown.stdout + shown.stderr)
        assert text.strip() == "InputError: -np needs a whole number of at least 1, got '0'"

    def test_out(self, shell: InteractiveShell) -> None:
        run = run_cell(shell, "%%distribute -np 1 --out r\n7")
        assert shell.user_ns["r"] is run
        assert run.results[0] == 7

    def test_notebook_variables_in_the_line(self, shell: InteractiveShell) -> None:
        run_cell(shell, "n = 1; word = \"it's a 'word' {n}\"")
        run = run_cell(
            shell,
            "%%distribute -np {n} --env WORD=$word --metric 'm=m{n}([0-9]{1})'\nimport os\n"
            "os.environ['WORD']",
        )
        assert run.results[0] == "it's a 'word' {n}"
        assert run.job.metrics == {"m": "m{n}([0-9]{1})"}
        assert run.job.env_names == ("WORD",)

    def test_env_is_for_the_ranks_and_not_for_the_disk(self, shell: InteractiveShell) -> None:
        run = run_cell(shell, "%%distribute -np 1 --env TOKEN=s3cr3t\nimport os; len(os.environ['TOKEN'])")
        assert run.results[0] == 6
        wait_until(run.folder.environment.exists, "the last file of a run, which a thread writes")
        for path in run.folder.path.rglob("*"):
            if path.is_file():
                assert b"s3cr3t" not in path.read_bytes(), path
        assert "TOKEN" not in os.environ

    def test_detach_and_the_commands_that_mean_it(self, shell: InteractiveShell) -> None:
        run = run_cell(shell, "%%distribute -np 1 --detach --out r\nimport time; time.sleep(600)")
        assert not run.state.ended
        assert shell.user_ns["r"] is run
        assert run_cell(shell, "%dist stop") == f"{run.id} stopped"
        assert run.state is State.STOPPED

    def test_dry_run_starts_nothing(self, shell: InteractiveShell, own_folders: Path) -> None:
        run_cell(shell, "data = [1, 2, 3]")
        shown = run_cell(shell, "%%distribute -np 3 --dry-run\nlen(data)")
        assert (shown["np"], shown["payload"]["names"]) == (3, ["data"])
        assert not own_folders.exists()

    def test_help(self, shell: InteractiveShell, own_folders: Path) -> None:
        text = str(run_cell(shell, "%%distribute --help\n1"))
        assert text.startswith("usage: %%distribute [flags]")
        assert "--out VAR" in text
        assert "flags of the backend 'local'" in text
        assert str(run_cell(shell, "%distribute --help")) == text  # `%%` cannot be without a cell below
        assert str(run_cell(shell, "%dist")).startswith("usage: %dist COMMAND")
        assert not own_folders.exists()

    def test_what_is_wrong_with_a_line_or_a_cell(self, shell: InteractiveShell, own_folders: Path) -> None:
        assert "%distribute --session CODE" in fails(shell, "%distribute print(1)")
        assert "does not accept the word 'x'" in fails(shell, "%%distribute x\n1")
        for cell in ("\n", "  \n\n", "# only\n  # comments"):
            assert fails(shell, f"%%distribute\n{cell}\n").startswith("the cell is empty")
        assert "a quote is not closed" in fails(shell, "%%distribute --env 'A=1\n1")
        assert "did you mean --gpus-per-worker?" in fails(shell, "%%distribute --gpus 2\n1")
        assert "Write %%distribute, with two %, in the first line of a cell" in fails(
            shell, "%distribute -np 2"
        )
        assert not own_folders.exists()

    def test_tab(self, shell: InteractiveShell) -> None:
        clusters.add(clusters.Cluster("box", "torchrun"))
        clusters.add(clusters.Cluster("boat", "local"))
        run = run_cell(shell, "%%distribute -np 1\n1")
        wanted: dict[str, list[str]] = {
            "%%distribute --ba": ["--backend"],
            "%%distribute -n": ["-np", "-n"],
            "%%distribute -n 2 --hos": ["--hosts", "--hostfile"],
            "x = 1\n%%distribute --backend s": ["sagemaker", "spark", "ssh"],
            "%%distribute --backend=s": ["sagemaker", "spark", "ssh"],
            "%%distribute --backend torchrun --nno": ["--nnodes"],
            "%%distribute --backend tor --gp": [],
            "%%distribute --cluster b": ["box", "boat"],
            "%%distribute --cluster box --nno": ["--nnodes"],
            "%%distribute --ship-modules ": ["auto", "none"],
            "%%distribute --detach --det": [],
            "%dist st": ["stop", "stacks"],
            "%dist logs ": [run.id],
            "%dist logs --t": ["--tail"],
            "%dist clusters ": ["list", "add", "show", "rm"],
            "%dist use b": ["box", "boat"],
        }
        assert {line: tab(shell, line) for line in wanted} == wanted
        clusters.path().write_text("broken")
        assert tab(shell, "%%distribute --cluster box") == []

    def test_a_cluster(self, shell: InteractiveShell) -> None:
        run_cell(shell, "%dist clusters add one -np 1 --env A=b")
        run = run_cell(shell, "%%distribute --cluster one\nimport os; os.environ['A']")
        assert list(run.results) == ["b"]
        run_cell(shell, "%dist use one")
        run = run_cell(shell, "%%distribute -np 2\nimport os; os.environ['A']")
        assert list(run.results) == ["b", "b"]

    def test_more_workers_than_cores_is_a_warning(self, shell: InteractiveShell) -> None:
        count = len(os.sched_getaffinity(0)) + 1
        with capture_output() as shown:
            done = shell.run_cell(f"%%distribute -np {count} --detach --out r\nimport time; time.sleep(600)")
        done.raise_error()
        assert f"warning: {count} workers share {count - 1} CPU cores" in shown.stderr
        assert not shell.user_ns["r"].state.ended
        assert stop.stop(shell.user_ns["r"].folder, kill=True, wait_s=15.0) is State.STOPPED

    def test_a_large_payload_is_announced(self, shell: InteractiveShell) -> None:
        run_cell(shell, "data = bytes(2_000_000)")
        with capture_output() as shown:
            shell.run_cell("%%distribute -np 1\nlen(data)").raise_error()
        assert "note: jupyter-dist sends 2 MB with the cell" in shown.stderr

    def test_the_notebook_is_known(
        self, shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = tmp_path / "it's\nthere"
        there.mkdir()
        (there / "n.ipynb").write_text("{}")
        (there / "mine.py").write_text("WORD = 'mine'\n")
        monkeypatch.setenv("JPY_SESSION_NAME", str(there / "n.ipynb"))
        origin = start.origin_in(shell)
        assert (origin.notebook, origin.directory) == (str(there / "n.ipynb"), there)
        monkeypatch.setenv("JPY_SESSION_NAME", str(there / "renamed.ipynb"))
        assert start.origin_in(shell).directory == tmp_path
        shell.user_ns["__vsc_ipynb_file__"] = str(there / "n.ipynb")
        assert start.origin_in(shell).notebook == str(there / "n.ipynb")
        monkeypatch.syspath_prepend(there)
        run = run_cell(shell, "%%distribute -np 1\nimport mine; mine.WORD, mine.__file__")
        assert run.results[0] == ("mine", str(run.folder.modules / "mine.py"))
        assert run.job.notebook == str(there / "n.ipynb")

    def test_earlier_cells_have_their_names_in_tracebacks(self, shell: InteractiveShell) -> None:
        run_cell(shell, "def broken():\n    return 1 / 0")
        text = fails(shell, "%%distribute -np 1\nbroken()", RunFailed)
        assert "In[1]" in text
        assert "return 1 / 0" in text
        assert "In[2]" in text
        quoted = "try:\n    broken()\nexcept ZeroDivisionError:\n    import traceback\n"
        text = fails(
            shell, f"%%distribute -np 1\n{quoted}    raise RuntimeError(traceback.format_exc())", RunFailed
        )
        assert '"In[1]", line 2, in broken' in text
        assert "ipython-input" not in text

    def test_what_a_notebook_displays_a_rank_prints(self, shell: InteractiveShell) -> None:
        run = run_cell(shell, "%%distribute -np 1\ndisplay([1], 'x', display_id=True)")
        assert run.log(0) == "[1]\n'x'\n"

    @pytest.mark.needs("matplotlib")
    def test_a_cell_that_shows_things_on_two_ranks(self, shell: InteractiveShell) -> None:
        run = run_cell(shell, SHOWS)
        told = _shown(run.id)
        picture = "image/png"
        assert told == [
            ("17/0", [([0, 1], "<b>equal</b>")]),
            ("19/0", [([0], "<b>rank 0, step 0</b>"), ([1], "<b>rank 1, step 0</b>")]),
            ("19/1", [([0, 1], "<b>changed</b>")]),
            ("21/0", [([0, 1], "<i>two</i>")]),
            ("23/0", [([0], picture), ([1], picture)]),
            ("26/0", [([1], "<b>only of rank 1</b>")]),
            ("None/0", [([0, 1], picture)]),
            ("result/0", [([0], "<b>result 0</b>"), ([1], "<b>result 1</b>")]),
        ]
        # Text stands in the log for each, as in a terminal; what a method raises is told there.
        log = run.log(0)
        lines = [line for line in log.splitlines() if not line.startswith("Rich._repr_png_")]
        assert [line.partition(" #")[0] for line in lines[:4]] == [
            "before",
            "'only text'",
            "<gone>",
            "<equal>",
        ]
        assert lines[3] in run.log(1).splitlines(), "the digits of what is equal are equal"
        assert "Rich._repr_png_ raised RuntimeError: no picture today" in log
        assert log.count("<Figure size") == 2
        # The file of a notebook has the first rank's of those that differ.
        kept = run._repr_html_()
        assert "<b>equal</b>" in kept
        assert kept.count('src="data:image/png;base64,') == 2
        assert "<b>rank 0, step 0</b>" in kept
        assert "rank 1, step 0" not in kept
        # In the order in which it came, with lines of text between, and no text that says the same.
        order = [
            "before",
            "&lt;gone&gt;",
            "<b>equal</b>",
            "<b>rank 0, step 0</b>",
            "image/png",
            "<b>result 0</b>",
        ]
        assert sorted(order, key=kept.index) == order
        assert "&lt;equal&gt;" not in kept
        assert "weights</b> · step 2" in kept, "the last of what was logged"
        assert "step 1</div>" not in kept
        assert [repr(found) for found in run.results] == ["<result 0>", "<result 1>"]

    def test_loading_twice_and_unloading(self, shell: InteractiveShell) -> None:
        def ours() -> int:
            callbacks = shell.events.callbacks["post_run_cell"]
            return sum(type(found).__module__ == magics.__name__ for found in callbacks)

        assert ours() == 1
        jupyter_dist.load_ipython_extension(shell)
        assert ours() == 1
        jupyter_dist.unload_ipython_extension(shell)
        assert ours() == 0
        assert "distribute" not in shell.magics_manager.magics["cell"]
        assert shell.Completer.custom_matchers == []
        assert "dist" not in shell.magics_manager.magics["line"]
        jupyter_dist.unload_ipython_extension(shell)
        jupyter_dist.load_ipython_extension(shell)
        assert ours() == 1
        assert str(run_cell(shell, "%dist")).startswith("usage")

    def test_preloading_sees_each_cell_and_never_breaks_one(
        self, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = []

        def observe(namespace: dict[str, Any]) -> None:
            seen.append("math" in namespace)
            raise RuntimeError("broken")

        monkeypatch.setattr(template, "observe", observe)
        with capture_output() as shown:
            shell.run_cell("import math").raise_error()
        assert seen == [True]
        assert shown.stderr == ""


def double(x: int, *, plus: int = 0) -> int:
    return 2 * x + plus


class TestCall:
    def test_results(self, shell: InteractiveShell) -> None:
        with capture_output():
            run = jupyter_dist.run(double, 4, np=2, plus=1)
        assert list(run.results) == [9, 9]
        assert run.job.source == "double"

    def test_without_a_shell(self) -> None:
        run = jupyter_dist.run(double, 4, np=1, detach=True, env={"A": "b"}, timeout="10m")
        assert wait_for_end(run).results[0] == 8
        assert run.job.timeout_s == 600
        again = jupyter_dist.attach(run.id)
        assert (again.id, again.results[0]) == (run.id, 8)
        assert jupyter_dist.attach().id == run.id

    def test_a_failure_raises(self) -> None:
        with pytest.raises(RunFailed, match="unsupported operand") as caught:
            jupyter_dist.run(double, None, np=1)
        assert caught.value.run is not None
        assert caught.value.run.state is State.FAILED

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"np": 0}, "np needs a whole number of at least 1, got 0"),
            ({"np": "abc"}, "np needs a whole number of at least 1, got 'abc'"),
            ({"backend": "nope"}, "no backend 'nope'"),
            (
                {"options": {"gpu_per_worker": 1}},
                "'gpu_per_worker' is not an option here; did you mean 'gpus_per_worker'?",
            ),
            (
                {"options": {"np": 1}},
                "'np' is not an option of a backend. Pass it to run() as a keyword: np=",
            ),
            ({"env": {"a b": "c"}}, "env needs NAME=VALUE with a name of letters"),
            ({"metrics": {"x": "("}}, "metric 'x': '(' is not a regular expression"),
            ({"timeout": -1}, "timeout needs a time above 0"),
            ({"hosts": "a:2"}, "hosts cannot be used with the backend 'local'"),
            ({"npp": 2}, "double(): got an unexpected keyword argument 'npp'"),
            (
                {"backend": "local", "gpus_per_worker": 1},
                "double(): got an unexpected keyword argument 'gpus_per_worker'. 'gpus_per_worker' is an "
                "option of the backend 'local'. Write options={'gpus_per_worker': …}",
            ),
        ],
    )
    def test_bad_arguments(self, arguments: dict[str, Any], expected: str, own_folders: Path) -> None:
        with pytest.raises(InputError) as caught:
            jupyter_dist.run(double, 1, **arguments)
        assert str(caught.value).startswith(expected)
        assert not own_folders.exists()

    def test_what_is_no_function(self) -> None:
        with pytest.raises(InputError, match="run needs a function to call, got int"):
            jupyter_dist.run(3)  # type: ignore[arg-type]

    def test_a_cluster_sets_what_the_call_does_not(self) -> None:
        clusters.add(clusters.Cluster("one", "local", {"np": 1, "timeout": 90.0}))
        run = jupyter_dist.run(double, 1, cluster="one", detach=True)
        assert (run.job.world_size, run.job.timeout_s) == (1, 90)
        wait_for_end(run)


SLEEPER = (
    "%%distribute -np 2 --out r\nimport signal, time\n{before}\n"
    "print('ITS RANK RUNS', flush=True)\ntime.sleep(600)\n"
)


class TestInAKernel:
    """What depends on a real one: interrupts, what is shown, what outlives it."""

    @pytest.fixture(autouse=True)
    def loaded(self, kernel: Any) -> None:
        kernel.run("%load_ext jupyter_dist")

    def test_a_cell(self, kernel: Any) -> None:
        kernel.run("import os")
        cell = kernel.run("%%distribute -np 2\nprint('rank', os.environ['RANK'])\nos.environ['RANK'] * 3")
        assert "rank 0" in cell.text
        assert "rank 1" in cell.text
        assert "'111'" in kernel.run("_.results[1]").text

    def test_interrupt_once_stops(self, kernel: Any) -> None:
        cell = kernel.start(SLEEPER.format(before=""))
        cell.until(lambda c: "ITS RANK RUNS" in c.text)
        kernel.interrupt()
        cell.finish()
        assert cell.error is not None
        assert cell.error.startswith("RunStopped")
        assert "stopped" in kernel.run("print(r.state)").text

    def test_interrupt_twice_kills(self, kernel: Any) -> None:
        ignoring = "for ignored in (signal.SIGINT, signal.SIGTERM): signal.signal(ignored, signal.SIG_IGN)"
        cell = kernel.start(SLEEPER.format(before=ignoring))
        cell.until(lambda c: "ITS RANK RUNS" in c.text)
        kernel.interrupt()
        cell.until(lambda c: "stopping" in c.text)
        assert not cell.done
        kernel.interrupt()
        watch = Stopwatch()
        cell.finish()
        assert watch.under(4), "the second interrupt did not kill it"
        assert "stopped" in kernel.run("print(r.state)").text

    def test_detach_then_attach_from_another_kernel(
        self, kernel: Any, start_kernel: Callable[[], Any], own_folders: Path
    ) -> None:
        code = SLEEPER.format(before="").replace("--out r", "--detach").replace("600", "3")
        kernel.run(code)
        (run,) = folder.runs()
        kernel.kill()
        other = start_kernel()
        other.run("%load_ext jupyter_dist")
        cell = other.start("r = %dist attach")
        cell.until(lambda c: "ITS RANK RUNS" in c.text)
        cell.finish()
        assert cell.error is None
        assert f"{run.id} succeeded" in other.run("print(r.id, r.state)").text

    def test_interrupting_attach_leaves_the_run(self, kernel: Any) -> None:
        kernel.run(SLEEPER.format(before="").replace("--out r", "--detach --out r"))
        cell = kernel.start("%dist attach")
        # A line may be seen before the supervisor, which is another process, has written that ranks run.
        cell.until(lambda c: "ITS RANK RUNS" in c.text and "2 running" in c.text)
        kernel.interrupt()
        cell.finish()
        assert cell.error is None
        assert "running" in kernel.run("print(r.state)").text
        assert "stopped" in kernel.run("%dist stop --kill").text

    def test_stacks(self, kernel: Any) -> None:
        kernel.run("%%distribute -np 2 --detach\nimport time\ndef waiting():\n    time.sleep(600)\nwaiting()")
        deadline = Deadline()
        while "waiting" not in (text := kernel.run("%dist stacks").text):
            assert not deadline.passed(), text
        kernel.run("%dist stop --kill")

    def test_preloading_costs_nothing_when_nothing_changed(self, kernel: Any) -> None:
        kernel.run(
            "import os, json, re, sys, jupyter_dist\n"
            "hook = [f for f in get_ipython().events.callbacks['post_run_cell']"
            " if type(f).__module__ == 'jupyter_dist.magics'][0]\n"
            "def calls(variables):\n"
            "    count = 0\n"
            "    def profile(frame, what, of):\n"
            "        nonlocal count\n"
            "        count += what in ('call', 'c_call')\n"
            "    for i in range(variables): globals()[f'v{i}'] = [i]\n"
            "    hook()\n"
            "    sys.setprofile(profile)\n"
            "    hook()\n"
            "    sys.setprofile(None)\n"
            "    return count"
        )
        few, many = map(int, kernel.run("print(calls(10), calls(310))").stdout.split())
        # Per variable a look at what it is; nothing is sent or read.
        assert many - few <= 300 * 10
        assert few < 2000
