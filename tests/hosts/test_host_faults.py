"""What befalls runs over several hosts: links, disks, clocks, keys, agents and supervisors that fail.

Each run ends in the right state, says which host and which rank, keeps what had arrived, and leaves
nothing running.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist.conformance import Target
from jupyter_dist.conformance.run_control import Runs, assert_state, story, wait_until
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.record.logs import terminal_log
from jupyter_dist.showing.run import Run
from jupyter_dist.worker import layout
from tests.rigs.hosts import Hosts
from tests.rigs.stopwatch import Stopwatch

TWO = pytest.mark.parametrize("hosts", [2], indirect=True)
GRACE_S = 6.0

# Counts until it is told to end by a file on its host, then says how far it came.
COUNTS = """
import os, time
import jupyter_dist as dist

number = 0
print("up")
while not os.path.exists("/tmp/enough"):
    print("line", number)
    dist.log(count=number, step=number)
    number += 1
    time.sleep(0.02)
print("line", number)
number
"""

# They pass a ball: what each prints has one true order. Then the last one fails first.
PLAYS = """
import os, socket, time
import jupyter_dist as dist
from jupyter_dist.worker.output import time_index

own = os.path.join(os.environ["JUPYTER_DIST_RUN"], "attempts", "0", "ranks", str(dist.rank()))
address = (os.environ["MASTER_ADDR"], PORT)
if dist.rank() == 0:
    server = socket.create_server(("", PORT))
    ball = server.accept()[0]
    ball.sendall(b"x")
else:
    for _ in range(3000):
        try:
            ball = socket.create_connection(address, 10)
            break
        except OSError:
            time.sleep(0.02)
for number in range(TURNS):
    ball.recv(1)
    print("turn", 2 * number + 1 - dist.rank())
    dist.log(turn=2 * number + 1 - dist.rank(), step=number)
    # A line's time is that of a look at the log, which may come late.
    while time_index.covered(own + "/times.idx") < os.path.getsize(own + "/output.log"):
        time.sleep(0.02)
    time.sleep(0.4)  # more than the two clocks are known apart
    if dist.rank() == 1 and number == TURNS - 1:
        raise ValueError("the first to fail")
    ball.sendall(b"x")
ball.recv(1) or time.sleep(0.4)
raise RuntimeError("the second to fail")
"""


@pytest.fixture
def runs(hosts: Hosts, tmp_path: Path) -> Iterator[Runs]:
    """Runs of one rank on each host."""

    def lives(host: str, pid: int) -> bool:
        return any(process.own_pid == pid for process in hosts.pids(host))

    flags = {
        "hosts": ",".join(f"{name}:1" for name in hosts.names),
        "ssh_config": str(hosts.ssh_config),
        "grace": GRACE_S,
    }
    started = Runs(
        Target("ssh", np=max(2, len(hosts.names)), flags=flags, startup_s=5.0, lives=lives), tmp_path / "runs"
    )
    yield started
    started.close()


def lines(run: Run, rank: int) -> list[int]:
    """The numbers a rank has counted, as far as they are here; each once and in order, or the test fails."""
    text = reader.output(run.folder, rank).decode()
    numbers = [int(word) for word in re.findall(r"^line (\d+)$", text, re.MULTILINE)]
    assert numbers == list(range(len(numbers))), f"rank {rank}: lines are lost or torn"
    return numbers


def until_reason(run: Run, *words: str) -> None:
    """Wait until the running run says what hinders it."""

    def told() -> bool:
        if run.state.ended:
            pytest.fail(story(run))
        return all(word in (run.status.reason or "") for word in words)

    wait_until(told, f"a reason with {words}", run)


def grows(run: Run, rank: int, by: int = 20) -> None:
    """Wait until more of the rank's lines have arrived."""
    before = len(lines(run, rank))
    wait_until(lambda: len(lines(run, rank)) >= before + by, f"more lines of rank {rank}", run)


def enough(hosts: Hosts, names: Sequence[str] | None = None) -> None:
    for name in names or hosts.names:
        hosts.exec(name, ["touch", "/tmp/enough"])


def ends(hosts: Hosts, run: Run, name: str) -> None:
    """Wait until nothing runs on the host; an agent that nobody talks to has its grace."""
    wait_until(lambda: not hosts.pids(name), f"the end of all on {name}: {hosts.pids(name)}", run)


def clean(hosts: Hosts, run: Run, names: Sequence[str] | None = None) -> None:
    """Nothing runs on the hosts, and the run's folders are gone."""
    for name in names or hosts.names:
        ends(hosts, run, name)
        staged = hosts.exec(
            name, ["find", f"{hosts.home}/.cache/jupyter-dist", "-type", "f"], check=False
        ).stdout
        assert staged == "", name


def counted(run: Run, rank: int) -> None:
    """All the rank printed and logged is here, and its result too."""
    assert lines(run, rank)[-1] == run.results[rank]
    logged = [
        event.data["step"]
        for event in reader.events(run.folder)
        if event.rank == rank and event.kind == "metric"
    ]
    assert logged == list(range(run.results[rank]))


@TWO
def test_a_cut_that_is_mended_loses_nothing(hosts: Hosts, runs: Runs) -> None:
    run = runs.until_up(runs.start(COUNTS, grace=120.0))
    grows(run, 1)
    hosts.cut("h2")
    until_reason(run, "h2", "rank 1")
    seen = len(lines(run, 1))
    grows(run, 0)
    assert len(lines(run, 1)) == seen
    hosts.mend("h2")
    grows(run, 1, by=200)  # also what was printed during the cut
    wait_until(lambda: run.status.reason is None, "the reason to go away", run)
    enough(hosts)
    assert_state(runs.wait(run), State.SUCCEEDED)
    for rank in (0, 1):
        counted(run, rank)
    assert run.status.reason is None
    clean(hosts, run)


@TWO
def test_a_cut_that_is_not_mended_fails_the_run(hosts: Hosts, runs: Runs) -> None:
    run = runs.until_up(runs.start(COUNTS))
    grows(run, 1)
    hosts.cut("h2")
    seen = len(lines(run, 1))
    assert_state(runs.wait(run), State.FAILED)
    reason = run.status.reason or ""
    assert "rank 1 on h2" in reason, reason
    assert len(lines(run, 1)) >= seen
    (error,) = [error for error in run.errors if not error.collateral]
    assert (error.rank, error.host, error.kind) == (1, "h2", "lost")
    assert run.status.ranks[0].state is State.STOPPED
    clean(hosts, run, ["h1"])
    # Its agent cannot know more than that nobody is there, and ends all after the grace.
    ends(hosts, run, "h2")


@TWO
def test_stop_reaches_what_it_can_during_a_cut(hosts: Hosts, runs: Runs) -> None:
    run = runs.until_up(runs.start(COUNTS))
    hosts.cut("h2")
    run.stop()
    assert_state(runs.wait(run), State.STOPPED)
    assert "h2" in (run.status.reason or ""), run.status.reason
    lines(run, 1)
    clean(hosts, run, ["h1"])
    ends(hosts, run, "h2")


@TWO
def test_a_killed_agent_takes_its_ranks_along(hosts: Hosts, runs: Runs) -> None:
    run = runs.until_up(runs.start(COUNTS))
    grows(run, 1)
    seen = len(lines(run, 1))
    # The first of its name: the others are forks of it.
    agent, *_ = [process for process in hosts.pids("h2") if "jupyter_dist.agent" in process.argv]
    os.kill(agent.pid, signal.SIGKILL)
    assert_state(runs.wait(run), State.FAILED)
    reason = run.status.reason or ""
    assert "rank 1 on h2" in reason, reason
    assert len(lines(run, 1)) >= seen
    clean(hosts, run)


@TWO
def test_a_host_that_was_started_anew_serves_a_restart(hosts: Hosts, runs: Runs) -> None:
    run = runs.until_up(runs.start(COUNTS, grace=120.0, max_restarts=1))
    grows(run, 1)
    hosts.power_off("h2")
    hosts.power_on("h2")
    wait_until(lambda: run.status.attempt == 1, "the restart", run)
    # The status may already tell what the new attempt waits for.
    log = run.folder.supervisor_log.read_text()
    assert re.search("rank 1 on h2 .* restart 1 of 1", log), log
    assert reader.output(run.folder, 1, 0).decode().startswith("up\nline 0\n")
    runs.until_up(run)
    hosts.power_off("h2")
    hosts.power_on("h2")
    assert_state(runs.wait(run), State.FAILED)
    assert "rank 1 on h2" in (run.status.reason or ""), run.status.reason
    clean(hosts, run)


@TWO
def test_a_full_disk_is_told_with_its_host(hosts: Hosts, runs: Runs) -> None:
    run = runs.until_up(runs.start(COUNTS))
    grows(run, 1)
    hosts.fill_disk("h2")
    assert_state(runs.wait(run), State.FAILED)
    reason = run.status.reason or ""
    assert re.search("rank 1 failed: OSError: .*[Nn]o space", reason), reason
    assert (run.errors[0].rank, run.errors[0].host) == (1, "h2")
    lines(run, 1)
    clean(hosts, run)

    # Full from the start: nothing is started at all. What the first run has held is free again.
    for left, told in ((1 << 20, r"has 1\.0 MB free, and the run needs"), (0, "No space left .*: free some")):
        hosts.fill_disk("h2", but=left)
        run = runs.finish(COUNTS)
        assert_state(run, State.FAILED)
        reason = run.status.reason or ""
        assert re.search(f"^host h2: .*{told}", reason), reason
        clean(hosts, run)
    hosts.empty_disk("h2")
    run = runs.until_up(runs.start(COUNTS))
    enough(hosts)
    assert_state(runs.wait(run), State.SUCCEEDED)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "small", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path, hosts: Hosts, run: Run) -> Path:
    """Leave no room on it, and wait until nothing more of what ranks print arrives; returns what fills it."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

    def behind() -> bool:
        logs = f"cat {hosts.home}/.cache/jupyter-dist/hosts/{run.id}/*/run/attempts/0/ranks/*/{layout.OUTPUT}"
        return all(
            len(hosts.exec(name, ["sh", "-c", logs]).stdout) > len(reader.output(run.folder, rank)) + 1000
            for rank, name in enumerate(hosts.names)
        )

    wait_until(behind, "a disk that takes nothing more", run)
    return filler


@TWO
def test_a_full_disk_here_leaves_on_the_hosts_what_it_could_not_take(
    hosts: Hosts, runs: Runs, small_disk: Path
) -> None:
    here = Runs(runs.target, small_disk / "runs")
    run = here.until_up(here.start(COUNTS, grace=120.0))  # the hosts are told: no grace ends what is there
    fill(small_disk, hosts, run)
    run.stop()
    for name in hosts.names:
        ends(hosts, run, name)
    assert_state(here.wait(run), State.STOPPED)
    here.close()
    told = dict(re.findall(r"on host (\w+) cannot be .*? stays there in '([^']+)'", run.status.told or ""))
    assert set(told) == set(hosts.names), run.status.told
    for name in hosts.names:
        find = ["find", f"{hosts.home}/.cache/jupyter-dist", "-type", "f"]
        left = hosts.exec(name, find, check=False).stdout.split("\n")[:-1]
        # Beside it only what tells the folder from a user's: the code and the values that were sent are gone.
        beside = [path for path in left if not path.startswith(f"{told[name]}/")]
        assert {path.rpartition("/")[2] for path in beside} == {"start", ".jupyter-dist"}
        more = 0
        for path in left:
            if path.endswith((layout.OUTPUT, layout.EVENTS)):
                there = hosts.exec(name, ["cat", path]).stdout
                here_too = (run.folder.path / path.removeprefix(f"{told[name]}/")).read_text()
                assert there.startswith(here_too)
                more += len(there) - len(here_too)
        assert more > 0


@TWO
def test_a_disk_here_that_has_room_again_gets_all_of_it(hosts: Hosts, runs: Runs, small_disk: Path) -> None:
    here = Runs(runs.target, small_disk / "runs")
    run = here.until_up(here.start(COUNTS, grace=120.0))
    fill(small_disk, hosts, run).unlink()
    for rank in (0, 1):
        grows(run, rank)
    enough(hosts)
    assert_state(here.wait(run), State.SUCCEEDED)
    for rank in (0, 1):
        counted(run, rank)
    assert run.status.told is None
    here.close()
    clean(hosts, run)


@pytest.mark.parametrize("hosts", [["h2"]], indirect=True)
def test_a_killed_supervisor_is_replaced_by_attach(hosts: Hosts, runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "enough"
    hosts.exec("h2", ["mkdir", "-p", str(tmp_path)])
    source = COUNTS.replace("/tmp/enough", str(file))
    stages = tmp_path / "stages"
    flags: dict[str, Any] = {"hosts": "localhost:1,h2:1", "remote_dir": str(stages), "grace": 120.0}
    run = runs.until_up(runs.start(source, **flags))
    grows(run, 1)
    kill_supervisor(run)
    time.sleep(1.0)  # the ranks go on while nobody listens
    with runs.here():
        run = jupyter_dist.attach(run.id)
    assert run.state is State.RUNNING
    for rank in (0, 1):
        grows(run, rank, by=100)  # also what was printed meanwhile
    file.touch()
    hosts.exec("h2", ["touch", str(file)])
    assert_state(runs.wait(run), State.SUCCEEDED)
    for rank in (0, 1):
        counted(run, rank)
    clean(hosts, run)
    assert list(stages.iterdir()) == []
    assert hosts.exec("h2", ["ls", str(stages)]).stdout == ""


@TWO
def test_ranks_whose_supervisor_never_returns_end_after_the_grace(hosts: Hosts, runs: Runs) -> None:
    run = runs.until_up(runs.start(COUNTS))
    kill_supervisor(run)
    seen = len(lines(run, 1))
    for name in hosts.names:
        ends(hosts, run, name)
    # What they wrote until then can still be fetched.
    with runs.here():
        run = jupyter_dist.attach(run.id)
    assert runs.wait(run).state in (State.FAILED, State.STOPPED)
    assert "--grace" in (run.status.reason or ""), run.status.reason
    assert len(lines(run, 1)) > seen + 40
    clean(hosts, run)


@pytest.mark.parametrize("hosts", [7], indirect=True)
def test_each_host_that_cannot_be_used_is_named_with_its_cure(hosts: Hosts, runs: Runs) -> None:
    hosts.change_host_key("h2")
    hosts.forget_host_key("h3")
    hosts.power_off("h4")
    forget_neighbour(hosts, "h4")
    hosts.without_python("h5")
    hosts.without_python("h6")
    another_python(hosts, "h6")
    hosts.exec("h7", ["rm", "-r", f"{hosts.home}/.ssh"])
    known = hosts.known_hosts.read_text()
    run = runs.finish(COUNTS)
    assert_state(run, State.FAILED)
    reason = run.status.reason or ""

    def about(name: str) -> str:
        """What is said of one host."""
        found = re.search(rf"\b{name}\b.*?(?=\bh[1-9]\b:|\Z)", reason, re.DOTALL)
        assert found, reason
        return found[0]

    assert not re.search(r"\bh1\b:", reason), reason
    # Nothing was learned or accepted on the way.
    assert hosts.known_hosts.read_text() == known
    for word in ("not the one that was known", hosts.fingerprint("h2"), "ssh-keygen -R"):
        assert word in about("h2")
    for word in ("not known", hosts.fingerprint("h3"), "ssh-keyscan"):
        assert word in about("h3")
    assert "cannot be reached" in about("h4")
    assert "no Python" in about("h5")
    assert "--python" in about("h6")
    assert "refuses the login" in about("h7")
    assert "ssh-copy-id" in about("h7")
    clean(hosts, run, ["h1", "h2", "h3", "h5", "h6", "h7"])
    # The cures for keys do cure.
    for name in ("h2", "h3"):
        for cure in re.findall(r"ssh-keygen -R \S+ -f [^\s,]+|ssh-keyscan \S+ >> \S+", about(name)):
            subprocess.run(["sh", "-c", cure], check=True, capture_output=True)
    run = runs.finish("import socket\nsocket.gethostname()", np=2, hosts="h2:1,h3:1")
    assert_state(run, State.SUCCEEDED)
    assert list(run.results) == ["h2", "h3"]


@TWO
def test_clocks_an_hour_apart_and_a_login_that_talks(hosts: Hosts, runs: Runs) -> None:
    hosts.skew("h1", -1800)
    hosts.skew("h2", 1800)
    for name in hosts.names:
        hosts.exec(name, ["sh", "-c", "echo 'echo Welcome to $HOSTNAME; echo careful >&2' > ~/.bashrc"])
    turns = 4
    began = time.time()
    run = runs.finish(PLAYS, {"PORT": 4711, "TURNS": turns})
    assert_state(run, State.FAILED)
    assert "rank 1 failed: ValueError: the first to fail" in (run.status.reason or "")
    first = run.errors[0]
    assert (first.rank, first.message) == (1, "the first to fail")
    printed = [line.text for line in terminal_log.read_log(run.folder)[0] if line.text.startswith("turn")]
    assert printed[: 2 * turns] == [f"turn {i}" for i in sorted(int(line.split()[1]) for line in printed)]
    logged = [event for event in reader.events(run.folder) if event.kind == "metric"]
    logged.sort(key=lambda event: event.time)
    values = [event.data["values"]["turn"] for event in logged]
    assert values == sorted(values)
    assert all(began - 1 < event.time < time.time() + 1 for event in logged)
    for rank in run.status.ranks:
        assert began - 1 < (rank.started or 0) <= (rank.ended or 0) < time.time() + 1
    clean(hosts, run)


@TWO
def test_a_line_of_200_ms(hosts: Hosts, runs: Runs) -> None:
    for name in hosts.names:
        hosts.delay(name, 200)
    run = runs.until_up(runs.start(COUNTS))
    grows(run, 1)
    enough(hosts)
    assert_state(runs.wait(run), State.SUCCEEDED)
    for rank in (0, 1):
        counted(run, rank)
    run = runs.until_up(runs.start(COUNTS.replace("/tmp/enough", "/tmp/never")))
    watch = Stopwatch()
    run.stop()
    assert_state(runs.wait(run), State.STOPPED)
    assert watch.under(8)
    clean(hosts, run)


def kill_supervisor(run: Run) -> None:
    supervisor = run.status.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: run.state is State.UNWATCHED, "a run without a supervisor", run)


def forget_neighbour(hosts: Hosts, name: str) -> None:
    """Let the kernel find out at once that the host answers nothing, also where it was known until now.

    It then takes 3 s to say so. To a known neighbour, ssh tries until its own time is over.
    """
    to = ["to", hosts.address(name), "dev", hosts.interface]
    subprocess.run(["ip", "neigh", "flush", *to], check=True, capture_output=True)


def another_python(hosts: Hosts, name: str) -> None:
    """Give the host a Python of another minor version; where this machine has none, one that says so."""
    own = f"3.{sys.version_info[1]}."
    for path in sorted(Path.home().glob(".pyenv/versions/3.1*/bin/python3")):
        if not path.parents[1].name.startswith(own):
            hosts.exec(name, ["ln", "-s", str(path), "/usr/bin/python3"])
            return
    hosts.exec(
        name,
        ["sh", "-c", "(echo '#!/bin/sh'; echo 'echo 3.9') > /usr/bin/python3; chmod +x /usr/bin/python3"],
    )
