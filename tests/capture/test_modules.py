"""The modules beside a notebook that are sent with a cell, and the installed ones that it imports."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import Payload
from tests.rigs.notebook_cells import Notebook


class TestModules:
    @pytest.fixture
    def beside(self, notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A notebook with modules beside it; what it imports is forgotten afterwards."""
        files = {
            "jd_tools.py": "import jd_lower, json\ndef double(x): return jd_lower.twice(x)\n",
            "jd_lower.py": "def twice(x): return 2 * x\n",
            "jd_unused.py": "",
            "jd_pack/__init__.py": "from .part import value\n",
            "jd_pack/part.py": "value = 5\n",
            "jd_pack/lazy/late.py": "late = 6\n",
            "jd_pack/words.txt": "seven",
            "jd_pack/.hidden/x.py": "",
            "jd_pack/__pycache__/part.pyc": "",
            "jd_pack/node_modules/y.py": "",
            ".venv/pyvenv.cfg": "",
            ".venv/lib/jd_installed.py": "def f(): return 8\n",
            "env/pyvenv.cfg": "",
            "env/jd_env.py": "def f(): return 9\n",
            "lib/site-packages/jd_site.py": "def f(): return 10\n",
        }
        for name, text in files.items():
            path = notebook.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for folder in ("", ".venv/lib", "env", "lib/site-packages"):
            monkeypatch.syspath_prepend(str(notebook.folder / folder))
        yield notebook
        for name in [name for name in sys.modules if name.startswith("jd_")]:
            del sys.modules[name]

    def shipped(self, captured: Payload) -> list[str]:
        return sorted(shipped.path for shipped in captured.modules)

    def away(self, notebook: Notebook) -> None:
        """Take the modules' folder away: what runs now runs with what was shipped."""
        for path in notebook.folder.iterdir():
            if path.name.startswith("jd_"):
                path.rename(path.with_name(f"gone_{path.name}"))

    def test_that_the_cell_uses_go_along_with_what_they_import(self, beside: Notebook) -> None:
        beside.cell("import jd_tools")
        captured = beside.capture("result = jd_tools.double(4)")
        assert self.shipped(captured) == ["jd_lower.py", "jd_tools.py"]
        self.away(beside)
        assert beside.run_payload(captured) == 8

    def test_that_only_a_captured_function_uses_go_along(self, beside: Notebook) -> None:
        beside.cell("from jd_tools import double\ndef f():\n    import jd_lower\n    return double(1)")
        captured = beside.capture("result = f()")
        self.away(beside)
        assert beside.run_payload(captured) == 2

    def test_that_the_cell_imports_itself_go_along(self, beside: Notebook) -> None:
        captured = beside.capture("from jd_pack.part import value\nresult = value")
        assert self.shipped(captured) == [
            "jd_pack/__init__.py",
            "jd_pack/lazy/late.py",
            "jd_pack/part.py",
            "jd_pack/words.txt",
        ]
        self.away(beside)
        assert beside.run_payload(captured) == 5

    @pytest.mark.parametrize("name", ["jd_installed", "jd_env", "jd_site", "json", "pytest"])
    def test_that_are_installed_stay(self, beside: Notebook, name: str) -> None:
        assert self.shipped(beside.capture(f"import {name}")) == []

    def test_elsewhere_stay(self, beside: Notebook) -> None:
        (beside.folder / "sub").mkdir()
        captured = beside.capture("import jd_lower", directory=beside.folder / "sub")
        assert self.shipped(captured) == []

    def test_none_are_sent_when_told_so(self, beside: Notebook) -> None:
        captured = beside.capture("import jd_lower\nresult = jd_lower.twice(2)", ship_modules="none")
        assert self.shipped(captured) == []
        assert beside.run_payload(captured) == 4  # found where they are

    def test_can_be_named(self, beside: Notebook) -> None:
        captured = beside.capture("1", ship_modules="jd_unused, jd_site,jd_pack.part")
        assert self.shipped(captured) == [
            "jd_pack/__init__.py",
            "jd_pack/lazy/late.py",
            "jd_pack/part.py",
            "jd_pack/words.txt",
            "jd_site.py",
            "jd_unused.py",
        ]

    def test_that_do_not_exist_are_refused(self, beside: Notebook) -> None:
        message = beside.error("1", ship_modules="jd_tool")
        assert "no module 'jd_tool'. Did you mean 'jd_tools'" in message

    def test_above_20_mb_are_refused(self, beside: Notebook) -> None:
        (beside.folder / "jd_lower.py").write_text("#" * 20_000_001)
        message = beside.error("import jd_tools")
        assert "20 MB, more than 20 MB; the biggest file is 'jd_lower.py'" in message
        assert "--ship-modules" in message

    def test_leave_large_data_behind_with_a_note(self, beside: Notebook) -> None:
        (beside.folder / "jd_pack/words.txt").write_bytes(bytes(6_000_000))
        captured = beside.capture("import jd_pack")
        assert "jd_pack/words.txt" not in self.shipped(captured)
        assert captured.notes[0].startswith("1 data files of the package 'jd_pack' (6 MB) stay behind")

    def test_with_a_syntax_error_fail_on_the_rank(self, beside: Notebook) -> None:
        (beside.folder / "jd_lower.py").write_text("def")
        captured = beside.capture("import jd_lower")
        assert self.shipped(captured) == ["jd_lower.py"]
        assert "SyntaxError" in beside.start(captured).stderr


class TestImports:
    def test_are_the_installed_modules_that_are_used(self, notebook: Notebook) -> None:
        notebook.cell(
            """
            import numpy as np, xml.etree.ElementTree as tree
            from json.decoder import JSONDecoder
            def f():
                import sqlite3
                return np.linalg, JSONDecoder, sqlite3
            """
        )
        captured = notebook.capture("import wave, not_there\nf(), tree")
        expected = {"json", "json.decoder", "numpy", "sqlite3", "wave", "xml", "xml.etree"}
        assert expected <= set(captured.imports)
        assert "not_there" not in captured.imports
        assert not [name for name in captured.imports if name.startswith("_") or "._" in name]
        assert not {"jupyter_dist", "cloudpickle", "builtins"} & set(captured.imports)

    def test_are_never_the_notebooks_own(self, notebook: Notebook, monkeypatch: Any) -> None:
        (notebook.folder / "jd_mine.py").write_text("")
        monkeypatch.syspath_prepend(str(notebook.folder))
        assert notebook.capture("import jd_mine").imports == ()
