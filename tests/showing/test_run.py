"""`Run` over folders that were made by hand: states, results, metrics, logs, waiting, stopping."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from IPython.lib.pretty import pretty

from jupyter_dist.errors import (
    DistError,
    InputError,
    ResultError,
    RunFailed,
    RunNotFound,
    RunStopped,
    UntrustedFile,
)
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.showing.run import Run
from tests.rigs.run_maker import BEGAN, RunMaker
from tests.rigs.stopwatch import Stopwatch


class Loud:
    """Says when it is unpickled."""

    loaded = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_loud, ()


def _load_loud() -> int:
    Loud.loaded += 1
    return 7


def _broken() -> None:
    raise RuntimeError("no such thing here")


class Broken:
    def __reduce__(self) -> tuple[Any, ...]:
        return _broken, ()


def test_a_run_is_read_from_the_disk_each_time(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    run = Run(made.folder)
    assert (run.id, run.state, run.job.world_size) == (made.folder.id, State.RUNNING, 2)
    made.end()
    assert run.state is State.SUCCEEDED
    assert repr(run) == f"<Run {run.id} succeeded: 2 ranks on local, 12.3 s>"


def test_results_are_a_list_by_rank(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    for rank in range(3):
        made.result(rank, {"rank": rank, "acc": 0.5})
    run = Run(made.end())
    assert run.results == [{"rank": rank, "acc": 0.5} for rank in range(3)]
    assert run.results[-1]["rank"] == 2
    assert len(run.results) == 3
    assert [one["rank"] for one in run.results[1:]] == [1, 2]
    with pytest.raises(IndexError, match="ranks 0 to 2"):
        run.results[3]


def test_a_result_of_none_is_a_result(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.result(0, None)
    assert Run(made.end()).results[0] is None


def test_nothing_is_unpickled_before_a_result_is_asked_for_and_then_once(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.result(0, Loud())
    run = Run(made.end())
    Loud.loaded = 0
    assert run._repr_html_()
    repr(run.results)
    assert Loud.loaded == 0
    assert run.results[0] == 7
    assert run.results[0] == 7
    assert Loud.loaded == 1


def test_one_rank_that_cannot_be_pickled_does_not_hide_the_others(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    made.result(0, 1)
    made.result(1, threading.Lock(), error="cannot pickle 'lock'")
    made.result(2, Broken())
    run = Run(made.end())
    assert run.results[0] == 1
    with pytest.raises(ResultError, match=r"rank 1 .*cannot pickle 'lock'; its repr: <unlocked _thread.lock"):
        run.results[1]
    with pytest.raises(ResultError, match=r"rank 2 .*RuntimeError: no such thing here.*its repr: <.*Broken"):
        run.results[2]
    listed = list(run.results)
    assert listed[0] == 1
    assert repr(listed[1]).startswith("<rank 1: cannot pickle 'lock'")
    assert repr(run.results).startswith("[1, <rank 1: cannot pickle 'lock'; its repr: <unlocked")


def test_a_result_is_found_behind_a_million_metrics(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.rank(0).events.write_bytes(b'{"seq": 0, "time": 1.0, "kind": "metric"}\n' * 20_000)
    made.event(0, "result", repr="é" * 10_000, bytes=None, error="cannot pickle 'x'")
    made.event(0, "note", text="result")
    run = Run(made.end())
    with pytest.raises(ResultError, match=r"cannot pickle 'x'; its repr: éééé"):
        run.results[0]
    assert "éééé" in (run._repr_html_() or "")


def test_a_rank_that_failed_has_no_result(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.result(0, "fine")
    made.set_rank(0, state=State.SUCCEEDED, exit_code=0)
    made.fail(1, "ValueError", "bad", "")
    run = Run(made.end(State.FAILED))
    assert run.results[0] == "fine"
    with pytest.raises(ResultError, match=r"rank 1 .*no result, it failed"):
        run.results[1]


def test_results_of_a_running_run_say_to_wait(own_folders: Path) -> None:
    run = Run(RunMaker(own_folders).folder)
    with pytest.raises(DistError, match=r"still running.*attach\(.*\)\.wait\(\)"):
        run.results  # noqa: B018


def test_a_result_that_others_could_have_written_is_not_loaded(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    made.result(0, Loud())
    made.result(1, 1)
    made.rank(0).result.chmod(0o666)
    run = Run(made.end())
    Loud.loaded = 0
    with pytest.raises(UntrustedFile, match="can be written by others"):
        run.results[0]
    assert Loud.loaded == 0
    assert run.results[1] == 1


def test_a_truncated_result_is_an_error_of_that_rank(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.result(0, list(range(1000)))
    made.result(1, 2)
    path = made.rank(0).result
    path.write_bytes(path.read_bytes()[:-100])
    run = Run(made.end())
    with pytest.raises(ResultError, match=r"rank 0 .*cannot be read back"):
        run.results[0]
    assert run.results[1] == 2


def test_a_slice_of_results_has_those_that_can_be_read(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    for rank in range(3):
        made.result(rank, rank)
    path = made.rank(1).result
    path.write_bytes(path.read_bytes()[:-1])
    first, second, third = Run(made.end()).results[:]
    assert (first, third) == (0, 2)
    assert "cannot be read back (ContainerError: " in repr(second)


def test_a_result_that_only_the_rank_could_not_unpickle_is_there(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.result(0, 5)
    lines = made.rank(0).events.read_text().replace('"error": null', '"error": "cannot be unpickled: E: x"')
    made.rank(0).events.write_text(lines)
    run = Run(made.end())
    assert run.results[0] == 5
    assert "cannot be unpickled: E: x" in pretty(run)


def test_metrics_are_a_frame_that_keeps_nan_and_steps(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.metric(0, 1, {"loss": 0.5, "acc": 0.1})
    made.metric(1, 2, {"loss": "NaN"})
    made.metric(1, None, {"loss": "Infinity"})
    frame = Run(made.folder).metrics
    assert list(frame.columns) == ["rank", "step", "name", "value", "time"]
    assert len(frame) == 4
    assert frame[frame.step == 1].value.tolist() == [0.5, 0.1]
    values = frame[frame.name == "loss"].value.tolist()
    assert sum(map(math.isnan, values)) == 1
    assert math.inf in values
    assert str(frame.step.dtype) == "Int64"


def test_metrics_of_a_run_without_any_are_an_empty_frame(own_folders: Path) -> None:
    frame = Run(RunMaker(own_folders).folder).metrics
    assert list(frame.columns) == ["rank", "step", "name", "value", "time"]
    assert frame.empty


def test_the_log_of_one_rank_is_what_it_wrote(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.print(1, b"\x1b[31mred\x1b[0m\r\nbad \xff byte\nno newline")
    run = Run(made.folder)
    assert run.log(1) == "\x1b[31mred\x1b[0m\r\nbad \ufffd byte\nno newline"
    assert run.log(0) == ""
    with pytest.raises(InputError, match="ranks 0 to 1, not 2"):
        run.log(2)


def test_the_log_of_all_ranks_is_put_together_by_time(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.print(0, "a\nb\n", BEGAN + 1)
    made.print(1, "c\n", BEGAN + 2)
    made.print(0, "d\n", BEGAN + 3)
    made.print(1, "e\nhalf", BEGAN + 4)
    assert Run(made.folder).log() == "[0] a\n[0] b\n[1] c\n[0] d\n[1] e\n[1] half\n"


def test_a_time_index_that_cuts_lines_and_jumps_back_loses_and_turns_nothing(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    when = BEGAN
    expected: dict[int, str] = {0: "", 1: ""}
    for number in range(200):
        text = f"line {number}\n" * (number % 3) + "x" * (number % 5)
        when += 0.05 if number % 7 else -3
        made.print(number % 2, text, when)
        expected[number % 2] += text
    mixed = Run(made.folder).log().splitlines()
    for rank in (0, 1):
        assert [line[4:] for line in mixed if line.startswith(f"[{rank}] ")] == expected[rank].splitlines()


def test_the_log_of_an_earlier_attempt(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1, max_restarts=1)
    made.print(0, "first\n")
    made.next_attempt()
    made.print(0, "second\n")
    run = Run(made.folder)
    assert (run.log(0), run.log(0, attempt=0), run.log(attempt=1)) == ("second\n", "first\n", "[0] second\n")
    with pytest.raises(InputError, match="no attempt 5"):
        run.log(0, attempt=5)


def test_wait_returns_the_run_at_its_end(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    run = Run(made.folder)
    timer = threading.Timer(0.2, made.end)
    timer.start()
    assert run.wait(timeout_s=30) is run
    assert run.state is State.SUCCEEDED
    timer.join()


def test_wait_gives_up_and_leaves_the_run_alone(own_folders: Path) -> None:
    run = Run(RunMaker(own_folders).folder)
    watch = Stopwatch()
    with pytest.raises(TimeoutError, match=r"still running after 0\.1 s"):
        run.wait(timeout_s=0.1)
    assert watch.under(10)
    assert not any(run.folder.requests.iterdir())


def test_stop_asks_and_a_second_time_too(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    run = Run(made.folder)
    run.stop()
    run.stop()
    assert [path.name for path in made.folder.requests.iterdir()] == ["stop"]
    run.stop(kill=True)
    assert (made.folder.requests / "kill").exists()


def test_stopping_an_ended_run_asks_nobody(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    Run(made.end()).stop()
    assert not any(made.folder.requests.iterdir())


def test_raise_for_state_raises_what_happened(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    run = Run(made.folder)
    run.raise_for_state()
    made.end()
    run.raise_for_state()
    made.write(state=State.STOPPED, reason="stopped by the user")
    with pytest.raises(RunStopped, match=r"was stopped after 12\.3 s: stopped by the user") as stopped:
        run.raise_for_state()
    assert stopped.value.run is run
    made.fail(1, "ValueError", "bad", "Traceback …\nValueError: bad\n")
    made.write(state=State.FAILED)
    with pytest.raises(RunFailed, match=r"rank 1 failed first .*ValueError: bad"):
        run.raise_for_state()


def test_a_lost_run_says_so_and_can_still_be_read(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.print(0, "before\n")
    made.metric(0, 1, {"loss": 1.0})
    supervisor = made.status.supervisor
    assert supervisor is not None
    made.write(supervisor=dataclasses.replace(supervisor, start_ticks=supervisor.start_ticks + 1))
    run = Run(made.folder)
    assert run.state is State.LOST
    with pytest.raises(RunFailed, match=r"(?s)is lost: the supervisor is gone.*can be read"):
        run.wait(timeout_s=1).raise_for_state()
    assert run.log(0) == "before\n"
    assert len(run.metrics) == 1


def test_a_removed_run_still_has_a_repr(own_folders: Path) -> None:
    run = Run(RunFolder(own_folders / "20260101-000000-abcd"))
    assert "20260101-000000-abcd' was removed." in repr(run)
    assert run._repr_html_() is None
    with pytest.raises(RunNotFound):
        run.log(0)


def test_files_that_make_no_sense_do_not_break_a_run(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.rank(0).events.write_bytes(b'{"seq": 1, "ti\n[]\n\xff\xfe\n{"seq":2,"time":1.0,"kind":"result"}\n')
    made.rank(1).error.write_bytes(b"{")
    made.rank(1).times.write_bytes(os.urandom(37))
    made.print(1, "text\n")
    run = Run(made.end())
    assert run.log() == "[1] text\n"
    assert run._repr_html_()
    assert run.errors == []
