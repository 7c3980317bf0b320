"""Each bad input gives one clear message, and nothing is started: no folder, no process."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from jupyter_dist import folder, start
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.errors import CaptureError, DistError, InputError, ResultError, RunNotFound, UnknownBackend
from jupyter_dist.job import State
from jupyter_dist.record import run_list
from jupyter_dist.showing.run import Run
from tests.conftest import run_processes
from tests.rigs.notebook_shell import notebook_shell
from tests.rigs.run_maker import RunMaker

pytestmark = pytest.mark.usefixtures("warm")

ODD = 'it\'s "odd"\n$HOME `x` {y} ; é'


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Runs a cell in a shell of this process and gives its value; its error is raised."""
    with notebook_shell(monkeypatch, tmp_path) as shell:

        def run_cell(code: str) -> Any:
            with capture_output():
                done = shell.run_cell(code, store_history=True)
            done.raise_error()
            return done.result

        yield run_cell


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--backend loacl", "no backend 'loacl'. Did you mean 'local'? There are: "),
        ("--backend 'a\nb'", "cannot read"),
        ("-np 0", "-np needs a whole number of at least 1, got '0'"),
        ("-np -1", "-np needs a whole number of at least 1, got '-1'"),
        ("-np abc", "-np needs a whole number of at least 1, got 'abc'"),
        ("-np", "-np needs a value: a whole number"),
        ("--nq 2", "unknown flag '--nq'; did you mean --np?"),
        ("--n_trials 20", "--n_trials is --max-jobs here: the number of trials"),
        ("--num-workers=4", "--num-workers is -np here: the number of ranks"),
        ("--targets 0", "--targets is --ranks here: --session --ranks 0,2-3"),
        ("--gpu-per-worker 1", "unknown flag '--gpu-per-worker'; did you mean --gpus-per-worker?"),
        ("--gpus-per-worker 1000000", "-np 2 with --gpus-per-worker 1000000 needs 2,000,000 GPUs"),
        ("--cluster nope", "no cluster 'nope'. None is saved"),
        ("--cluster '../x'", "'../x' cannot be the name of a cluster"),
        ('--cluster "it\'s"', '"it\'s" cannot be the name of a cluster'),
        ("--out '../x'", "--out needs the name of a variable, got '../x'"),
        ("--out 'a\"b'", "--out needs the name of a variable"),
        ("--env 'a\"b=c'", "--env needs NAME=VALUE with a name of letters"),
        ("--env ../a=c", "--env needs NAME=VALUE with a name of letters"),
        ("--ship-modules ../x", "--ship-modules needs auto, none or names of modules"),
        ("--ship-modules nowhere_to_be_found", ""),
        ("-H a:4,b:4", "-H cannot be used with the backend 'local', which runs on this machine only"),
        ("--hostfile /nowhere", "--hostfile cannot be used with the backend 'local'"),
        ("--metric 'loss=(('", "--metric 'loss': '((' is not a regular expression"),
        ("--timeout never", "--timeout needs a time such as 90, 90s, 10m or 2h, got 'never'"),
        ("stray", "%%distribute does not accept the word 'stray'"),
        ("-n'", 'cannot read "-n\'": a quote is not closed'),
    ],
)
def test_flags(notebook: Callable[[str], Any], line: str, expected: str, own_folders: Path) -> None:
    first, *others = line.split("\n")
    with pytest.raises((InputError, CaptureError)) as caught:
        notebook(
            "\n".join(
                [
                    f"%%distribute -np 2 {first}" if "-n" not in first else f"%%distribute {first}",
                    *others,
                    "1",
                ]
            )
        )
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)
    assert_nothing_started(own_folders)


def assert_nothing_started(root: Path) -> None:
    assert not root.exists() or os.listdir(root) == []
    assert run_processes(root.parent) == {}


def test_unknown_backend_has_a_class_of_its_own(notebook: Callable[[str], Any]) -> None:
    with pytest.raises(UnknownBackend, match=r"There are: .*local"):
        notebook("%%distribute --backend nope\n1")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("lock", r"\block: a locked lock"),
        ("model", r"model\.stream: cannot pickle 'zlib.Compress'"),
        ("x = = 1", "In\\[.*invalid syntax"),
        ("def f(:\n    pass", "invalid syntax"),
        ("if True:\nx = 1", "expected an indented block"),
        ("print('a", "unterminated string"),
        ("!ls", "!ls"),
        ("return 1", "'return' outside function"),
    ],
)
def test_cells(notebook: Callable[[str], Any], cell: str, expected: str, own_folders: Path) -> None:
    notebook(
        "import threading, zlib\nlock = threading.Lock()\nlock.acquire()\n"
        "class Model:\n    def __init__(self): self.stream = zlib.compressobj()\n"
        "model = Model()"
    )
    with pytest.raises(CaptureError, match=f"(?s){expected}"):
        notebook(f"%%distribute -np 2\n{cell}")
    assert_nothing_started(own_folders)


def test_more_workers_than_cores_is_no_error(notebook: Callable[[str], Any]) -> None:
    count = len(os.sched_getaffinity(0)) + 1
    shown = notebook(f"%%distribute -np {count} --dry-run\n1")
    assert shown["np"] == count


class TestDisk:
    """In a mount namespace of its own, so that the disk is really full or really read-only."""

    SCRIPT = """
        import os, sys
        from pathlib import Path
        from jupyter_dist import start
        from jupyter_dist.errors import LaunchError

        def fn(data):
            return len(data)

        root = Path(os.environ["JUPYTER_DIST_RUNS"])
        try:
            start.run(fn, bytes(int(sys.argv[1])), np=2)
        except LaunchError as error:
            print(error)
            print("left behind:", [str(p) for p in root.rglob("*")])
    """

    def start_on(self, tmp_path: Path, mount: str, prepare: str, nbytes: int = 10) -> str:
        place = tmp_path / "disk"
        place.mkdir()
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(self.SCRIPT))
        steps = f'mount -t tmpfs -o {mount} none "$1" && cd "$1" && {{ {prepare}; }} && exec "$2" "$3" "$4"'
        # With --map-root-user it needs no privilege where the system allows user namespaces.
        done = run_process(
            [
                *("unshare", "--map-root-user", "--mount", "sh", "-c", steps, "sh"),
                *(str(place), sys.executable, str(script), str(nbytes)),
            ],
            env={**os.environ, "JUPYTER_DIST_RUNS": str(place / "runs")},
        )
        if os.geteuid() != 0 and re.search(r"^(mount|unshare): ", done.stderr, re.MULTILINE):
            pytest.skip(f"needs root to mount a disk: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert run_processes(tmp_path) == {}
        return done.stdout

    def check(self, shown: str, reason: str) -> None:
        message, left = shown.splitlines()
        assert re.search(reason, message)
        assert message.endswith("Nothing was started.")
        assert left == "left behind: []"

    def test_full(self, tmp_path: Path) -> None:
        fill = "mkdir -m 700 runs; dd if=/dev/zero of=filler bs=4k 2>/dev/null || true"
        self.check(self.start_on(tmp_path, "size=1m", fill), "only 0.0 MB are free in")

    def test_nearly_full(self, tmp_path: Path) -> None:
        """The files of a start would fit, and the supervisor's first words would not."""
        for number, blocks in enumerate((250, 252, 253, 254)):
            fill = f"mkdir -m 700 runs; dd if=/dev/zero of=filler bs=4k count={blocks} 2>/dev/null"
            place = tmp_path / str(number)
            place.mkdir()
            self.check(self.start_on(place, "size=1m", fill), "only 0.0 MB are free in")

    def test_filled_by_the_payload(self, tmp_path: Path) -> None:
        shown = self.start_on(tmp_path, "size=1m", "mkdir -m 700 runs", 2_000_000)
        self.check(shown, r"only 1.0 MB are free in")

    def test_no_room_for_names(self, tmp_path: Path) -> None:
        for number, inodes in enumerate((2, 3, 4, 6, 8, 9)):
            place = tmp_path / str(number)
            place.mkdir()
            shown = self.start_on(place, f"size=9m,nr_inodes={inodes}", "mkdir -m 700 runs || true")
            self.check(shown, r"cannot write the run folder '.*': No space left on device")

    def test_read_only(self, tmp_path: Path) -> None:
        shown = self.start_on(tmp_path, "size=1m", 'mkdir -m 700 runs && mount -o remount,ro "$1"')
        self.check(shown, r"cannot write the run folder '.*': Read-only file system")

    def test_a_file_in_the_place_of_the_folder(
        self, notebook: Callable[[str], Any], own_folders: Path
    ) -> None:
        own_folders.write_text("")
        with pytest.raises(DistError, match=r"cannot write the run folder '.*'.*Nothing was started"):
            notebook("%%distribute -np 2\n1")


class TestDamagedFolders:
    """Everything that lists or reads runs works beside a damaged one, and says what is wrong with it."""

    def listed(self) -> dict[str, run_list.RunRow]:
        assert repr(dispatch("runs", Context()))
        return {row.id: row for row in run_list.list_runs()}

    @pytest.mark.parametrize(
        "content", [b"", b'{"id": "x", "sta', b"[]", b"null", b"\xff\x00", b'{"state": "nope"}']
    )
    def test_state(self, content: bytes, own_folders: Path) -> None:
        good, bad = RunMaker(own_folders), RunMaker(own_folders)
        for run in (good, bad):
            run.print(0, "hello\n")
            run.end()
        bad.folder.state.write_bytes(content)
        rows = self.listed()
        assert rows[good.folder.id].state is State.SUCCEEDED
        assert rows[bad.folder.id].state is State.LOST
        assert "state.json cannot be read" in str(rows[bad.folder.id].reason)
        # What the ranks had written is still there.
        assert dispatch(f"logs {bad.folder.id}", Context()) == "[0] hello"
        assert repr(Run(bad.folder))
        assert dispatch(f"stop {bad.folder.id}", Context()).endswith("had already ended: lost")
        assert dispatch(f"rm {bad.folder.id}", Context()).startswith("removed 1 run")

    @pytest.mark.parametrize("content", [b"", b'{"id": "x', b"[]", b"null", b'"x"', b"\xff\x00", b"{}"])
    def test_job(self, content: bytes, own_folders: Path) -> None:
        good, bad = RunMaker(own_folders), RunMaker(own_folders)
        good.end()
        bad.end()
        bad.folder.job.write_bytes(content)
        rows = self.listed()
        assert rows[good.folder.id].state is State.SUCCEEDED
        assert "job.json cannot be read" in str(rows[bad.folder.id].reason)
        for word in ("logs --rank 0", "attach"):
            with pytest.raises(RunNotFound, match=r"is not a run: job\.json cannot be read"):
                dispatch(f"{word} {bad.folder.id}", Context())
        assert repr(Run(bad.folder))
        assert dispatch(f"rm {bad.folder.id}", Context()).startswith("removed 1 run")

    @pytest.mark.parametrize("name", ["job", "state"])
    def test_other_types(self, name: str, own_folders: Path) -> None:
        good, bad = RunMaker(own_folders), RunMaker(own_folders)
        good.end()
        bad.end()
        path = getattr(bad.folder, name)
        data = json.loads(path.read_bytes())
        path.write_text(json.dumps({**data, "created": "x", "world_size": [], "started": {}, "ended": "x"}))
        rows = self.listed()
        assert rows[good.folder.id].state is State.SUCCEEDED
        assert rows[bad.folder.id].state is State.LOST
        assert dispatch("rm --all-ended", Context()).startswith("removed 2 runs")

    def test_no_place_for_requests(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.folder.requests.rmdir()
        with pytest.raises(DistError, match=f"run {run.folder.id} cannot be asked to stop: No such file"):
            dispatch("stop", Context())

    def test_events(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.metric(0, 1, {"loss": 0.5})
        with run.rank(0).events.open("ab") as file:
            file.write(
                b'\xff\xfe garbage\n[]\n"x"\n{"kind": "metric"}\n{"seq": 9, "time": "x", "kind": "metric"}\n'
            )
            file.write(b'{"seq": 10, "time": 1.0, "kind": "metric", "step": 2, "values": [1]}\n')
            file.write(b'{"seq": 11, "time": 1.0, "kind": "metric", "step": 2, "values": {"loss": "abc"}}\n')
        run.metric(0, 3, {"loss": 0.25})
        with run.rank(0).events.open("ab") as file:
            file.write(b'{"seq": 12, "time": 1.0, "kind": "met')
        run.end()
        assert list(Run(run.folder).metrics["value"]) == [0.5, 0.25]
        assert repr(Run(run.folder))

    def test_result(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.result(0, list(range(1000)))
        run.result(1, "whole")
        run.end()
        path = run.rank(0).result
        path.write_bytes(path.read_bytes()[:-100])
        results = Run(run.folder).results
        assert results[1] == "whole"
        with pytest.raises(ResultError):
            results[0]

    def test_strangers_in_the_folders(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.print(0, "hello\n")
        run.end()
        (own_folders / "notes.txt").write_text("x")
        (own_folders / "20260101-000000-abcd").write_text("a file with the name of a run")
        (own_folders / "20260101-000001-abcd").mkdir()
        (own_folders / "20260101-000002-abcd").mkdir()
        (own_folders / "20260101-000002-abcd" / "job.json").mkdir()
        (own_folders / "20260101-000003-abcd").symlink_to("/nowhere")
        (own_folders / "it's\nodd").mkdir()
        inside = run.folder.path
        (inside / "core.1234").write_bytes(b"\0" * 10)
        (inside / "attempts" / "x").mkdir()
        (inside / "attempts" / "0" / "ranks" / "y").write_text("")
        (inside / "requests" / "dance").write_text("")
        (run.rank(0).path / "stray\n").write_text("")
        assert list(self.listed()) == [run.folder.id]
        assert dispatch("logs", Context()) == "[0] hello"
        assert Run(run.folder).log(0) == "hello\n"
        assert list(Run(run.folder).metrics["value"]) == []
        for name in ("20260101-000000-abcd", "20260101-000001-abcd", "20260101-000003-abcd"):
            with pytest.raises(RunNotFound):
                start.attach(name)

    def test_files_that_are_folders(self, own_folders: Path) -> None:
        run = RunMaker(own_folders)
        run.end()
        for path in (run.rank(0).output, run.rank(0).events, run.rank(0).result, run.rank(0).error):
            path.mkdir()
        assert list(self.listed()) == [run.folder.id]
        assert Run(run.folder).log(0) == ""
        assert repr(Run(run.folder))
        assert dispatch("logs", Context()) == "nothing was printed"


class TestOddNames:
    """Quotes, newlines and `../` where names can be chosen freely: they work, or are refused."""

    @pytest.fixture
    def odd(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        place = tmp_path / ODD
        place.mkdir()
        monkeypatch.setenv("JUPYTER_DIST_RUNS", str(place / "../" / ODD / "runs"))
        monkeypatch.setenv("JUPYTER_DIST_CLUSTERS", str(place / "clusters.toml"))
        return place

    def test_a_run_in_such_a_folder(
        self, odd: Path, notebook: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(odd)
        notebook("%dist clusters add c -np 2")
        run = notebook("%%distribute --cluster c\nimport os; print('in', os.getcwd()); os.getcwd()")
        assert list(run.results) == [str(odd), str(odd)]
        assert run.folder.path.parent.resolve() == odd / "runs"
        assert run.log(0) == f"in {odd}\n"
        (row,) = run_list.list_runs()
        assert row.id == run.id
        assert dispatch("rm --all-ended", Context()).startswith("removed 1 run")

    def test_in_a_terminal(self, odd: Path) -> None:
        (odd / "it's\n.py").write_text(
            "import os\nprint('file ran', flush=True)\nraise ValueError(os.getcwd())\n"
        )
        done = run_process(
            [sys.executable, "-m", "jupyter_dist", "run", "-np", "1", "it's\n.py"],
            cwd=odd,
        )
        assert done.returncode == 1
        assert "file ran" in done.stdout
        assert "ValueError" in done.stderr
        assert [row.state for row in run_list.list_runs()] == [State.FAILED]

    def test_in_a_kernel_with_warm_ranks(self, odd: Path, kernel: Any) -> None:
        kernel.run(f"%load_ext jupyter_dist\nimport os\nos.chdir({str(odd)!r})")
        kernel.run("%%distribute -np 2 --out r\nimport os\nos.getcwd()")
        assert "True" in kernel.run(f"print(list(r.results) == [{str(odd)!r}] * 2)").text
        assert "True" in kernel.run("print(r.status.warm)").text

    @pytest.mark.parametrize("value", [ODD, "a\nb", "it's", '"', "../../x", "a=b=c", "$(touch x)"])
    def test_values_of_variables_arrive_as_they_are(
        self, value: str, notebook: Callable[[str], Any], own_folders: Path
    ) -> None:
        shell = InteractiveShell.instance()
        shell.user_ns["odd"] = value
        run = notebook("%%distribute -np 1 --env ODD=$odd\nimport os; os.environ['ODD']")
        assert run.results[0] == value

    @pytest.mark.parametrize("name", ["../x", "a/b", "it's", 'a"b', "a\nb", "..", ""])
    def test_names_of_runs_and_clusters_are_refused(self, name: str, tmp_path: Path) -> None:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(RunNotFound):
            start.attach(name)
        with pytest.raises(RunNotFound):
            dispatch(["rm", name], Context(terminal=True))
        with pytest.raises(InputError, match="cannot be the name of a cluster"):
            dispatch(["clusters", "add", "--", name], Context(terminal=True))
        with pytest.raises(InputError, match="cannot be the name of a cluster"):
            dispatch(["clusters", "rm", "--", name], Context(terminal=True))
        assert sorted(tmp_path.rglob("*")) == before


def test_the_runs_folder_is_not_left_for_somebody_elses(own_folders: Path) -> None:
    """A link in the place of a run is not followed: what it points to stays."""
    own_folders.mkdir()
    elsewhere = own_folders.parent / "elsewhere"
    elsewhere.mkdir()
    run = RunMaker(elsewhere)
    run.end()
    (own_folders / run.folder.id).symlink_to(run.folder.path)
    with pytest.raises(DistError, match=run.folder.id):
        dispatch(f"rm {run.folder.id}", Context())
    assert run.folder.job.exists()
    shutil.rmtree(elsewhere)
    assert list(folder.runs()) == []
