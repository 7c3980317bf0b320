"""Handlers of logging and loguru that a notebook has set up write the same on the ranks."""

from __future__ import annotations

import logging.handlers
import queue
from typing import Any

import pytest

from jupyter_dist.capture.kernel_logging import read_loggers

SET = """
import logging, sys
%load_ext jupyter_dist
from loguru import logger
from rich.logging import RichHandler

class Passing(logging.Handler):
    def emit(self, record):
        logger.log(record.levelname, record.getMessage())

class Named(logging.Filter):
    def filter(self, record):
        record.where = "here"
        return "secret" not in record.getMessage()

logger.remove()
logger.add("train.log", enqueue=True)
logger.add(sys.stdout, format="loguru {level} {message}", enqueue=True)
rich, named, passing = map(logging.getLogger, ("by_rich", "by_filter", "by_loguru"))
handlers = RichHandler(show_time=False), logging.StreamHandler(sys.stdout), Passing()
for one, handler in zip((rich, named, passing), handlers):
    one.setLevel(logging.INFO)
    one.propagate = False
    one.addHandler(handler)
named.handlers[0].addFilter(Named())
named.handlers[0].setFormatter(logging.Formatter("%(where)s %(message)s"))
"""

LOG = """
logger.info("begins")
rich.info("drawn")
named.info("filtered")
named.info("secret")
passing.warning("passed on")
"""


@pytest.mark.needs("loguru", "rich")
def test_a_notebooks_handlers_write_on_the_ranks(kernel: Any) -> None:
    kernel.run(SET)
    ran = kernel.run(f"%%distribute -np 2\n{LOG}")
    lines = [line.removeprefix("[0-1] ") for line in ran.text.splitlines() if line.startswith("[0-1] ")]
    assert [line for line in lines if "drawn" not in line and line.strip()] == [
        "loguru INFO begins",
        "here filtered",
        "loguru WARNING passed on",
    ], ran.text
    assert any("INFO" in line and "drawn" in line for line in lines), ran.text
    assert ran.text.count("does not send loguru's file, handler (id=1,") == 1, ran.text
    assert "every rank makes locks" not in ran.text, ran.text


def test_a_sessions_handler_writes_each_line_once_and_follows_its_class(kernel: Any) -> None:
    kernel.run("%load_ext jupyter_dist\nimport logging")
    handler = "class Own(logging.Handler):\n    def emit(self, record): print('NAME', record.getMessage())\n"
    for name in ("first", "second"):
        kernel.run(
            handler.replace("NAME", name) + "logging.basicConfig(handlers=[Own()], level='INFO', force=True)"
        )
        for cell in (1, 2):
            ran = kernel.run(f"%%distribute --session logs -np 2\nlogging.info('cell {cell}')")
            assert [line for line in ran.text.splitlines() if "cell" in line] == [f"[0-1] {name} cell {cell}"]
    kernel.run("%dist close logs")


HANDLERS = """
import logging, sys
%load_ext jupyter_dist
class Own(logging.StreamHandler): pass
plain, own = logging.StreamHandler(sys.stdout), Own(sys.stdout)
log = logging.getLogger("mine")
log.handlers, log.propagate = [plain, own], False
log.setLevel("INFO")
"""


def test_a_sessions_handlers_follow_the_notebooks(kernel: Any) -> None:
    kernel.run(HANDLERS)

    def told(cell: str) -> list[str]:
        ran = kernel.run(f"%%distribute --session logs -np 1\n{cell}")
        return [line.removeprefix("[0] ") for line in ran.text.splitlines() if line.startswith("[0] ")]

    look = "print(plain in log.handlers, own in log.handlers); log.info('a')"
    try:
        assert told(look) == ["True True", "a", "a"]
        kernel.run("logging.getLogger('other').setLevel(10)")
        assert told(look) == ["True True", "a", "a"]
        kernel.run("log.addHandler(Own(sys.stdout))")
        assert told("log.info('a')") == ["a", "a", "a"]
        kernel.run("logging.getLogger('other').setLevel(20)")
        assert told("log.info('a')") == ["a", "a", "a"]
        kernel.run("log.handlers.pop()")
        kernel.run("plain.setFormatter(logging.Formatter('%(message)s!'))")
        assert told("log.info('a')") == ["a", "a!"]
        assert told("log.setLevel(0); logging.disable(5); log.addHandler(Own(sys.stdout))") == []
        kernel.run("log.removeHandler(plain)")
        assert told("print(log.level, logging.root.manager.disable); log.warning('a')") == ["0 5", "a", "a"]
        kernel.run("log.removeHandler(own); log.setLevel(0); log.propagate = True")
        assert told("print(log.level, log.propagate, len(log.handlers))") == ["0 True 1"]
    finally:
        kernel.run("%dist close logs")


def test_what_passes_records_on_inside_the_notebook_stays_there() -> None:
    name = "jd passes on"
    handlers = [logging.handlers.QueueHandler(queue.Queue()), logging.handlers.MemoryHandler(9)]
    notes: list[str] = []
    kept: list[Any] = []
    logger = logging.getLogger(name)
    logger.handlers = [*handlers]
    try:
        found = read_loggers(lambda _: False, kept.append, notes.append)
    finally:
        logger.handlers = []
        for handler in handlers:
            handler.close()
    assert not [handler for handler in kept if handler in handlers]
    assert all(each[2]["objects"] == [] for each in found["loggers"] if each[0] == name)
    assert len([note for note in notes if name in note]) == 2


def test_processes_that_a_later_cell_spawns_have_the_notebooks_loggers(kernel: Any) -> None:
    kernel.run(
        "%load_ext jupyter_dist\nimport logging, multiprocessing\nlogging.getLogger('mine').setLevel(35)"
    )
    kernel.run("def level(): return logging.getLogger('mine').level")
    for _ in range(2):
        ran = kernel.run(
            "%%distribute --session spawns -np 1\n"
            "with multiprocessing.get_context('spawn').Pool(1) as pool: print('level', pool.apply(level))"
        )
        assert "level 35" in ran.text, ran.text
    kernel.run("%dist close spawns")
