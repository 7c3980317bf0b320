"""A run whose supervisor is dead while its ranks may go on: no end, and every view says so and what to do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist import queries
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.deadlines import Deadline, wait_until
from jupyter_dist.errors import DistError, InputError, LaunchError
from jupyter_dist.job import State, Supervisor
from jupyter_dist.launch import submission
from jupyter_dist.manage import actions, removal, stack_request
from jupyter_dist.record import reader
from jupyter_dist.record.run_list import ended_before
from jupyter_dist.showing.run import Run
from jupyter_dist.start.follow import attach
from tests.rigs.local_runs import supervisor_pid
from tests.rigs.run_maker import RunMaker
from tests.rigs.server_process import Server
from tests.rigs.stopwatch import Stopwatch

GONE = Supervisor(2**22 - 1, 1, "", "")
# In place of the job's Python: a supervisor that takes the run on and lives until the test kills it.
# The second line has a shell start Python, whose path may have a space, and says nothing in Python.
DIES_AGAIN = """#!/bin/sh
"exec" "{python}" "$0" "$@"
import dataclasses, os, subprocess, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from jupyter_dist import folder
from jupyter_dist.job import State, Supervisor
from jupyter_dist.record import reader
place = folder.RunFolder(Path(sys.argv[3]))
alive = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
was = reader.status(place)
own = Supervisor(alive.pid, reader.start_ticks(alive.pid), os.uname().nodename, reader.boot_id())
new = dataclasses.replace(was, state=State.RUNNING, reason=None, supervisor=own)
folder.write_json(place.state, new.to_json())
"""


def unwatched(runs: Path, python: str = "/nowhere/python", **changes: Any) -> RunMaker:
    made = RunMaker(runs, 2)
    made.job = dataclasses.replace(made.job, python=python)
    folders.write_json(made.folder.job, made.job.to_json())
    gone = dataclasses.replace(GONE, host=os.uname().nodename, boot_id=reader.boot_id())
    made.write(**{"supervisor": gone, "handle": {"hosts": []}, **changes})
    return made


@pytest.fixture
def taken_on(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each call of `resume` has returned. The supervisor is killed once its starter has seen it."""
    original, returned = submission.resume, []

    def resume(place: folders.RunFolder) -> bool:
        returned.append(original(place))
        if returned[-1]:
            os.kill(supervisor_pid(place), signal.SIGKILL)
        return returned[-1]

    monkeypatch.setattr(submission, "resume", resume)
    return returned


@pytest.fixture
def hangs(tmp_path: Path) -> Iterator[str]:
    """A Python that takes for ever to start."""
    script = tmp_path / "slow python"
    script.write_text(f'#!/bin/sh\necho $$ >> "{tmp_path}/pids"\nexec sleep 120\n')
    script.chmod(0o755)
    yield str(script)
    with contextlib.suppress(OSError):
        for pid in (tmp_path / "pids").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"handle": None, "submitting": 1.0},
        {"state": State.UNWATCHED, "handle": None, "reason": "the hosts could not be reached"},
    ],
    ids=["its handle is kept", "a submission had begun", "its supervisor gave up"],
)
def test_it_is_no_end(own_folders: Path, changes: dict[str, Any]) -> None:
    made = unwatched(own_folders, **changes)
    run = Run(made.folder)
    assert run.state is State.UNWATCHED
    assert not run.state.ended
    assert ended_before(time.time()) == []
    with pytest.raises(InputError, match=r"has not ended\. First run `%dist stop .*`\. Nothing"):
        removal.remove([made.folder])
    assert removal.clean(1) == ([], 0)
    with pytest.raises(DistError, match=r"still unwatched .*attach\(.*\)\.wait\(\)"):
        _ = run.results
    with pytest.raises(DistError, match=f"(?s)is unwatched: .*`jupyter dist attach {run.id}` takes it on"):
        run.raise_for_state()
    with pytest.raises(DistError, match="Attach first with `%dist attach"):
        stack_request.take(made.folder)
    assert [row["id"] for row in queries.runs(state="unwatched")["runs"]] == [run.id]
    shown = queries.run(run.id)
    assert (shown["state"], shown["ended"]) == ("unwatched", None)
    assert shown["reason"]


def test_commands_say_it_and_what_to_do(own_folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = unwatched(own_folders)
    made.print(0, "a line\n")
    terminal = Context(terminal=True)
    assert "unwatched" in str(dispatch("runs", terminal))
    told = str(dispatch(f"logs --follow {made.folder.id}", terminal))
    assert "a line" in capsys.readouterr().out
    assert f"`jupyter dist stop {made.folder.id}` ends it" in told
    assert f"`jupyter dist attach {made.folder.id}` takes it on" in str(Run(made.folder)._summary().text())  # type: ignore[union-attr]
    with pytest.raises(InputError, match="has not ended"):
        dispatch(f"rm {made.folder.id}", terminal)
    assert str(dispatch("rm --all-ended", terminal)) == "no run to remove"
    with pytest.raises(LaunchError, match="its Python '/nowhere/python' no longer exists"):
        dispatch(f"stop {made.folder.id}", terminal)


def test_waiting_does_not_hang(own_folders: Path, tmp_path: Path, taken_on: list[bool]) -> None:
    with pytest.raises(LaunchError, match=r"its Python .* no longer exists"):
        Run(unwatched(own_folders).folder).wait()
    script = tmp_path / "python"
    script.write_text(DIES_AGAIN.format(python=sys.executable, root=str(Path(__file__).parents[2])))
    script.chmod(0o755)
    run = Run(unwatched(own_folders, python=str(script)).folder)
    watch = Stopwatch()
    with pytest.raises(DistError, match="is unwatched"):
        run.wait()
    assert watch.under(15)
    assert taken_on == [True], "it was taken on, once"
    with pytest.raises(TimeoutError, match="still unwatched after 0 s"):
        run.wait(timeout_s=0)


def test_a_cell_that_follows_comes_to_an_end(
    own_folders: Path, tmp_path: Path, taken_on: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "python"
    script.write_text(DIES_AGAIN.format(python=sys.executable, root=str(Path(__file__).parents[2])))
    script.chmod(0o755)
    made = unwatched(own_folders, python=str(script))
    made.print(0, "a line\n")
    run = attach(made.folder.id, follow=True)
    assert run.state is State.UNWATCHED
    assert taken_on[0]
    shown = capsys.readouterr().out
    assert "a line" in shown
    assert f"`jupyter dist stop {run.id}` ends it" in shown


def test_a_view_is_answered_at_once_when_it_stops_one(own_folders: Path, hangs: str) -> None:
    made = unwatched(own_folders, python=hangs)
    for kill in (False, True):
        watch = Stopwatch()
        assert actions.stop(made.folder.id, kill=kill) == {"id": made.folder.id, "state": "unwatched"}
        assert watch.under(2)
    assert sorted(os.listdir(made.folder.requests)) == ["kill", "stop"], "a new supervisor finds them"
    started = Path(hangs).with_name("pids")
    wait_until(lambda: started.exists() and started.read_text().endswith("\n"), "the start of a supervisor")
    pids = started.read_text().split()
    assert len(pids) == 1, "one supervisor is started, however often Stop is pressed"
    os.kill(int(pids[0]), signal.SIGKILL)

    def failed() -> bool:
        try:
            actions.stop(made.folder.id)
        except LaunchError:
            return True
        return False

    deadline = Deadline()
    while not failed():
        assert not deadline.passed(), "that the supervisor did not come up is never told"
        time.sleep(0.05)


def test_a_run_that_is_unwatched_again_is_stopped_again(
    own_folders: Path, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    script = tmp_path / "python"
    counting = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
    source = DIES_AGAIN.format(python=sys.executable, root=str(Path(__file__).parents[2]))
    script.write_text(source + counting)
    script.chmod(0o755)
    folder = unwatched(own_folders, python=str(script)).folder
    for starts in ("x", "xx"):
        wait_for(lambda: reader.status(folder).state is State.UNWATCHED, "the state unwatched")
        actions.stop(folder.id)
        count = tmp_path / "starts"
        wait_for(lambda count=count, starts=starts: count.exists() and count.read_text() == starts)
        # The next stop starts no supervisor while the thread of this one is at work.
        wait_for(
            lambda: not any(thread.name == "jupyter-dist-resume" for thread in threading.enumerate()),
            "the end of the thread that has started it",
        )
        os.kill(supervisor_pid(folder), signal.SIGKILL)
        wait_for(lambda: reader.status(folder).state is State.UNWATCHED, "the supervisor's end")


def test_the_server_goes_on_while_unwatched_runs_are_stopped(tmp_path: Path, hangs: str) -> None:
    server = Server(tmp_path / "server")
    server.home.mkdir()
    server.start()
    try:
        made = [unwatched(server.runs, python=hangs) for _ in range(8)]
        quick: list[bool] = []

        def stop(run_id: str) -> None:
            watch = Stopwatch()
            answer = server.call("POST", f"/runs/{run_id}/stop", {})
            assert answer.json["state"] == "unwatched"
            quick.append(watch.under(5))

        threads = [threading.Thread(target=stop, args=(run.folder.id,)) for run in made]
        for thread in threads:
            thread.start()
        watch = Stopwatch()
        assert server.call("GET", "/runs").json["total"] == 8
        quick.append(watch.under(5))
        for thread in threads:
            thread.join()
        assert quick == [True] * 9
    finally:
        server.stop()


def test_a_page_that_watches_hears_of_it(own_folders: Path, wait_for: Callable[..., Any]) -> None:
    made = RunMaker(own_folders, 2)
    watch = queries.RunChanges([made.folder.id, "runs"])
    watch.poll()
    gone = dataclasses.replace(GONE, host=os.uname().nodename, boot_id=reader.boot_id())
    made.write(supervisor=gone, handle={"hosts": []})

    def states() -> list[str]:
        return [message["run"]["state"] for message in watch.poll() if message["kind"] == "run"]

    assert wait_for(states, "the new state") == ["unwatched"]
    made.end(State.STOPPED)
    assert wait_for(states, "the end") == ["stopped"]
