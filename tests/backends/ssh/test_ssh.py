"""The backend `ssh` over hosts with real sshd: results, output, faults, and nothing left behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import backends
from jupyter_dist import folder as folders
from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import InputError, LaunchError
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.fleet import Fleet
from jupyter_dist.hosts.openssh import SshSettings
from jupyter_dist.job import Job, State
from jupyter_dist.manage import actions, removal
from jupyter_dist.record import reader
from jupyter_dist.record.metrics.usage_points import parse_usage
from jupyter_dist.showing import live
from jupyter_dist.showing.run import Run
from jupyter_dist.showing.screens import PlainScreen
from tests.rigs.answering import User, waiting
from tests.rigs.hosts import Hosts, missing
from tests.rigs.launching import ended, launch_cell, results, story
from tests.rigs.stopwatch import Stopwatch, WaitFor

pytestmark = pytest.mark.usefixtures("warm")

COUNT = """
import sys, time
for i in range(LINES):
    print(f"line {i:06d} " + "x" * 60)
    if i % 50 == 0:
        time.sleep(PAUSE)
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Three hosts for the whole module: a test that breaks one mends it."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    names = [f"h{i + 1}" for i in range(getattr(request, "param", 3))]
    with Hosts(tmp_path_factory.mktemp("ssh") / "hosts", names) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_left_on_hosts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a process or a stage folder of its runs is left on a host."""
    yield
    if "hosts" not in request.fixturenames:
        return
    hosts: Hosts = request.getfixturevalue("hosts")
    deadline = Deadline()
    left: dict[str, Any] = {"?": "?"}
    while left and not deadline.passed():
        left = {}
        for name in hosts.names:
            running = [process.argv for process in hosts.pids(name)]
            stages = hosts.exec(name, ["sh", "-c", "ls ~/.cache/jupyter-dist/hosts 2>/dev/null || true"])
            if running or stages.stdout:
                left[name] = running, stages.stdout.split()
        time.sleep(0.05)
    for name in left:  # for the tests after this one
        for process in hosts.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        hosts.exec(name, ["sh", "-c", "rm -rf ~/.cache/jupyter-dist/hosts/*"])
    assert left == {}


def launched(hosts: Hosts, source: str, np: int = 3, **options: Any) -> RunFolder:
    """Start a run with one rank on each host in turn; returns while it runs."""
    request = {
        name: options.pop(name) for name in ("names", "env", "max_restarts", "timeout_s") if name in options
    }
    slots = options.pop("slots", -(-np // len(hosts.names)))
    options.setdefault("python", sys.executable)
    listed = [{"name": name, "slots": slots} for name in hosts.names]
    options = {"hosts": options.pop("among", listed), "ssh_config": str(hosts.ssh_config), **options}
    return launch_cell("ssh", source, np, options, cold=False, **request)


def log(folder: RunFolder, rank: int) -> str:
    return reader.output(folder, rank, None).decode()


def test_each_rank_runs_on_its_host_and_returns_its_result(hosts: Hosts) -> None:
    source = "import os, socket, jupyter_dist as dist\nprint('here', dist.rank())\ndist.log(loss=0.5)\n"
    folder = launched(hosts, source + "socket.gethostname(), dict(os.environ)", np=6, env={"SECRET": "hush"})
    status = ended(folder)
    assert status.state is State.SUCCEEDED, status.reason
    found = results(folder, 6)
    assert [name for name, _ in found] == ["h1", "h1", "h2", "h2", "h3", "h3"]
    for rank, (_, env) in enumerate(found):
        assert env["RANK"] == str(rank)
        assert env["LOCAL_RANK"] == str(rank % 2)
        assert env["GROUP_RANK"] == str(rank // 2)
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("6", "2")
        assert env["MASTER_ADDR"] == hosts.address("h1")
        assert env["GLOO_SOCKET_IFNAME"] == env["NCCL_SOCKET_IFNAME"] == "eth0"
        assert env["SECRET"] == "hush"
        workers = json.loads(env["TF_CONFIG"])["cluster"]["worker"]
        assert [worker.split(":")[0] for worker in workers] == [
            hosts.address(name) for name in ("h1", "h1", "h2", "h2", "h3", "h3")
        ]
    assert len({env["MASTER_PORT"] for _, env in found}) == 1
    assert [rank.host for rank in status.ranks] == ["h1", "h1", "h2", "h2", "h3", "h3"]
    assert all(rank.exit_code == 0 and rank.peak_memory_bytes for rank in status.ranks)
    assert [log(folder, rank) for rank in range(6)] == [f"here {rank}\n" for rank in range(6)]
    everything = "".join(path.read_text() for path in folder.path.rglob("*.json") if path.is_file())
    assert "hush" not in everything


def whole(folder: RunFolder, lines: int) -> bool:
    wanted = [f"line {i:06d} " + "x" * 60 for i in range(lines)]
    return all(log(folder, rank).splitlines() == wanted for rank in range(3))


def test_a_killed_connection_is_made_again_and_loses_nothing(hosts: Hosts, wait_for: WaitFor) -> None:
    stays = COUNT + "import os\nwhile not os.path.exists('/tmp/enough'): time.sleep(0.05)"
    folder = launched(hosts, stays, names={"LINES": 20_000, "PAUSE": 0.01})
    for size in (20_000, 200_000, 800_000):
        wait_for(lambda size=size: all(len(log(folder, rank)) > size for rank in range(3)), "lines")
        for pid in connections(folder):
            os.kill(pid, signal.SIGKILL)
    for name in hosts.names:
        hosts.exec(name, ["touch", "/tmp/enough"])
    assert ended(folder).state is State.SUCCEEDED
    assert whole(folder, 20_000)
    for rank in range(3):
        # What the rank took of its host was noted there, and came over the same line.
        samples = list(parse_usage(folder.rank(0, rank).usage.read_bytes()))
        assert max(values["memory"] for _, values in samples) > 5_000_000
        assert max(values["cpu"] for _, values in samples) > 0
        assert {"net_in", "net_out"} <= set(samples[-1][1])
        times = [when for when, _ in samples]
        assert times == sorted(set(times))


def kill_supervisor(folder: RunFolder, wait_for: WaitFor) -> None:
    """Kill it once all three ranks print; the run is then unwatched, and no rank counts as ended."""
    wait_for(lambda: all(len(log(folder, rank)) > 1000 for rank in range(3)), "lines")
    # They come before the state in which that rank is.
    wait_for(lambda: {rank.state for rank in reader.status(folder).ranks} == {State.RUNNING}, "ranks")
    supervisor = reader.status(folder).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: reader.status(folder).state is State.UNWATCHED, "the state unwatched")
    assert {rank.state for rank in reader.status(folder).ranks} == {State.RUNNING}


def test_who_waits_for_an_unwatched_run_takes_it_on(hosts: Hosts, wait_for: WaitFor) -> None:
    folder = launched(hosts, COUNT, names={"LINES": 20_000, "PAUSE": 0.02})
    kill_supervisor(folder, wait_for)
    assert wait_for_end(Run(folder)).state is State.SUCCEEDED
    assert whole(folder, 20_000)


def test_a_cell_that_shows_an_unwatched_run_goes_on(
    hosts: Hosts, wait_for: WaitFor, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = launched(hosts, COUNT, names={"LINES": 20_000, "PAUSE": 0.02})
    following = threading.Thread(target=live.follow, args=(Run(folder),), kwargs={"display": PlainScreen()})
    following.start()
    # Not by `kill_supervisor`: the cell takes it on before anybody sees the state.
    wait_for(lambda: all(len(log(folder, rank)) > 1000 for rank in range(3)), "lines")
    first = reader.status(folder).supervisor
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    following.join(100)
    assert not following.is_alive()
    status = reader.status(folder)
    assert status.state is State.SUCCEEDED, status.reason
    assert status.supervisor != first
    assert whole(folder, 20_000)
    assert "line 019999" in capsys.readouterr().out


def test_stop_in_a_view_ends_an_unwatched_run(hosts: Hosts, wait_for: WaitFor) -> None:
    folder = launched(hosts, COUNT, names={"LINES": 10**9, "PAUSE": 0.05})
    kill_supervisor(folder, wait_for)
    with pytest.raises(InputError, match="has not ended"):
        removal.remove([folder])
    watch = Stopwatch()
    assert actions.stop(folder.id)["state"] == "unwatched"
    assert watch.under(2)
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user")


def connections(folder: RunFolder) -> list[int]:
    supervisor = reader.status(folder).supervisor
    assert supervisor is not None
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
    found = []
    for pid in map(int, children):
        with contextlib.suppress(OSError):  # others end at any moment
            if Path(f"/proc/{pid}/comm").read_text() == "ssh\n":
                found.append(pid)
    return found


def test_a_host_whose_only_python_is_another_version(hosts: Hosts) -> None:
    script = "#!/bin/sh\necho 3.9\n"
    hosts.exec("h2", ["sh", "-c", "cat > ~/python && chmod +x ~/python"], input=script)
    status = ended(launched(hosts, "1", python="~/python"))
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert status.state is State.FAILED
    assert f"h2: it has no Python {own} at '~/python' ({hosts.home}/python is 3.9)" in str(status.reason)
    assert "h1: it has no Python at '~/python'" in str(status.reason)
    assert "--python" in str(status.reason)


def only_h1(place: Path, config: str) -> Fleet:
    """One host, to be connected with this configuration of ssh."""
    (place / "config").write_text(config)
    run = folders.create(place, f"20261120-120000-{secrets.token_hex(3)}", 1)
    folders.write_json(run.job, {})
    job = Job(run.id, "ssh", 1, 0.0, "/tmp", sys.executable, "1")
    using = SshSettings(config=str(place / "config"), python=sys.executable)
    return Fleet(job, run, [{"name": "h1", "slots": 1}], using)


def connected(address: tuple[str, int]) -> socket.socket:
    """A connection to an sshd. It listens a moment after the end of its first process."""
    deadline = Deadline()
    while True:
        try:
            return socket.create_connection(address, 10)
        except ConnectionRefusedError:
            assert not deadline.passed()
            time.sleep(0.02)


def test_an_sshd_that_takes_few_logins_at_once_is_asked_again(hosts: Hosts, tmp_path: Path) -> None:
    few = "sed 's/^MaxStartups.*/MaxStartups 1:100:1/; s|^PidFile.*|PidFile /run/few.pid|' sshd_config > few"
    hosts.exec("h1", ["sh", "-c", f"cd /etc/ssh; {few}; /usr/sbin/sshd -f /etc/ssh/few -p 2222"])
    fleet = only_h1(tmp_path, f"Host h1\n  Port 2222\n{hosts.ssh_config.read_text()}")
    try:
        with connected((hosts.address("h1"), 2222)) as other:
            assert other.recv(100).startswith(b"SSH-")
            fleet.begin()
            began = time.monotonic()
            while time.monotonic() < began + 1.5:
                state = fleet.poll()
                assert state.failed is None
                assert not state.ready
                fleet.wait(0.05)
        deadline = Deadline()
        while not (state := fleet.poll()).ready:
            assert state.failed is None
            assert not deadline.passed()
            fleet.wait(0.05)
    finally:
        fleet.release()
        hosts.exec("h1", ["sh", "-c", "kill $(cat /run/few.pid)"])


def test_logins_that_cannot_be_used_are_told_with_their_cause(hosts: Hosts, tmp_path: Path) -> None:
    settings = hosts.ssh_config.read_text()
    own, key, other = hosts.folder / "id_ed25519", tmp_path / "my key", tmp_path / "other"
    shutil.copy(own, key)
    make = ["ssh-keygen", "-q", "-N"]
    subprocess.run([*make, "secret", "-p", "-P", "", "-f", key], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*make, "", "-t", "ed25519", "-f", other], check=True)

    def why(config: str) -> str:
        fleet = only_h1(tmp_path, config)
        try:
            fleet.connect()
        except LaunchError as error:
            return str(error)
        fleet.release()
        return "nothing"

    locked = settings.replace(str(own), f'"{key}"')
    told = why(locked)
    assert f"takes the key {str(key)!r}, which has a passphrase" in told
    assert f"ssh-add '{key}'" in told
    key.chmod(0o644)
    assert f"chmod 600 '{key}'" in why(locked)
    assert f"it was offered {str(other)!r}" in why(settings.replace(str(own), str(other)))
    assert "no key was there to offer" in why(settings.replace(str(own), "/nowhere"))
    assert why(f"Host h1\n  RemoteCommand tmux\n{settings}") == "nothing"
    # Logins that work, but whose files of the shell are in the way.
    for line, cause in (("cat", "its login reads"), ("export PYTHONHOME=/", "its agent did not start")):
        hosts.exec("h1", ["sh", "-c", f"echo '{line}' > ~/.bashrc"])
        told = why(settings)
        hosts.exec("h1", ["sh", "-c", "rm ~/.bashrc"])
        assert cause in told


def test_users_and_addresses_in_the_names_of_hosts(hosts: Hosts, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(hosts.known_hosts.read_text())
    inside = {"h1": "fd00:5::1", "h2": "fd00:5::2"}
    add = ["ip", "-6", "address", "add", "nodad", "dev"]
    subprocess.run([*add, hosts.interface, "fd00:5::9/64"], check=True)
    for name, address in inside.items():
        hosts.exec(name, [*add, "eth0", f"{address}/64"])
        key = hosts.exec(name, ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]).stdout
        with known.open("a") as file:
            file.write(f"{address} {key}")
    config = tmp_path / "config"
    config.write_text(hosts.ssh_config.read_text().replace(str(hosts.known_hosts), str(known)))
    listed = [{"name": f"root@[{address}]", "slots": 1} for address in inside.values()]
    (tmp_path / "data").mkdir()
    source = "import os, socket\nsocket.gethostname(), os.environ['MASTER_ADDR'], os.listdir('.')"
    options = {"among": listed, "ssh_config": str(config), "rsync": (str(tmp_path / "data"),)}
    folder = launched(hosts, source, np=2, **options)
    status = ended(folder)
    assert status.state is State.SUCCEEDED, status.reason
    assert results(folder, 2) == [("h1", inside["h1"], ["data"]), ("h2", inside["h1"], ["data"])]


def test_hosts_that_cannot_reach_each_other_are_told_and_another_interface_is_used(
    hosts: Hosts, wait_for: WaitFor
) -> None:
    closed = """table inet closed {
  chain input {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iifname { lo, other } accept
    tcp dport 22 accept
  }
}
"""
    for number, name in enumerate(hosts.names):
        more = "ip link add other link eth0 type macvlan mode bridge; ip link set other up"
        hosts.exec(name, ["sh", "-c", f"{more}; ip address add 10.9.0.{number + 1}/24 dev other"])
        hosts.exec(name, ["nft", "-f", "-"], input=closed)
    try:
        stays = "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)"
        folder = launched(hosts, stays)
        told = "h2, h3 cannot connect to h1 at " + hosts.address("h1")
        wait_for(lambda: told in str(reader.status(folder).reason), "the hosts that cannot connect")
        assert "--interface" in str(reader.status(folder).reason)
        for name in hosts.names:
            hosts.exec(name, ["touch", "/tmp/go"])
        assert ended(folder).state is State.SUCCEEDED
        source = "import os\nos.environ['MASTER_ADDR'], os.environ['GLOO_SOCKET_IFNAME']"
        folder = launched(hosts, source, interface="eth9,other")
        assert ended(folder).state is State.SUCCEEDED
        assert results(folder, 3) == [("10.9.0.1", "other")] * 3
    finally:
        for name in hosts.names:
            hosts.exec(name, ["sh", "-c", "nft flush ruleset; ip link delete other; rm -f /tmp/go"])
    status = ended(launched(hosts, "1", interface="eth9"))
    assert "h1: it has no network interface 'eth9'" in str(status.reason)
    assert f"eth0 ({hosts.address('h1')})" in str(status.reason)


def test_ranks_of_two_hosts_are_in_one_trace(hosts: Hosts, wait_for: WaitFor) -> None:
    source = """
import time, torch
weight = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([weight], lr=0.01)
while True:
    time.sleep(0.02)
    weight.sum().backward()
    optimizer.step()
"""
    among = [{"name": name, "slots": 1} for name in hosts.names[:2]]
    run = Run(launched(hosts, source, np=2, among=among))
    wait_for(lambda: len(run.profile) == 2, "steps of both ranks")
    events = json.loads(run.trace(steps=5).read_text())["traceEvents"]
    names = [one["args"]["name"] for one in events if one["name"] == "process_name"]
    assert names == [f"rank {rank} on {reader.status(run.folder).ranks[rank].host}" for rank in range(2)]
    first, second = (
        [one["ts"] for one in events if one.get("cat") == "step" and one["pid"] == 1000 * rank]
        for rank in range(2)
    )
    assert (len(first), len(second)) == (5, 5)
    assert max(first[0], second[0]) < min(first[-1], second[-1]), "they have traced at the same time"
    run.stop()
    ended(run.folder)


def test_a_name_that_cannot_be_resolved(hosts: Hosts) -> None:
    folder = launch_cell("ssh", "1", 1, {"hosts": [{"name": "nowhere.invalid", "slots": 1}]}, cold=False)
    assert str(ended(folder).reason).startswith("host nowhere.invalid: its name cannot be resolved")


def test_no_hosts_is_an_error_that_names_the_flag() -> None:
    with pytest.raises(InputError, match="-H node1:4,node2:4"):
        backends.load("ssh").check(2, {})


def test_files_that_are_copied_are_where_the_ranks_start(hosts: Hosts, tmp_path: Path) -> None:
    project = tmp_path / "my project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "words.txt").write_text("a word")
    (project / "mine.py").write_text("ANSWER = 42")
    source = "import mine\nmine.ANSWER, open('data/words.txt').read()"
    folder = launched(hosts, source, rsync=(f"{project}/",))
    status = ended(folder)
    assert status.state is State.SUCCEEDED, status.reason
    assert results(folder, 3) == [(42, "a word")] * 3
    hosts.exec("h2", ["mv", "/usr/bin/rsync", "/usr/bin/gone"])
    try:
        status = ended(launched(hosts, source, rsync=(f"{project}/",)))
    finally:
        hosts.exec("h2", ["mv", "/usr/bin/gone", "/usr/bin/rsync"])
    assert str(status.reason).startswith("host h2: --rsync needs rsync there as well")


def test_a_bare_python_and_a_heavy_payload(hosts: Hosts, tmp_path: Path) -> None:
    heavy = os.urandom(50_000_000)
    source = "import hashlib, sys\nhashlib.sha256(HEAVY).hexdigest(), 'numpy' in sys.modules"
    with Hosts(tmp_path / "bare", ("b1", "b2")) as bare:
        for name in bare.names:
            bare.only_python(name)
        folder = launched(bare, source, np=2, names={"HEAVY": heavy}, python=None)
        status = ended(folder)
        assert status.state is State.SUCCEEDED, status.reason
        assert results(folder, 2) == [(hashlib.sha256(heavy).hexdigest(), False)] * 2


@pytest.mark.needs("torch")
def test_gloo_over_three_hosts(hosts: Hosts) -> None:
    source = """
import torch, jupyter_dist as dist
dist.init()
mine = torch.ones(3) * (dist.rank() + 1)
torch.distributed.all_reduce(mine)
dist.barrier()
mine.tolist()
"""
    folder = launched(hosts, source)
    status = ended(folder)
    assert status.state is State.SUCCEEDED, (status.reason, log(folder, 0))
    assert results(folder, 3) == [[6.0, 6.0, 6.0]] * 3


def test_roles_and_ranks_that_only_serve(hosts: Hosts) -> None:
    source = """
import json, os
from jupyter_dist.worker.tensorflow import server_rank as serving_rank
config = json.loads(os.environ["TF_CONFIG"])
if config["task"]["type"] in ("worker", "ps"):
    serving_rank.serve()
config
"""
    folder = launched(hosts, source, np=4, ps=1, chief=True, slots=2)
    status = ended(folder)
    assert status.state is State.SUCCEEDED, status.reason
    config = results(folder, 1)[0]
    assert config["task"] == {"type": "chief", "index": 0}
    roles = {role: [place.split(":")[0] for place in places] for role, places in config["cluster"].items()}
    first, second = hosts.address("h1"), hosts.address("h2")
    assert roles == {"chief": [first], "worker": [first, second], "ps": [second]}


def test_a_barrier_across_hosts_says_what_it_needs(hosts: Hosts) -> None:
    folder = launched(hosts, "import jupyter_dist as dist\ndist.barrier()")
    assert "dist.init()" in str(ended(folder).reason)


@pytest.mark.parametrize("hosts", [8], indirect=True)
def test_64_ranks_over_8_hosts(hosts: Hosts) -> None:
    source = "import jupyter_dist as dist\nfor i in range(100):\n    print(i)\ndist.rank()"
    began = time.monotonic()
    folder = launched(hosts, source, np=64)
    status = ended(folder)
    assert status.state is State.SUCCEEDED, status.reason
    print(f"64 ranks in {time.monotonic() - began:.1f} s")
    assert results(folder, 64) == list(range(64))
    assert all(log(folder, rank) == "".join(f"{i}\n" for i in range(100)) for rank in range(64))


def test_checkpoints_come_back_at_the_end(hosts: Hosts) -> None:
    # Rank 2 fails once the other ranks have written: a failure ends ranks that are still starting.
    source = """
import os, socket, time
import jupyter_dist as dist
folder = dist.checkpoint_dir()
(folder / "epoch 1").mkdir(exist_ok=True)
(folder / "epoch 1" / f"rank{dist.rank()}.pt").write_bytes(bytes(1_000_000 + dist.rank()))
(folder / "same.txt").write_text(f"of rank {dist.rank()}")
(folder / "empty").touch()
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if dist.rank() == 0:
    with socket.create_server(place) as server:
        for other in [server.accept()[0] for _ in range(2)]:
            other.sendall(b".")
else:
    while True:
        try:
            meeting = socket.create_connection(place)
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            assert meeting.recv(1)
            break
assert dist.rank() != 2, "too late"
"""
    folder = launched(hosts, source)
    assert ended(folder).state is State.FAILED
    found = {
        str(path.relative_to(folder.checkpoints)) for path in folder.checkpoints.rglob("*") if path.is_file()
    }
    assert {f"epoch 1/rank{rank}.pt" for rank in range(3)} < found
    assert [(folder.checkpoints / "epoch 1" / f"rank{r}.pt").stat().st_size for r in range(3)] == [
        1_000_000 + rank for rank in range(3)
    ]
    texts = [path.read_text() for path in folder.checkpoints.rglob("same.txt")]
    assert sorted(texts) == [f"of rank {rank}" for rank in range(3)]
    assert "empty" in found


def test_this_machine_among_the_hosts(hosts: Hosts, tmp_path: Path) -> None:
    listed = [{"name": "localhost", "slots": 1}, {"name": "h2", "slots": 1}]
    names = ("MASTER_ADDR", "GLOO_SOCKET_IFNAME")
    source = "import os, socket\nsocket.gethostname(), *(os.environ[name] for name in NAMES)"
    place = tmp_path / "remote"
    folder = launched(hosts, source, np=2, names={"NAMES": names}, among=listed, remote_dir=str(place))
    status = ended(folder)
    assert status.state is State.SUCCEEDED, status.reason
    master = hosts.driver_address
    own = (socket.gethostname(), master, hosts.interface)
    assert results(folder, 2) == [own, ("h2", master, "eth0")]
    place.rmdir()  # nothing is left in it


def test_a_rank_on_a_host_is_debugged_over_its_connection(hosts: Hosts) -> None:
    """Also after the connections were lost."""
    source = "import os\nrank = int(os.environ['RANK'])\nbreakpoint()\nname = input('Name: ')\nrank, name"
    folder = launched(hosts, source, np=2, among=[{"name": "h1", "slots": 1}, {"name": "h2", "slots": 1}])
    assert waiting(folder, 2) == "ranks 0-1 wait at In[1], line 4 (to answer: %dist debug)"
    user = User(folder, 0, 1)
    assert user.asks("p rank") == {0: "0\n", 1: "1\n"}
    for pid in connections(folder):
        os.kill(pid, signal.SIGKILL)
    assert user.asks("p rank * 2") == {0: "0\n", 1: "2\n"}
    user.say("c")
    assert "wait for input: 'Name:'" in waiting(folder, 2, "input")
    user.say("Ada")
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 2) == [(0, "Ada"), (1, "Ada")]
    assert not list(folder.requests.glob("answer-*")), "an answer is removed when it is read"
