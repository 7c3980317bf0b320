"""mpirun and mpiexec over hosts with real sshd: results, causes, stops, and nothing left behind."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.backends.mpi.backend import Mpi
from jupyter_dist.backends.mpi.options import MpiOptions
from jupyter_dist.backends.shared_options.hosts import check_hosts
from jupyter_dist.errors import InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, State
from jupyter_dist.record import reader
from jupyter_dist.worker import payload as container
from tests.rigs.hosts import Hosts, missing
from tests.rigs.launching import ended, launch_cell, story, until_up
from tests.rigs.stopwatch import WaitFor

TWO = ({"name": "h1", "slots": 2}, {"name": "h2", "slots": 2})


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    with Hosts(tmp_path_factory.mktemp("mpi") / "hosts", ["h1", "h2"]) as running:
        yield running


@pytest.fixture(params=["mpirun.openmpi", "mpiexec.mpich"])
def mpirun(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        package = {"mpirun.openmpi": "openmpi-bin", "mpiexec.mpich": "mpich"}[request.param]
        pytest.skip(f"needs {request.param}: apt-get install {package}")
    return str(request.param)


def start(hosts: Hosts, source: str, mpirun: str, np: int = 2, **more: Any) -> RunFolder:
    slots = more.pop("slots", 1)
    listed = [{"name": name, "slots": slots} for name in hosts.names]
    given = {"python": sys.executable, "ssh_config": str(hosts.ssh_config), "mpirun": mpirun}
    return launch_cell("mpi", source, np, {"hosts": listed, **given}, **more)


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest, wait_for: WaitFor) -> Iterator[None]:
    yield
    if "hosts" in request.fixturenames:
        hosts: Hosts = request.getfixturevalue("hosts")
        wait_for(
            lambda: not [p.argv for name in hosts.names for p in hosts.pids(name)],
            what="the hosts' processes",
        )
        for name in hosts.names:
            left = hosts.exec(name, ["sh", "-c", "ls ~/.cache/jupyter-dist/hosts 2>/dev/null || true"])
            assert left.stdout == ""


def test_ranks_fill_the_hosts_and_find_each_other(
    hosts: Hosts, mpirun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNASKED", "stays here")
    source = """
import os, socket
print("on", socket.gethostname())
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MINE".split()
[os.environ[name] for name in names], socket.gethostname(), os.environ.get("UNASKED")
"""
    folder = start(hosts, source, mpirun, 3, slots=2, env={"MINE": "hush"})
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    address = hosts.address("h1")
    assert [container.load(folder.rank(0, rank).result) for rank in range(3)] == [
        (["0", "0", "3", "2", "0", address, "hush"], "h1", None),
        (["1", "1", "3", "2", "0", address, "hush"], "h1", None),
        (["2", "0", "3", "1", "1", address, "hush"], "h2", None),
    ]
    assert [reader.output(folder, rank).decode() for rank in range(3)] == ["on h1\n", "on h1\n", "on h2\n"]
    assert [(rank.host, rank.local_rank) for rank in reader.status(folder).ranks] == [
        *(("h1", 0), ("h1", 1)),
        ("h2", 0),
    ]


@pytest.mark.needs("mpi4py")
def test_mpi4py_talks_across_hosts(hosts: Hosts) -> None:
    source = """
from mpi4py import MPI
MPI.COMM_WORLD.allgather(MPI.Get_processor_name())
"""
    folder = start(hosts, source, "mpirun.openmpi")
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert [container.load(folder.rank(0, rank).result) for rank in (0, 1)] == [["h1", "h2"]] * 2


def test_every_line_has_arrived_when_the_run_has_ended(hosts: Hosts, mpirun: str) -> None:
    folder = start(hosts, "for n in range(30_000):\n    print(n, 'x' * 40)", mpirun)
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    expected = "".join(f"{n} {'x' * 40}\n" for n in range(30_000))
    assert [reader.output(folder, rank).decode() == expected for rank in (0, 1)] == [True, True]


def test_a_failing_rank_is_the_cause(hosts: Hosts, mpirun: str) -> None:
    source = "import os, time\nif os.environ['RANK'] == '1': raise ValueError('no')\ntime.sleep(600)"
    status = ended(start(hosts, source, mpirun))
    assert (status.state, status.reason) == (State.FAILED, "rank 1 failed: ValueError: no")
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED]


@pytest.mark.parametrize(("how", "log"), [("stop", b"up\nsaved\n"), ("kill", b"up\n")])
def test_a_stop_reaches_every_host(
    hosts: Hosts, mpirun: str, how: str, log: bytes, wait_for: WaitFor
) -> None:
    source = """
import os, time
try:
    print("up")
    time.sleep(600)
finally:
    time.sleep(1.5 * int(os.environ["RANK"]))
    print("saved")
"""
    folder = start(hosts, source, mpirun)
    until_up(folder)
    if how == "stop":
        folder.request("stacks")
        stacks = [folder.rank(0, rank).stacks for rank in (0, 1)]
        wait_for(lambda: all(f.exists() and b"<module>" in f.read_bytes() for f in stacks), what="the stacks")
    folder.request(how)
    status = ended(folder)
    assert (status.state, [rank.state for rank in status.ranks]) == (State.STOPPED, [State.STOPPED] * 2)
    assert [reader.output(folder, rank) for rank in (0, 1)] == [log] * 2


def test_the_request_names_hosts_and_variables_but_no_value(mpirun: str) -> None:
    asked = MpiOptions(hosts=TWO, mpirun=mpirun).model_dump(mode="json")
    job = Job("id", "mpi", 3, 0.0, "/cwd", "/py", "1", options=asked, env_names=("A", "B"))
    argv = " ".join(Mpi().request(job)["argv"])
    assert "h1:2,h2:1" in argv
    assert ("-x A -x B" if "openmpi" in mpirun else "-genvlist A,B") in argv


def test_srun_takes_no_hosts() -> None:
    with pytest.raises(InputError, match=r"srun runs on the hosts that Slurm allocates\. Remove -H"):
        Mpi().check(2, MpiOptions(hosts=TWO, launcher="slurm", mpirun="true").model_dump(mode="json"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("[fd00::1]", r"accepts no IPv6 address as a host, as in \[fd00::1\]\. Add .* `HostName fd00::1` to"),
        ("me@[fd00::1]", r"accepts no IPv6 address as a host"),
        ("me@node1", r"accepts no user name in a host, as in me@node1\. Write only node1"),
    ],
)
def test_names_that_launchers_would_misread(name: str, message: str) -> None:
    asked = MpiOptions(hosts=({"name": "localhost", "slots": 1}, {"name": name, "slots": 1}))
    with pytest.raises(InputError, match=message):
        check_hosts(asked, users=False)
    if shutil.which("ssh") is not None:
        check_hosts(asked)
