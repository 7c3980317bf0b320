"""`%dist` and `jupyter dist`: what each command shows, and the terminal's exit status."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist import backends, clusters, folder
from jupyter_dist.commands import dispatch, main
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.deadlines import output_of, run_process, wait_for_exit
from jupyter_dist.errors import InputError, MissingEngine, RunFailed, RunNotFound
from jupyter_dist.job import State
from jupyter_dist.record import reader, run_list
from jupyter_dist.start import last_run
from jupyter_dist.text.table import Message, Table
from tests.rigs.run_maker import RunMaker
from tests.rigs.stopwatch import Stopwatch

NOTEBOOK = Context()
TERMINAL = Context(terminal=True)


@pytest.fixture(autouse=True)
def no_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_run, "_last_run_id", None)
    monkeypatch.setattr(clusters, "_used", None)


def terminal(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_process([sys.executable, "-m", "jupyter_dist", *words], cwd=cwd)


def _raise(error: Exception) -> Any:
    raise error


class TestTheTree:
    @pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
    def test_help_lists_the_commands(self, words: list[str]) -> None:
        text = str(dispatch(words, TERMINAL))
        for name in (
            "run",
            "runs",
            "stop",
            "logs",
            "attach",
            "rm",
            "backends",
            "clusters",
            "use",
            "stacks",
            "ray",
        ):
            assert re.search(rf"^  {name}  +\w", text, re.MULTILINE), name
        assert "\n  run " not in str(dispatch("", NOTEBOOK))

    @pytest.mark.parametrize(
        "words",
        [
            "runs --help",
            "stop -h",
            "logs --help",
            "attach --help",
            "rm x --help",
            "backends --help",
            "clusters add --help",
            "use --help",
            "stacks --help",
            "run --help",
        ],
    )
    def test_each_command_has_help(self, words: str) -> None:
        text = str(dispatch(words, TERMINAL))
        assert text.startswith(f"usage: jupyter dist {words.split()[0]}")
        assert len(text.splitlines()) > 2

    @pytest.mark.parametrize("words", ["logs", "clusters", "clusters add", "debug"])
    def test_help_is_a_command_too(self, words: str) -> None:
        assert str(dispatch(f"help {words}", NOTEBOOK)) == str(dispatch(f"{words} --help", NOTEBOOK))

    def test_help_of_run_has_the_flags_of_the_backend(self) -> None:
        text = str(dispatch("run --help", TERMINAL))
        assert "-np, --num-proc, -n, --np N" in text
        assert "flags of the backend 'local':\n  --gpus-per-worker N" in text
        assert "--out" not in text
        assert "`jupyter dist backends` lists all backends" in " ".join(text.split())

    @pytest.mark.parametrize("own", ["-h", "--help", "--width 3 -h 2"])
    def test_a_scripts_own_help_is_no_help_of_run(self, own: str) -> None:
        with pytest.raises(InputError, match=r"cannot read 'nowhere/train\.py'"):
            dispatch(f"run -np 2 nowhere/train.py {own}", TERMINAL)
        assert str(dispatch("run -np 2 -h nowhere/train.py", TERMINAL)).startswith("usage: jupyter dist run")

    def test_help_of_run_has_the_flags_of_another_backend_its_own_before_those_of_hosts(self) -> None:
        text = str(dispatch("run --backend ssh --help", TERMINAL))
        assert "flags of the backend 'ssh':" in text
        assert text.index("  --gpus-per-worker") < text.index("  --remote-dir")

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("stp", "%dist has no command 'stp'; did you mean 'stop'?"),
            ("'../x'", "%dist has no command '../x'; there are: runs"),
            ("run x.py", "`run` works only in a terminal. Write `%%distribute` in the first line"),
            ("runs x", "runs does not accept the argument 'x'. Remove it"),
            ("runs --al", "unknown flag '--al'; did you mean --all?"),
            ("logs --rank x", "--rank needs ranks such as 3 or 0-3,7, got 'x'"),
            ("logs --rank 3-1", "--rank needs ranks such as 3 or 0-3,7, got '3-1'"),
            ("logs --tail 0", "--tail needs a whole number of at least 1, got '0'"),
            ("rm", "rm needs one of: ids, --older-than TIME, --all-ended"),
            ("rm x --all-ended", "rm needs one of"),
            ("rm --older-than x", "--older-than needs a time such as"),
            ("clusters ad x", "%dist clusters has no command 'ad'; did you mean 'add'?"),
            ("clusters add", "clusters add needs one NAME"),
            ("clusters add a b", "clusters add needs one NAME, got 'a b'"),
            ("clusters add '../a'", "'../a' cannot be the name of a cluster"),
            ("clusters add a -np 0", "-np needs a whole number of at least 1, got '0'"),
            ("clusters add a --detach", "unknown flag '--detach'"),
            ("clusters rm", "rm needs NAME"),
            ("use a --none", "use accepts a NAME or --none, but not both"),
            ("use nope", "no cluster 'nope'"),
            ("'", 'cannot read "\'": a quote is not closed'),
        ],
    )
    def test_each_mistake_has_one_clear_message(self, words: str, expected: str) -> None:
        with pytest.raises(InputError) as caught:
            dispatch(words, NOTEBOOK)
        assert str(caught.value).startswith(expected)
        assert "\n" not in str(caught.value)

    def test_notebook_variables(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.print(0, "hello\n")
        assert dispatch("logs $x", NOTEBOOK, lambda text: text.replace("$x", run.folder.id)) == "[0] hello"


class TestRuns:
    def test_none(self) -> None:
        table = dispatch("runs", NOTEBOOK)
        assert repr(table) == "there are no runs yet"
        assert table._repr_html_() == "<p>there are no runs yet</p>"

    def test_what_is_shown(self, own_folders: Path) -> None:
        run = RunMaker(own_folders, began=time.time() - 7200, notebook="/n/<b>&.ipynb", label="In[3]")
        run.end(after_s=65)
        table = dispatch("runs", NOTEBOOK)
        heading, row = repr(table).splitlines()
        assert heading.split() == ["id", "state", "backend", "np", "age", "took", "from", "on", "disk"]
        assert re.split("  +", row)[:7] == [
            run.folder.id,
            "succeeded",
            "local",
            "2",
            "2 h",
            "1 min 5 s",
            "/n/<b>&.ipynb In[3]",
        ]
        assert re.search(r"[\d.]+ kB$", row)
        assert "&lt;b&gt;&amp;" in table._repr_html_()
        assert "<b>" not in table._repr_html_()
        assert table.data[0].id == run.folder.id

    def test_control_characters_do_not_reach_the_terminal(self, own_folders: Path) -> None:
        RunMaker(own_folders, notebook="a\x1b[31m\nb\r.ipynb")
        shown = repr(dispatch("runs", TERMINAL))
        assert "\x1b" not in shown
        assert len(shown.splitlines()) == 2

    def test_the_newest_twenty_or_all(self, own_folders: Path) -> None:
        for number in range(22):
            made = RunMaker(own_folders, 1).folder.path
            made.rename(made.with_name(f"20261120-1200{number:02d}-abcd"))
        rows = dispatch("runs", NOTEBOOK).data
        assert len(rows) == 20
        assert rows[0].id == "20261120-120021-abcd"
        assert len(dispatch("runs --all", NOTEBOOK)) == 22

    def test_json(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        (row,) = json.loads(dispatch("runs --json", TERMINAL))
        assert (row["id"], row["state"], row["world_size"]) == (run.folder.id, "running", 2)

    def test_size_counts_each_file_and_follows_no_link(self, tmp_path: Path) -> None:
        inside, outside = tmp_path / "in" / "deep", tmp_path / "out"
        inside.mkdir(parents=True)
        outside.mkdir()
        (outside / "big").write_bytes(os.urandom(1 << 20))
        (inside / "small").write_bytes(os.urandom(1 << 16))
        (inside / "link").symlink_to(outside)
        assert 1 << 16 <= run_list.disk_bytes(tmp_path / "in") < 1 << 18


class TestLogs:
    def test_by_time_with_ranks(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.print(0, "a\n", when=10.0)
        run.print(1, "b\n", when=11.0)
        run.print(0, "\x1b[31mc\x1b[0m\x1b]0;title\x07\n", when=12.0)
        run.end()
        assert dispatch("logs", NOTEBOOK) == "[0] a\n[1] b\n[0] c"
        assert dispatch(f"logs {run.folder.id} --rank 1", NOTEBOOK) == "b"
        assert dispatch("logs --rank 0-1", NOTEBOOK) == "[0] a\n[1] b\n[0] c"
        assert dispatch("logs --rank 1,0 --tail 1", NOTEBOOK) == "… 2 lines before\n[0] c"
        assert dispatch("logs --tail 1", NOTEBOOK) == "… 2 lines before\n[0] c"

    def test_a_notebook_shows_a_bounded_part(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.print(0, "".join(f"{i}\n" for i in range(5000)))
        text = dispatch("logs", NOTEBOOK)
        assert text.startswith("… 4,800 lines before\n[0] 4800\n")
        assert text.endswith("[0] 4999")

    def test_the_terminal_shows_all(self, own_folders: Path, capfd: pytest.CaptureFixture[str]) -> None:
        run = RunMaker(own_folders)
        run.print(0, "".join(f"{i}\n" for i in range(5000)))
        assert dispatch("logs --rank 0", TERMINAL) is None
        assert capfd.readouterr().out.split() == [str(i) for i in range(5000)]

    def test_a_rank_that_is_not_there(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        with pytest.raises(InputError, match=f"run {run.folder.id} has ranks 0 to 1, not 2"):
            dispatch("logs --rank 0-9", NOTEBOOK)

    def test_nothing(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        assert dispatch("logs", NOTEBOOK) == "nothing was printed yet"
        run.end()
        assert dispatch("logs", NOTEBOOK) == "nothing was printed"

    def test_follow_goes_on_to_the_end(self, own_folders: Path, wait_for: Callable[..., Any]) -> None:
        run = RunMaker(own_folders)
        run.print(0, "first\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_dist", "logs", "--follow", "--rank", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        run.print(0, "second\n")
        assert process.stdout.readline() == "second\n"
        assert process.poll() is None
        run.print(0, "last")
        run.end()
        assert process.stdout.read() == "last\n"
        assert wait_for_exit(process) == 0
        process.stdout.close()

    def test_a_reader_that_leaves_is_no_error(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.print(0, "x" * 80 + "\n" + "".join(f"{i}\n" for i in range(200_000)))
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_dist", "logs"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert wait_for_exit(process) == 1
        process.stderr.close()


class TestWhichRun:
    def test_no_run_at_all(self) -> None:
        for words in ("logs", "attach", "stop", "stacks"):
            with pytest.raises(RunNotFound, match="no run"):
                dispatch(words, NOTEBOOK)

    def test_an_id_that_is_not_there(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        for words in ("logs", "attach", "stop", "stacks", "rm"):
            with pytest.raises(RunNotFound, match=f"no run '20200101-000000-abcd'.*{run.folder.id}"):
                dispatch(f"{words} 20200101-000000-abcd", NOTEBOOK)

    @pytest.mark.parametrize("name", ["../x", "a'b", 'a"b', "a\nb", "/etc", "..", ".", "", "*", "\x1b[31m"])
    def test_ids_that_can_be_none(self, name: str, own_folders: Path) -> None:
        RunMaker(own_folders)
        (own_folders.parent / "x").mkdir()
        (own_folders.parent / "x" / "job.json").write_text("{}")
        for word in ("logs", "attach", "stop", "stacks", "rm"):
            with pytest.raises(RunNotFound, match="no run ") as caught:
                dispatch([word, name], NOTEBOOK)
            assert "\n" not in str(caught.value)
            assert "\x1b" not in str(caught.value)
        assert (own_folders.parent / "x" / "job.json").exists()

    def test_the_only_running_one(self, own_folders: Path) -> None:
        ended, running = RunMaker(own_folders), RunMaker(own_folders)
        ended.end()
        assert run_list.choose(None, running=True).id == running.folder.id
        other = RunMaker(own_folders)
        with pytest.raises(InputError, match=r"2 runs are running\. Name one of them: "):
            run_list.choose(None, running=True)
        assert run_list.choose(None, running=True, last=other.folder.id).id == other.folder.id
        other.end()
        assert run_list.choose(None, running=True, last=other.folder.id).id == running.folder.id

    def test_this_kernels_last_one_before_the_newest(self, own_folders: Path) -> None:
        first, second = RunMaker(own_folders), RunMaker(own_folders)
        newest = next(folder.runs()).id
        older = ({first.folder.id, second.folder.id} - {newest}).pop()
        assert run_list.choose(None).id == newest
        assert run_list.choose(None, last=older).id == older


class TestRemove:
    def test_ids(self, own_folders: Path) -> None:
        first, second = RunMaker(own_folders), RunMaker(own_folders)
        for run in (first, second):
            run.print(0, "x" * 100_000)
            run.end()
        text = dispatch(f"rm {first.folder.id} {first.folder.id}", NOTEBOOK)
        assert re.fullmatch(r"removed 1 run, 1\d\d kB freed", text)
        assert not first.folder.path.exists()
        assert second.folder.path.exists()

    def test_a_running_one_is_kept_and_so_are_the_others(self, own_folders: Path) -> None:
        ended, running = RunMaker(own_folders), RunMaker(own_folders)
        ended.end()
        with pytest.raises(
            InputError, match=f"^Run {running.folder.id} has not ended. First run `%dist stop"
        ):
            dispatch(f"rm {ended.folder.id} {running.folder.id}", NOTEBOOK)
        assert ended.folder.path.exists()
        assert running.folder.path.exists()

    def test_by_age_and_all(self, own_folders: Path) -> None:
        old = RunMaker(own_folders, began=time.time() - 40 * 86400)
        new, running = RunMaker(own_folders, began=time.time() - 60), RunMaker(own_folders)
        old.end()
        new.end()
        assert dispatch("rm --older-than 30d", NOTEBOOK).startswith("removed 1 run, ")
        assert [f.id for f in (old.folder, new.folder, running.folder) if f.path.exists()] == [
            new.folder.id,
            running.folder.id,
        ]
        assert dispatch("rm --all-ended", NOTEBOOK).startswith("removed 1 run, ")
        assert dispatch("rm --all-ended", NOTEBOOK) == "no run to remove"
        assert running.folder.path.exists()

    def test_a_link_is_not_followed(self, own_folders: Path, tmp_path: Path) -> None:
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "file").write_text("x")
        run = RunMaker(own_folders)
        run.end()
        (run.folder.path / "link").symlink_to(precious)
        dispatch(f"rm {run.folder.id}", NOTEBOOK)
        assert (precious / "file").exists()
        assert not run.folder.path.exists()


class TestClusters:
    def test_add_list_show_use_remove(self) -> None:
        assert repr(dispatch("clusters", NOTEBOOK)).startswith("No cluster is saved")
        assert (
            dispatch("clusters add box --backend local -np 3 --gpus-per-worker 0 --timeout 2h", NOTEBOOK)
            == "Saved. Use it with %%distribute --cluster box"
        )
        assert dispatch("clusters show box", NOTEBOOK) == (
            'backend = "local"\nnp = 3\ngpus_per_worker = 0\ntimeout = "2h"'
        )
        with pytest.raises(InputError, match="A cluster 'box' already exists"):
            dispatch("clusters add box -np 4", NOTEBOOK)
        with pytest.raises(InputError, match=r"TOKEN looks like a secret\. .* as in --env TOKEN=\$variable"):
            dispatch("clusters add box -np 4 --env TOKEN=s3cr3t --replace", NOTEBOOK)
        dispatch("clusters add box -np 4 --env MODE=fast --replace", NOTEBOOK)
        assert clusters.get("box").options == {"np": 4, "env": {"MODE": "fast"}}
        assert dispatch("use box", NOTEBOOK) == "this notebook uses the cluster 'box'"
        table = dispatch("clusters list", NOTEBOOK)
        assert re.split("  +", repr(table).splitlines()[1]) == ["box", "local", "np = 4, env = {…}", "in use"]
        assert dispatch("use", NOTEBOOK) == "this notebook uses the cluster 'box'"
        assert dispatch("use --none", NOTEBOOK) == "this notebook uses no cluster"
        assert dispatch("clusters rm box", NOTEBOOK) == "removed box"
        assert clusters.load() == {}

    def test_a_broken_one_is_listed_with_what_is_wrong(self) -> None:
        path = clusters.path()
        path.parent.mkdir(parents=True)
        path.write_text('[clusters.a]\nbackend = "nope"\n[clusters.b]\nbackend = "local"\n')
        rows = dispatch("clusters", NOTEBOOK).rows
        assert rows[0][0] == "a"
        assert "no backend 'nope'" in rows[0][3]
        assert rows[1] == ("b", "local", "", "")

    def test_use_belongs_to_a_kernel(self) -> None:
        with pytest.raises(InputError, match="In a terminal, write `jupyter dist run --cluster NAME SCRIPT`"):
            dispatch("use box", TERMINAL)


def test_backends() -> None:
    table = dispatch("backends", NOTEBOOK)
    assert ("local", "ready") in [row[:2] for row in table.rows]
    assert "cores" in repr(table)


def test_a_backend_without_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: object, world_size: int, options: object) -> None:
        raise MissingEngine("pip install it" if options else "")

    monkeypatch.setattr(backends.declared("torchrun"), "check", check)
    rows = dispatch("backends", NOTEBOOK).rows
    assert ("torchrun", "not installed", "pip install it") in rows
    assert ("local", "ready") in [row[:2] for row in rows]


def test_values_of_commands_show_as_text() -> None:
    assert repr(Message("it's\nso")) == "it's\nso"
    assert repr(Table(["a", "b"], [["1", "2"], ["333", ""]])) == "a    b\n1    2\n333"


class TestTerminal:
    """In a process of its own: exit status, and nothing but our message on stderr."""

    def test_bad_input_is_2(self, own_folders: Path) -> None:
        done = terminal("run", "-np", "abc", "x.py")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "jupyter dist: -np needs a whole number of at least 1, got 'abc'\n"
        done = terminal("logs", "nope")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("jupyter dist: no run 'nope' in ")
        done = terminal("run", "--cluster", "nope", "x.py")
        assert "`jupyter dist clusters add NAME …`" in done.stderr
        assert not own_folders.exists()

    @pytest.mark.parametrize(
        ("content", "name", "expected"),
        [
            (None, "none.py", "cannot read 'none.py': No such file"),
            (b"", "empty.py", "'empty.py' is empty"),
            (b"\xff\xfe", "bin.py", "'bin.py' is not a Python file"),
            (b"{}", "x.ipynb", "'x.ipynb' is a notebook, not a Python file. Open it in Jupyter"),
        ],
    )
    def test_scripts_that_cannot_run(
        self, content: bytes | None, name: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=re.escape(expected)):
            dispatch(["run", name], TERMINAL)
        with pytest.raises(
            InputError, match=r"'train\.py' was read as the session's name: write --session=NAME"
        ):
            dispatch("run --session train.py", TERMINAL)
        with pytest.raises(InputError, match=r"run needs the path of a Python script$"):
            dispatch(["run", "-np", "2"], TERMINAL)

    def test_a_script_runs_on_every_rank(self, tmp_path: Path) -> None:
        (tmp_path / "beside.py").write_text("WORD = 'beside'\n")
        (tmp_path / "train.py").write_text(
            "import jupyter_dist as dist\nfrom beside import WORD\n"
            "import sys\nif __name__ == '__main__':\n"
            "    print(WORD, dist.rank(), flush=True)\n    print(sys.argv)\n    print('file', __file__)\n"
        )
        # From another folder: modules are found beside the script. What follows it is its own.
        script = str(tmp_path / "train.py")
        done = terminal("run", "-np", "2", script, "--epochs", "3", "-np", "7", cwd=Path("/"))
        assert done.returncode == 0, done.stderr
        assert str([script, "--epochs", "3", "-np", "7"]) in done.stdout
        assert "beside 0" in done.stdout
        assert "beside 1" in done.stdout
        assert f"file {script}\n" in done.stdout
        assert done.stderr == ""

    def test_a_processs_file_is_the_script_as_in_python(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(
            "import multiprocessing\nprint('once')\n"
            "def name(_):\n    return __file__\n"
            "if __name__ == '__main__':\n"
            "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
            "        print(pool.map(name, [0]))\n"
        )
        done = terminal("run", "-np", "1", "train.py", cwd=tmp_path)
        assert done.stdout == f"[0] once\n[0] {[str(tmp_path / 'train.py')]}\n"
        assert done.stderr == ""

    def test_a_module_runs_as_python_runs_it(self, tmp_path: Path) -> None:
        package = tmp_path / "pkg"
        (package / "sub").mkdir(parents=True)
        (package / "__init__.py").write_text("print('package')\n")
        (package / "data.py").write_text("NAME = 'beside'\n")
        text = (
            "import multiprocessing, os, sys\n"
            "from {dots}data import NAME\n"
            "def names(_):\n"
            "    from {dots}data import NAME\n"
            "    return NAME, __package__, __file__\n"
            "if __name__ == '__main__':\n"
            "    print(sys.argv, __file__, __spec__.name, __spec__.origin, __package__, sys.path[0])\n"
            "    if 'RANK' in os.environ:  # Python's own process has no names of a package's __main__\n"
            "        with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
            "            print(pool.map(names, [0]) == [names(0)])\n"
        )
        (package / "train.py").write_text(text.format(dots="."))
        (package / "__main__.py").write_text(text.format(dots="."))
        (package / "sub" / "deep.py").write_text(text.format(dots=".."))  # in a folder without __init__.py
        for name, file, full, parent in (
            ("pkg.train", "pkg/train.py", "pkg.train", "pkg"),
            ("pkg", "pkg/__main__.py", "pkg.__main__", "pkg"),
            ("pkg.sub.deep", "pkg/sub/deep.py", "pkg.sub.deep", "pkg.sub"),
        ):
            done = terminal("run", "-np", "1", "-m", name, "--lr", "0.1", "-np", "7", cwd=tmp_path)
            path = str(tmp_path / file)
            facts = f"{[path, '--lr', '0.1', '-np', '7']} {path} {full} {path} {parent}"
            assert done.stderr == ""
            first, second, *rest = done.stdout.replace("[0] ", "").splitlines()
            assert (first, rest) == ("package", ["package", "True"])
            assert second.startswith(f"{facts} ")
            python = subprocess.run(
                [sys.executable, "-m", name, "--lr", "0.1", "-np", "7"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
            )
            assert f"{facts} " in python.stdout

    def test_a_module_travels_with_its_package(self, tmp_path: Path) -> None:
        (tmp_path / "pkg").mkdir()
        for name in ("__init__", "data", "train"):
            (tmp_path / "pkg" / f"{name}.py").write_text("from . import data\n" if name == "train" else "\n")
        told = json.loads(terminal("run", "--dry-run", "--module", "pkg.train", cwd=tmp_path).stdout)
        assert told["payload"]["modules"] == ["pkg/__init__.py", "pkg/data.py", "pkg/train.py"]

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("", "-m needs the name of a module. For example: `jupyter dist run -m pkg.train`"),
            ("train.py", "Write -m train to run the module, or `jupyter dist run train.py`"),
            ("./pkg/train.py", "Write -m pkg.train to run the module"),
            ("pkg.trian", "no such module in the package 'pkg'. Did you mean -m pkg.train?"),
            ("pgk.train", "or on Python's path. Did you mean -m pkg?"),
            ("pkg.train.more", "'pkg.train' is a module, not a package. Write -m pkg.train"),
            ("pkg", "the package 'pkg' has no module __main__ that could run"),
            ("sys", "the module 'sys' has no Python file"),
            (".train", "there is no such module"),
        ],
    )
    def test_modules_that_cannot_run(
        self, words: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folders: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pkg").mkdir()
        for name in ("__init__", "train"):
            (tmp_path / "pkg" / f"{name}.py").write_text("print(1)\n")
        with pytest.raises(InputError, match=re.escape(expected)):
            dispatch(["run", "-np", "2", "-m", *words.split()], TERMINAL)
        assert not own_folders.exists()
        # What follows a script is its own.
        with pytest.raises(InputError, match=re.escape("cannot read 'none.py'")):
            dispatch(["run", "none.py", "-m", *words.split()], TERMINAL)

    def test_a_function_of_a_script_has_the_scripts_file(self, tmp_path: Path) -> None:
        script = tmp_path / "start.py"
        script.write_text(
            "import jupyter_dist\n"
            "def name():\n    return __file__\n"
            "if __name__ == '__main__':\n"
            "    print(jupyter_dist.run(name, np=1).results)\n"
        )
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout.splitlines()[-1:] == [str([str(script)])], done.stderr

    def test_a_script_that_fails_is_1(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text(
            "import jupyter_dist as dist\n\nraise ValueError(f'bad {dist.rank()}')\n"
        )
        done = terminal("run", "-np", "1", "train.py", cwd=tmp_path)
        assert done.returncode == 1
        assert "ValueError: bad 0" in done.stderr
        assert "train.py" in done.stderr
        assert "raise ValueError" in done.stderr
        again = terminal("attach")
        assert again.returncode == 1

    def test_a_script_with_a_syntax_error_is_2(self, tmp_path: Path, own_folders: Path) -> None:
        (tmp_path / "train.py").write_text("x = 1\ny = = 2\n")
        done = terminal("run", "train.py", cwd=tmp_path)
        assert done.returncode == 2
        assert "invalid syntax" in done.stderr
        assert not own_folders.exists()

    def test_an_interrupt_stops_the_run_and_is_130(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_dist", "run", "-np", "1", "train.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Tests that run in the background of a shell inherit an ignored one.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stdout is not None
        assert any("up" in line.split() for line in process.stdout), output_of(process)  # it follows the run
        process.send_signal(signal.SIGINT)
        _, errors = output_of(process)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        assert next(iter(run_list.list_runs())).state is State.STOPPED

    def test_detach_stop_attach(self, tmp_path: Path, wait_for: Callable[..., Any]) -> None:
        (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
        watch = Stopwatch()
        done = terminal("run", "-np", "1", "--detach", "train.py", cwd=tmp_path)
        assert done.returncode == 0
        assert watch.under(60)
        run_id = done.stdout.splitlines()[0]
        run = folder.find(run_id)
        wait_for(lambda: b"up" in reader.output(run, 0), what="the rank's line")
        wait_for(lambda: f"{run_id}  running" in terminal("runs").stdout, what="a running state")
        assert "<module>" in terminal("stacks").stdout
        assert terminal("rm", run_id).returncode == 2
        done = terminal("stop")
        assert (done.returncode, done.stdout) == (0, f"{run_id} stopped\n")
        assert terminal("stop", run_id).stdout == f"{run_id} had already ended: stopped\n"
        assert terminal("attach", run_id).returncode == 130
        assert terminal("rm", run_id).stdout.startswith("removed 1 run")

    def test_a_dry_run_creates_nothing(self, tmp_path: Path, own_folders: Path) -> None:
        (tmp_path / "train.py").write_text("print(1)\n")
        done = terminal("run", "-np", "2", "--env", "TOKEN=s3cr3t", "--dry-run", "train.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        assert (shown["backend"], shown["np"]) == ("local", 2)
        assert [rank["rank"] for rank in shown["request"]["ranks"]] == [0, 1]
        assert "s3cr3t" not in done.stdout
        assert not own_folders.exists()

    def test_advice_is_for_a_shell(
        self, own_folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = RunMaker(own_folders)
        without = dataclasses.replace(reader.status(run.folder), state=State.UNWATCHED)
        monkeypatch.setattr(reader, "status", lambda folder: without)
        assert main(["stacks", run.folder.id]) == 1
        assert f"Attach first with `jupyter dist attach {run.folder.id}`" in capsys.readouterr().err
        monkeypatch.setattr(reader, "status", lambda folder: _raise(RunFailed("print('%dist x')")))
        assert main(["stacks", run.folder.id]) == 1
        assert "print('%dist x')" in capsys.readouterr().err

    def test_status_of_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        assert capsys.readouterr().out.startswith("usage: jupyter dist COMMAND")
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"jupyter-dist {jupyter_dist.__version__}\n"
        assert main(["nope"]) == 2
        assert main(["backends"]) == 0
