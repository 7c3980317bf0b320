"""The source of a cell: what is plain Python, what needs a shell, and the flags of earlier cells."""

from __future__ import annotations

import contextlib
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_dist.capture import source as _source
from jupyter_dist.errors import CaptureError
from tests.rigs.notebook_cells import FUTURE_ANNOTATIONS, Notebook


class TestSource:
    @pytest.mark.parametrize(
        ("source", "line", "instead"),
        [
            ("x = 1\n!ls -l", "line 2: !ls -l", "subprocess.run(['ls', '-l'], check=True)"),
            ("!ls *.py | wc", "line 1: !ls", "subprocess.run(['bash', '-c', 'ls *.py | wc'], check=True)"),
            ("\n\nfiles = !ls", "line 3: files = !ls", "files = subprocess.run(['ls'], capture_output=True"),
            ("if 1:\n    !ls {x}", "line 2: !ls {x}", "subprocess.run("),
            ("%time f()", "line 1: %time f()", "run %time in a cell of its own"),
            ("t = %timeit -o f()", "line 1: t = %timeit", "run %timeit in a cell of its own"),
            ("x = 1\n%matplotlib inline\n", "line 2: %matplotlib", "run %matplotlib in a cell"),
            ("%%time\nf()", "line 1: %%time", "write this line above the line with %%distribute"),
            ("%%bash\nls", "line 1: %%bash", "give this cell magic a cell of its own"),
            ("f?", "line 1: f?", "print(f.__doc__)"),
            ("x\n?f.g", "line 2: ?f.g", "print(f.g.__doc__)"),
            ("x = 1\nget_ipython().system('ls')", "line 2: get_ipython()", "in the notebook only"),
        ],
    )
    def test_refuses_what_needs_a_shell(
        self, notebook: Notebook, source: str, line: str, instead: str
    ) -> None:
        message = notebook.error(source)
        assert f"In[7], {line}" in message
        assert instead in message
        assert message.endswith("Nothing was started.")

    def test_takes_what_ipython_makes_plain(self, notebook: Notebook) -> None:
        assert notebook.run(">>> x = 1\n>>> result = x + 1") == 2
        assert notebook.run("    x = 1\n    result = x") == 1
        assert notebook.run(",str.format a{} b\nresult = 5") == 5

    def test_leaves_plain_python_as_it_is(self, notebook: Notebook) -> None:
        source = "\n\nx = '''\n!ls\n%time\n'''\nresult = (7\n%4)  # f?\n"
        assert notebook.capture(source).header["source"] == source
        assert notebook.run(source) == 3

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("x = 1\nfor x in y\n    pass", "In[7], line 2: expected ':'\n    for x in y\n              ^"),
            ("x = (1,\n", "In[7], line 1: '(' was never closed\n    x = (1,\n        ^"),
            ("if 1:\n    return 5", "In[7], line 2: 'return' outside function\n    return 5\n    ^^^^^^^^"),
            ("%time f()\nx = = 2", "In[7], line 2: invalid syntax\n    x = = 2\n        ^"),
            ("x = 'a\0b'", "In[7], line 1: source code string cannot contain null bytes"),
            ("if 1:\nx = 1", "In[7], line 2: expected an indented block"),
            ("x = '\ud800'", "In[7], line 1: "),
        ],
    )
    def test_shows_syntax_errors(self, notebook: Notebook, source: str, expected: str) -> None:
        message = notebook.error(source)
        assert message.startswith(expected)
        assert message.endswith("Nothing was started.")

    @example(r"'\ '")
    @given(st.text(alphabet="ab =:()[]{}'\"\\\n\t!%?;,.1@é\0\ud800#*&", max_size=40))
    def test_any_text_is_taken_or_refused_in_words(self, source: str) -> None:
        with contextlib.suppress(CaptureError):
            cell = _source.parse(source, "In[1]")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # `1(2)` and `"\ "` are bad style, and compile
                compile(cell.source, "x", "exec", cell.flags)

    def test_a_block_that_suppresses_errors_may_leave_the_notebook_s_value(self, notebook: Notebook) -> None:
        notebook.cell("import contextlib\nfrom contextlib import suppress\nstart = 3")
        for name in ("contextlib.suppress", "suppress"):
            source = f"with open('/dev/null') as file, {name}(KeyError):\n    start = {{}}[0]\nresult = start"
            assert notebook.run(source) == 3
            assert _source.parse(source, "In[1]").assigns == {"file", "result"}
        assert "start" not in _source.parse("with scope():\n    start = 1\nstart", "In[1]").reads

    def test_a_cell_of_a_session_is_parsed_once(self) -> None:
        assert _source.parse("x = 1", "In[1]", 0) is _source.parse("x = 1", "In[1]", 0)

    def test_allows_await_at_the_top(self, notebook: Notebook) -> None:
        notebook.cell("import asyncio\nasync def double(x):\n    return 2 * x")
        source = """
        result = await double(4)
        async with asyncio.Lock():
            result += sum([await double(i) for i in range(2)])
        """
        assert notebook.run(source) == 10

    def test_keeps_the_future_statements_of_earlier_cells(self, notebook: Notebook) -> None:
        notebook.cell("from __future__ import annotations")
        source = "def f(x: not_defined): pass\nresult = f.__annotations__"
        assert notebook.run(source, flags=FUTURE_ANNOTATIONS) == {"x": "not_defined"}

    def test_warns_of_nothing_that_the_rank_warns_of_itself(self, notebook: Notebook) -> None:
        notebook.capture(r"x = '\d'")
