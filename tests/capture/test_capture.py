"""The capture of a call and of a whole kernel, the size of a payload, and its header."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture import payload_builder, payload_size
from jupyter_dist.capture.payload_builder import capture_call, capture_cell
from jupyter_dist.worker import payload
from tests.rigs.notebook_cells import DEFINITIONS, RANK, ROOT, Notebook


class TestSize:
    def test_counts_what_will_be_written(self, notebook: Notebook) -> None:
        notebook.cell("import numpy as np\nX = np.ones(100_000)\ntext = 'x' * 50_000")
        captured = notebook.capture("X, text")
        captured.write(notebook.folder / "p.pkl")
        written = sum((notebook.folder / name).stat().st_size for name in ("p.pkl", "p.buffers"))
        assert captured.nbytes == pytest.approx(written, rel=0.01)
        assert captured.notes == ()

    def test_above_100_mb_names_the_biggest(self, notebook: Notebook) -> None:
        notebook.cell(
            """
            import numpy as np
            X = np.zeros(20_000_000)
            Y = X
            W = np.zeros(5_000_000, "u1")
            def train(): return X, Z
            Z = np.zeros(50_000_000, "u1")
            small = 1
            """
        )
        (note,) = notebook.capture("train(), Y, W, small").notes
        assert note == "jupyter-dist sends 215 MB with the cell: Y 160 MB, Z 50 MB, W 5 MB"

    @pytest.mark.parametrize(
        ("size", "shown"), [(0, "0 bytes"), (999, "999 bytes"), (1234, "1.23 kB"), (1.2e9, "1.2 GB")]
    )
    def test_is_shown_with_a_unit(self, size: float, shown: str) -> None:
        assert payload_size._bytes(size) == shown

    def test_notes_cuda_tensors(self, notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
        notebook.cell("x = 1")
        real = payload.dump
        for count, note in ((1, "1 CUDA tensor travels"), (3, "3 CUDA tensors travel")):
            monkeypatch.setattr(
                payload_builder, "dump", lambda *a, n=count, **k: real(*a, **k)._replace(cuda_tensors=n)
            )
            assert notebook.capture("x").notes == (f"{note} through CPU memory",)


class TestCall:
    def call(self, notebook: Notebook, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        captured = capture_call(fn, args, kwargs, label="call", directory=notebook.folder)
        assert captured.header["kind"] == "call"
        return notebook.run_payload(captured)

    def test_takes_any_callable(self, notebook: Notebook) -> None:
        notebook.cell(DEFINITIONS)
        names = notebook.names
        assert self.call(notebook, names["decorated"], 4) == 4.5
        assert self.call(notebook, lambda x, *, y: x + y, 1, y=2) == 3
        assert self.call(notebook, names["add"], 2) == 3.5
        assert self.call(notebook, names["method"]) == 2.0
        assert self.call(notebook, names["Config"], x=4) == names["Config"](4)
        assert self.call(notebook, max, [1, 5], key=names["even"]) == 1
        assert self.call(notebook, textwrap.dedent, "  x") == "x"

    def test_from_a_script(self, tmp_path: Path) -> None:
        script = tmp_path / "train.py"
        script.write_text(
            textwrap.dedent(
                """
                import sys
                from pathlib import Path
                import jd_helper
                from jupyter_dist.capture.payload_builder import capture_call

                RATE = 3

                def train(n):
                    if n < 0:
                        raise ValueError("negative")  # here
                    return jd_helper.twice(n) * RATE

                if __name__ == "__main__":
                    RATE = 4
                    captured = capture_call(
                        train, (int(sys.argv[1]),), {}, label="train", directory=Path(__file__).parent
                    )
                    captured.write(Path("payload.pkl"))
                    print([shipped.path for shipped in captured.modules])
                """
            )
        )
        (tmp_path / "jd_helper.py").write_text("def twice(x): return 2 * x")

        def python(*args: str) -> subprocess.CompletedProcess[str]:
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            return subprocess.run(
                [sys.executable, *args], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )

        done = python(str(script), "5")
        assert (done.stdout, done.stderr) == ("['jd_helper.py']\n", "")
        assert python("-c", RANK, str(tmp_path)).stderr == ""
        assert payload.load(tmp_path / "result.pkl") == 40
        python(str(script), "-1")
        script.unlink()
        assert 'raise ValueError("negative")  # here' in python("-c", RANK, str(tmp_path)).stderr


class TestRealKernel:
    def test_captures_what_a_notebook_has(self, kernel: Any, notebook: Notebook) -> None:
        kernel.run("from jupyter_dist.capture.payload_builder import capture_cell\nfrom pathlib import Path")
        kernel.run("RATE = 2\ndef rate():\n    with open('/dev/null') as f: return RATE, f.name")
        kernel.run(
            "def shell():\n    try: return get_ipython()\n    except NameError: return 'no shell'\n"
            "import sys\ndef say(text, out=sys.stdout): return out is sys.stdout"
        )
        kernel.run("Out, _, In, 5")
        cell = r"result = [rate(), shell(), say('x')]; open, exit, display, _, In, Out, __name__"
        shown = kernel.run(
            f"""
            shell_ = get_ipython()
            labels = {{f: f"In[{{n}}]" for f, n in shell_.compile._filename_map.items()}}
            captured = capture_cell({cell!r}, shell_.user_ns, label="In[9]", labels=labels,
                                    directory=Path.cwd(), flags=shell_.compile.flags)
            captured.write(Path("payload.pkl"))
            print(captured.header["names"], sorted(captured.header["labels"].values()), captured.imports)
            """
        ).stdout
        assert shown.startswith("['rate', 'shell', 'say'] ['In[2]', 'In[3]', 'In[9]'] ")
        assert "IPython" not in shown
        (notebook.folder / "run").mkdir(0o700)
        os.rename(notebook.folder / "payload.pkl", notebook.folder / "run/payload.pkl")
        source = cell.partition(";")[0]
        done = subprocess.run(
            [sys.executable, "-c", RANK.replace('header["source"]', repr(source)), notebook.folder / "run"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        result = payload.load(notebook.folder / "run/result.pkl")
        assert result == [(2, "/dev/null"), "no shell", True]


def test_a_note_names_an_object_of_an_earlier_class(notebook: Notebook) -> None:
    notebook.cell("class Net: pass\nclass Wide(Net): pass\nnet = Net()")
    notebook.cell("class Net: pass\nfresh = Net()")
    notes = notebook.capture("result = isinstance(net, Net)").notes
    assert notes == (
        "net is an object of an earlier definition of Net, so that isinstance(net, Net) is false. "
        "Run the cell that makes net again. To hide this note: --no-hint old-class",
    )
    for innocent in ("result = net", "result = Net()", "result = isinstance(fresh, Net)"):
        assert notebook.capture(innocent).notes == ()


READ_BY_RANKS = {
    *("argv", "assigns", "filename", "flags", "format", "kind", "labels", "legacy_keras"),
    *("legacy_keras_if_several", "logical_cpus", "names", "origins", "settings", "source", "sources"),
    *("spanning_strategy", "submodules", "sys_path", "unnamed", "writes"),
}


def test_ranks_know_the_header_of_a_cell_by_the_number_of_its_format(tmp_path: Path) -> None:
    header = capture_cell("1", {}, label="In[1]", directory=tmp_path).header
    assert (header["format"], {*header}) == (2, READ_BY_RANKS), (
        "raise payload.CELL_FORMAT if ranks need a key that an earlier kernel does not write"
    )
