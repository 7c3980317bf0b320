"""debugpy on real ranks: it answers an editor, on the loopback interface alone, and pdb works beside it."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path

import pytest

from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.errors import MissingEngine
from jupyter_dist.job import State
from jupyter_dist.plan.run_plan import make_plan
from jupyter_dist.queries import run
from tests.rigs.answering import User, waiting
from tests.rigs.launching import ended, launch_cell, results, story

pytestmark = pytest.mark.usefixtures("warm")

REQUEST = {"seq": 1, "type": "request", "command": "initialize", "arguments": {"adapterID": "test"}}


def initialized(port: int) -> bool:
    """Send an editor's first request: https://microsoft.github.io/debug-adapter-protocol/overview"""
    body = json.dumps(REQUEST).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as editor:
        editor.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        answer = b""
        while b'"command": "initialize"' not in answer:
            answer += editor.recv(4096) or pytest.fail(f"debugpy has closed the connection: {answer!r}")
    return b'"success": true' in answer


def test_debugpy_listens_on_each_rank_for_an_editor() -> None:
    folder = launch_cell("local", "breakpoint()\nx = 3\nx", 2, debugpy=True)
    waiting(folder, 2)
    notes = [note for note in run(folder.id)["notes"] if "debugpy" in note]
    found = [re.fullmatch(r"rank (\d): debugpy listens on 127\.0\.0\.1:(\d+) of .+", note) for note in notes]
    ports = {match[1]: int(match[2]) for match in found if match}
    assert sorted(ports) == ["0", "1"], notes
    assert all(map(initialized, ports.values()))
    address = socket.gethostbyname(socket.gethostname())
    if not address.startswith("127."):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, ports["0"]))
    User(folder, 0, 1).say("c")
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 2) == [3, 3]


def test_a_missing_debugpy_is_told_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "debugpy", None)
    with pytest.raises(MissingEngine, match=r"^--debugpy needs debugpy in .*: pip install debugpy$"):
        make_plan({"backend": "local", "debugpy": True, "np": 1})


def test_a_rank_whose_python_has_none_says_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "debugpy.py").write_text("raise ImportError")
    folder = launch_cell("local", "1", 1, debugpy=True, env={"PYTHONPATH": str(tmp_path)})
    status = ended(folder)
    assert status.state is State.FAILED
    assert "--debugpy needs debugpy, and the Python of rank 0 has none. Install it there with" in str(
        status.reason
    )


def test_a_breakpoint_right_after_the_start_opens_pdb() -> None:
    code = (
        "import sys\n"
        "from jupyter_dist.worker.debugger import editor\n"
        "editor._choose = lambda *given: None\n"  # a thread, which may begin late
        "editor.listen('0')\n"
        "assert sys.breakpointhook is sys.__breakpointhook__, sys.breakpointhook\n"
        "import os; os._exit(0)\n"
    )
    done = run_process([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
