"""A search of a long log is quick, finds what the slow way finds, and ends when nobody waits for it."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_dist import queries
from jupyter_dist.errors import DistError, InputError
from jupyter_dist.text.cancellation import Cancellation
from jupyter_dist.text.search import pattern_search
from jupyter_dist.text.search.literal_search import Literal
from tests.rigs.run_maker import BEGAN, RunMaker
from tests.rigs.server_process import TOKEN, Server, api
from tests.rigs.stopwatch import Stopwatch

# Letters in both cases, the four others that equal a letter of ASCII, and what stands for invalid bytes.
_LETTERS = "aAkKsSiI \u017f\u212a\u0130\u0131\ufffdäÄ.#"


@given(
    st.lists(st.text(_LETTERS, max_size=6), max_size=30),
    st.text(_LETTERS, min_size=1, max_size=2),
    st.booleans(),
)
def test_a_text_is_found_in_the_same_lines_as_its_expression(
    lines: list[str], query: str, case: bool
) -> None:
    data = "".join(f"{line}\n" for line in lines).encode() + b"\xff is no text\n"
    pattern = pattern_search.compiled(query, regex=False, case=case)
    shown = data.decode("utf-8", "replace").split("\n")[:-1]
    expected = [number for number, line in enumerate(shown) if pattern.search(line)]
    literal = Literal(query, case=case)
    assert literal.lines(data) == expected
    few = b"--\n" * 200 + data
    assert literal.lines(few) == [200 + number for number in expected]
    assert literal.may_match(data) or not expected


def test_a_search_of_a_million_lines_is_quick_and_can_be_cancelled(own_folders: Path) -> None:
    made = RunMaker(own_folders, 4)
    for part in range(50):
        for rank in range(4):
            first = part * 5000
            lines = "".join(f"Epoch 1 step {first + line} of rank {rank}\n" for line in range(5000))
            made.print(rank, lines, BEGAN + part)
    made.end()
    assert queries.log_page(made.folder.id)["total"] == 1_000_000
    watch = Stopwatch()
    found = queries.log_search(made.folder.id, query="STEP 77777 OF RANK 2")
    assert watch.under(0.5)
    assert found["count"] == 1
    (row,) = queries.log_page(made.folder.id, start=found["hits"][0], count=1)["lines"]
    assert row["text"] == "Epoch 1 step 77777 of rank 2"
    for regex in (False, True):
        cancellation = Cancellation()
        cancellation.cancel()
        with pytest.raises(DistError, match="no longer wanted"):
            queries.log_search(made.folder.id, query="rank", regex=regex, cancellation=cancellation)


def test_lines_that_several_ranks_printed_are_one_row_of_a_search(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    for part in range(20):
        for rank in range(3):
            made.print(rank, f"same {part}\nonly {part if rank == 2 else 'x'}\n", BEGAN + part)
    made.end()
    for query in ("SAME 7", "only 19", "x", "absent", "same"):
        found = queries.log_search(made.folder.id, query=query)
        rows = queries.log_page(made.folder.id, count=1000)["lines"]
        hits = [row["n"] for row in rows if query.lower() in row["text"]]
        assert (found["count"], found["hits"]) == (len(hits), hits)


def test_a_search_finds_what_is_shown_of_coloured_lines(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    link = "\x1b]8;;http://host/31\x1b\\page\x1b]8;;\x1b\\"
    for rank in range(2):
        made.print(rank, f"\x1b[32mINFO\x1b[0m | \x1b[1;31mloss\x1b[0m of {rank}\n{link}\nplain 31\n", BEGAN)
    made.end()
    for only, coloured in ((None, [0, 1]), (0, [0])):
        plain = 3 if only is None else 2
        for regex in (False, True):
            asked: Any = {"rank": only, "regex": regex}
            query = r"info \| LOSS" if regex else "info | LOSS"
            assert queries.log_search(made.folder.id, query=query, **asked)["hits"] == coloured
            assert queries.log_search(made.folder.id, query="31", **asked)["hits"] == [plain]
        escapes = queries.log_search(made.folder.id, only, query=r"\x1b\[1;31m", regex=True)
        assert escapes["hits"] == coloured


def test_a_search_ends_when_its_client_leaves(tmp_path: Path, wait_for: Callable[..., Any]) -> None:
    server = Server(tmp_path).start()
    try:
        made = RunMaker(server.runs, 1)
        made.print(0, "a" * 60 + "b\n", BEGAN + 1)  # the expression below needs years for this line

        def searching() -> bool:
            return any(_has_searching_child(task) for task in Path(f"/proc/{server.pid}/task").iterdir())

        with socket.create_connection(("127.0.0.1", server.port)) as left:
            path = api(f"/runs/{made.folder.id}/log/search?regex=true&query=(a%2B)%2B%24")
            head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: token {TOKEN}\r\n\r\n"
            left.sendall(head.encode())
            wait_for(searching, "the search")
        watch = Stopwatch()
        wait_for(lambda: not searching(), "the end of a search whose client has left")
        assert watch.under(5)  # its limit is 10 s
    finally:
        server.stop()


def _has_searching_child(task: Path) -> bool:
    try:
        children = (task / "children").read_text().split()
    except OSError:  # a thread that has ended meanwhile
        return False
    return any(map(_is_search, children))


def _is_search(pid: str) -> bool:
    try:
        return b"pattern_search" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_lines_are_read_by_their_numbers(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    for rank in range(2):
        made.print(rank, "".join(f"line {n}\n" if n % 50 else f"rank {rank}\n" for n in range(300)))
    made.end()
    own = queries.log_lines(made.folder.id, ["0", "1", "299", "300", "120"], rank=1)
    assert [(line["n"], line["text"]) for line in own] == [
        (0, "rank 1"),
        (1, "line 1"),
        (120, "line 120"),
        (299, "line 299"),
    ]
    hits = queries.log_search(made.folder.id, query="rank 1")["hits"]
    found = queries.log_lines(made.folder.id, hits)
    assert [line["n"] for line in found] == hits
    assert [(line["text"], line["ranks"]) for line in found] == [("rank 1", [1])] * 6
    for wrong in (["a"], [-1], range(1001)):
        with pytest.raises(InputError, match="numbers must be"):
            queries.log_lines(made.folder.id, wrong)
