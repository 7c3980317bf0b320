"""The hosts of a run as launchers use them, on this machine alone: facts, scripts, hostile files."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.agent import stage_program as stage
from jupyter_dist.agent.frames import encode
from jupyter_dist.backends.ranks.placement import (
    RankEnvironmentOptions,
    environments,
    places,
)
from jupyter_dist.backends.ssh.backend import Ssh
from jupyter_dist.conformance.deadlines import Deadline, wait_for_exit
from jupyter_dist.conformance.run_control import Runs
from jupyter_dist.conformance.target import Target
from jupyter_dist.errors import InputError, LaunchError
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.fleet import Fleet, FleetPoll
from jupyter_dist.hosts.host_messages import unreachable_pairs
from jupyter_dist.hosts.links.link import LinkError
from jupyter_dist.hosts.links.stream import FunctionTransport, Pipe, StreamLink, by_pipe, stage_program
from jupyter_dist.hosts.openssh import SshSettings
from jupyter_dist.hosts.settings import HostSettings
from jupyter_dist.hosts.start import Start
from jupyter_dist.job import Job, State
from jupyter_dist.worker.host.machine import unreached
from tests.rigs.stopwatch import WaitFor

HERE = [{"name": "localhost", "slots": 2}]


def a_job(folder: RunFolder, **options: Any) -> Job:
    return Job(folder.id, "ssh", 2, 0.0, "/tmp", sys.executable, "1", options={"hosts": HERE, **options})


@pytest.fixture
def fleet(folder: RunFolder, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(a_job(folder), folder, HERE, SshSettings(remote_dir=str(tmp_path / "hosts dir")))
    made.connect()
    yield made
    made.release()
    assert os.listdir(tmp_path / "hosts dir") == []


def until_over(fleet: Fleet, wait_for: WaitFor) -> FleetPoll:
    def over() -> FleetPoll | None:
        state = fleet.poll()
        return state if all(process.over for process in state.processes) else None

    found: FleetPoll = wait_for(over, "the end of all processes")
    return found


def test_facts_ports_and_what_was_sent(fleet: Fleet, folder: RunFolder) -> None:
    facts = fleet.facts("localhost")
    assert (facts.python, facts.slots, facts.node) == (sys.executable, 2, 0)
    stage = Path(facts.stage)
    assert stage.stat().st_mode & 0o777 == 0o700
    assert (stage / "run" / "payload.pkl").read_bytes() == b"a payload"
    # What is there is all that a rank imports.
    code = "import jupyter_dist, cloudpickle as c; print(jupyter_dist.__file__, c.__file__, sep='|')"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=stage / "code", capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip().split("|") == [
        f"{stage}/code/{name}/__init__.py" for name in ("jupyter_dist", "cloudpickle")
    ]
    fleet.ask_for_ports({"localhost": 3})
    while not fleet.poll().ready:
        fleet.wait(0.05)
    assert len(set(fleet.ports("localhost"))) == 3


def test_launchers_and_ranks_are_told_apart(fleet: Fleet, folder: RunFolder, wait_for: WaitFor) -> None:
    log = 'echo "of $WHO"; exit $CODE'
    fleet.start(
        0,
        [
            Start("localhost", ("sh", "-c", log), {"WHO": "the launcher", "CODE": "0"}),
            Start("localhost", ("sh", "-c", log), {"WHO": "a rank", "CODE": "4"}, rank=1),
        ],
    )
    state = until_over(fleet, wait_for)
    assert {process.rank: process.exit_code for process in state.processes} == {None: 0, 1: 4}
    launcher = folder.path / "attempts" / "0" / "launcher-localhost.log"
    assert launcher.read_text() == "of the launcher\n"
    assert folder.rank(0, 1).output.read_text() == "of a rank\n"
    fleet.start(1, [Start("localhost", ("true",), {}, rank=0)])
    assert [process.exit_code for process in until_over(fleet, wait_for).processes] == [0]


def test_the_start_script_is_the_same_path_for_every_host(fleet: Fleet, wait_for: WaitFor) -> None:
    fleet.prepare({"localhost": {"MINE": "a 'value'"}})
    wait_for(lambda: fleet.poll().ready, "the script")
    script = fleet.facts("localhost").start
    shown = subprocess.run(
        [script, "sh", "-c", 'echo "$MINE"; pwd'], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"a 'value'\n{fleet.facts('localhost').stage}/code\n"


def test_a_python_of_another_version_is_refused_with_both_versions(folder: RunFolder, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 3.8\n")
    fake.chmod(0o700)
    settings = SshSettings(remote_dir=str(tmp_path / "hosts"), python=str(fake))
    with pytest.raises(LaunchError) as told:
        Fleet(a_job(folder), folder, HERE, settings).connect()
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert str(told.value).startswith(
        f"host localhost: it has no Python {own} at {str(fake)!r} ({fake} is 3.8)"
    )
    assert "--python" in str(told.value)
    assert "--other-python" not in str(told.value)  # ranks cannot run with Python 3.8
    assert not (tmp_path / "hosts").exists()


def test_with_the_flag_too_an_old_python_is_refused(folder: RunFolder, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 3.8\n")
    fake.chmod(0o700)
    settings = SshSettings(remote_dir=str(tmp_path / "hosts"), python=str(fake), other_python=True)
    with pytest.raises(LaunchError) as told:
        Fleet(a_job(folder), folder, HERE, settings).connect()
    assert f"it has no Python from 3.9 on at {str(fake)!r} ({fake} is 3.8)" in str(told.value)


def test_a_folder_that_cannot_be_made_is_told(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match=r"host localhost: its folder cannot be set up: .*/file"):
        Fleet(a_job(folder), folder, HERE, SshSettings(remote_dir=str(tmp_path / "file"))).connect()


def test_ssh_that_is_missing_is_told(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="openssh-client"):
        Ssh().check(1, {"hosts": [{"name": "h1", "slots": 1}]})
    with pytest.raises(LaunchError, match="host h1: cannot run ssh"):
        Fleet(a_job(folder), folder, [{"name": "h1", "slots": 1}], SshSettings()).connect()


def test_another_attempt_sets_the_hosts_up_again_that_failed(
    folder: RunFolder, tmp_path: Path, wait_for: WaitFor
) -> None:
    place = tmp_path / "hosts"
    place.touch()
    fleet = Fleet(a_job(folder), folder, HERE, SshSettings(remote_dir=str(place)))
    fleet.begin()
    wait_for(lambda: fleet.poll().failed, "the failure")
    assert not fleet.poll().final
    place.unlink()
    fleet.renew()
    wait_for(lambda: fleet.poll().ready, "the host")
    fleet.release()


def test_a_host_without_the_right_python_is_final(folder: RunFolder, wait_for: WaitFor) -> None:
    fleet = Fleet(a_job(folder), folder, HERE, SshSettings(python="/no/such/python"))
    fleet.begin()
    wait_for(lambda: fleet.poll().failed, "the failure")
    assert fleet.poll().final


def test_a_run_is_not_started_again_where_that_makes_no_sense(tmp_path: Path) -> None:
    flags = {"hosts": "localhost:2", "python": "/no/such/python"}
    runs = Runs(Target("ssh", flags=flags, startup_s=1), tmp_path / "runs")
    try:
        run = runs.finish("1", max_restarts=3)
        assert (run.state, run.status.attempt) == (State.FAILED, 0)
        assert "it has no Python at '/no/such/python'" in str(run.status.reason)
    finally:
        runs.close()


def test_an_idle_agent_that_did_not_wait_is_set_up_once_more(fleet: Fleet, wait_for: WaitFor) -> None:
    """As after a line was cut for long while other hosts were set up."""
    fleet.ask_for_ports({"localhost": 1})
    wait_for(lambda: fleet.poll().ready, "a port")
    stage = Path(fleet.facts("localhost").stage)
    marker = f"JUPYTER_DIST_STAGE={stage}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                marker in (entry / "environ").read_bytes()
                and b"jupyter_dist.agent" in (entry / "cmdline").read_bytes()
            ):
                os.kill(int(entry.name), signal.SIGTERM)
    wait_for(lambda: not fleet.poll().ready, "the end of the agent")
    wait_for(lambda: fleet.poll().ready, "another agent")
    assert fleet.poll().failed is None
    fleet.start(0, [Start("localhost", ("echo", "hello"), {}, rank=0)])
    assert [process.exit_code for process in until_over(fleet, wait_for).processes] == [0]


def test_what_a_stage_program_of_another_version_says(folder: RunFolder, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-I", stage.__file__, "a-word"]
    with subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno()):
        theirs.close()
        wish = {"dir": str(tmp_path / "there"), "run": folder.id, "node": 0, "version": "3.8"}
        wish["other_python"] = "Run it with Python 3.8"
        link = StreamLink("far", FunctionTransport(lambda: Pipe.of_socket(ours, "a-word")), wish, [])
        link.open("stage")

        def wait() -> None:
            while not link.pump():
                time.sleep(0.01)

        with pytest.raises(LinkError, match=r"its Python is .* notebook's is 3\.8\. .* Python 3\.8$") as told:
            wait()
        assert told.value.final
    assert not (tmp_path / "there").exists()


def test_any_socket_is_a_link(folder: RunFolder, tmp_path: Path, wait_for: WaitFor) -> None:
    """Whoever opens the pipe: here a socket, whose other end is a stage program's stdin and stdout."""
    programs = []

    def dial(host: str) -> Pipe:
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-I", "-c", stage_program(), "word"]
        programs.append(subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno()))
        theirs.close()
        return Pipe.of_socket(ours, "word")

    hosts = [{"name": "far", "slots": 1}]
    fleet = Fleet(
        a_job(folder), folder, hosts, HostSettings(remote_dir=str(tmp_path / "there")), by_pipe(dial)
    )
    fleet.connect()
    fleet.start(0, [Start("far", ("sh", "-c", "echo hello"), {}, rank=0)])
    until_over(fleet, wait_for)
    assert folder.rank(0, 0).output.read_text() == "hello\n"
    fleet.release()
    assert os.listdir(tmp_path / "there") == []
    assert [wait_for_exit(program) for program in programs] == [0]


def test_all_ways_between_hosts_are_told() -> None:
    class Cut:
        def __init__(self, name: str, **no_way: str) -> None:
            self.name, self.no_way = name, no_way

    hosts: Any = [Cut("a"), Cut("b", a="No route to host", c="timed out"), Cut("c", a="No route to host")]
    first, second = unreachable_pairs(hosts, "a", "a at 10.0.0.1, port 7")
    assert first.startswith(
        "b, c cannot connect to a at 10.0.0.1, port 7 (No route to host), where the ranks"
    )
    assert second.startswith("no connection from b to c (timed out), which ranks")


def test_ports_that_nobody_answers_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        ports = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        places = {"open": ("127.0.0.1", ports[0]), "refused": ("127.0.0.1", ports[1])}
        assert unreached({**places, "none": ("no such host", 1)}, 1.0).keys() == {"none"}


def test_only_our_own_old_folders_are_removed(folder: RunFolder, tmp_path: Path) -> None:
    """A user's folder below --remote-dir may look like a stage: its name, its age, a file `start` in it."""
    there = tmp_path / "there"
    ours, another = there / "20200101-000000-abcd12", there / "20200101-000000-abcd13"
    trial = there / "20200101-000000-abcd12-t3"
    theirs = [there / "2020 data", there / "20200101-000000-abcd14", there / "20200101-000000-abcd15"]
    for made in (ours, trial, another, *theirs):
        (made / "0").mkdir(parents=True)
        (made / "start").touch()
        (made / "0" / "thesis.txt").touch()
    for made in (ours, trial, another):
        (made / ".jupyter-dist").write_text(f"{made.name}\n")
    (theirs[2] / ".jupyter-dist").write_text("copied from elsewhere\n")
    for made in (ours, trial, *theirs):
        for path in (made / "0", made):
            os.utime(path, (1e9, 1e9))
    fleet = Fleet(a_job(folder), folder, HERE, SshSettings(remote_dir=str(there)))
    fleet.connect()
    assert {path.name for path in there.iterdir()} == {
        folder.id,
        another.name,
        *(path.name for path in theirs),
    }
    fleet.release()


def test_values_of_env_reach_the_ranks_and_no_file(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    job = Job(folder.id, "ssh", 2, 0.0, "/tmp", sys.executable, "1", env_names=("TOKEN",))
    where = places(2, HERE)
    facts = {"localhost": fleet.facts("localhost")}
    envs = environments(job, 0, RankEnvironmentOptions(), where, facts, {"localhost": [1, 2, 3, 4]})
    assert [env["TOKEN"] for env in envs] == ["hush"] * 2
    assert envs[0]["MASTER_ADDR"] == "127.0.0.1"
    assert envs[0]["GLOO_SOCKET_IFNAME"] == "lo"
    deadline = Deadline()
    fleet.start(0, [Start("localhost", ("true",), envs[0], rank=0)])
    while not all(process.over for process in fleet.poll().processes):
        assert not deadline.passed()
        fleet.wait(0.05)
    stage = Path(fleet.facts("localhost").stage)
    texts = [path.read_bytes() for path in stage.rglob("*") if path.is_file()]
    assert not any(b"hush" in text for text in texts)


def test_the_last_frames_count_although_the_connection_has_ended() -> None:
    """A slow driver finds an agent's farewell and the end of the pipe in one reading."""
    ours, theirs = socket.socketpair()
    link = StreamLink("far", FunctionTransport(lambda: Pipe.of_socket(ours, "a-word")), {}, [])
    link.open("resume")
    theirs.sendall(b"a-word ok\n" + encode({"is": "sent"}) + encode({"is": "released"}))
    theirs.close()
    assert [header["is"] for header, _ in link.pump()] == ["sent", "released"]
    with pytest.raises(LinkError):
        link.pump()
    assert not link.opened
