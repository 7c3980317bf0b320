"""The copy of ranks' lines for a platform's own console."""

from __future__ import annotations

from jupyter_dist.agent.console_output import ConsoleOutput

LOG = "attempts/0/ranks/3/output.log"


def told(*frames: tuple[str, int, bytes]) -> list[str]:
    out: list[str] = []
    echo = ConsoleOutput(out.append)
    for path, offset, body in frames:
        echo.take({"is": "chunk", "path": path, "offset": offset}, body)
    echo.finish()
    return "".join(out).splitlines()


def test_lines_are_whole_and_stand_once() -> None:
    assert told((LOG, 0, b"one\ntw"), (LOG, 6, b"o\nthr"), (LOG, 4, b"two\nthree")) == [
        "[3] one",
        "[3] two",
        "[3] three",
    ], "also where a new connection begins before"


def test_a_bar_is_shown_as_it_stands_in_the_end() -> None:
    assert told((LOG, 0, b"\r10%\r100%\r\n\xff\n")) == ["[3] 100%", "[3] \ufffd"]
    assert len(told((LOG, 0, b"x" * 20_000))) == 3


def test_metrics_stand_there_and_nothing_else_does() -> None:
    events = b'{"kind":"metric","step":1,"values":{"loss":0.5,"acc":1}}\n{"kind":"note","text":"n"}\nbroken\n'
    assert told(("attempts/0/ranks/3/events.jsonl", 0, events)) == ["[3] loss=0.5 acc=1"]
    assert told(("attempts/0/ranks/3/result.pkl", 0, b"a\n"), ("attempts/0/launcher.log", 0, b"a\n")) == []
