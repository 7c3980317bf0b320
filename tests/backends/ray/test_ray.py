"""The backend `ray` over nodes that share no disk: whole logs, Ray's own things, bad input, no leftovers."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.backends.ray import actor_transport, connection
from jupyter_dist.backends.ray.options import RayOptions
from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.conformance.run_control import Runs, assert_state, story, wait_until
from jupyter_dist.errors import InputError, LaunchError, Unreachable
from jupyter_dist.job import State
from tests.rigs.ray.nodes import IN_SHARED, RayNodes, runs_on, shared_ray

pytestmark = pytest.mark.xdist_group(IN_SHARED)
LINES = 50_000
CONNECTS = """
import sys
from jupyter_dist.backends.ray import connection as connecting
from jupyter_dist.errors import LaunchError
try:
    connecting.connect(sys.argv[1])
    print("it is connected")
except LaunchError as error:
    print(f"LaunchError: {error}")
"""
WAITS = """
import time
print("up", flush=True)
for _ in range(1200):
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    with shared_ray(tmp_path_factory) as running:
        yield running


@pytest.fixture
def runs(ray: RayNodes, tmp_path: Path) -> Iterator[Runs]:
    with runs_on(ray, tmp_path, address=ray.address, gpus_per_worker=0) as started:
        yield started


def ask(address: str, code: str) -> Any:
    """What an expression over `ray` comes to, in a driver of its own."""
    script = (
        "import json, sys, ray\n"
        "ray.init(sys.argv[1], namespace='jupyter-dist', log_to_driver=False, logging_level='ERROR')\n"
        f"{code}"
    )
    done = run_process([sys.executable, "-c", script, address])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().split("\n")[-1])


def test_every_line_of_four_ranks_arrives_by_rank(ray: RayNodes, runs: Runs, tmp_path: Path) -> None:
    """And all of it is in the run's folder while the ranks still run."""
    enough = f"/tmp/{tmp_path.name}-enough"
    cell = f"""
import os, sys, time
for number in range({LINES}):
    print("line", number)
print("waits", flush=True)
while not os.path.exists({enough!r}):
    time.sleep(0.02)
(os.uname().nodename, os.environ["RANK"], os.environ["LOCAL_RANK"])
"""
    run = runs.start(cell, placement_strategy="SPREAD")
    wait_until(
        lambda: not run.state.ended and all(run.log(rank).endswith("\nwaits\n") for rank in range(4)),
        "all lines, while the ranks run",
        run,
    )
    for name in ray.hosts.names:
        ray.hosts.exec(name, ["touch", enough])
    runs.wait(run)
    assert_state(run, State.SUCCEEDED)
    for rank in range(4):
        assert run.log(rank).split("\n") == [*(f"line {number}" for number in range(LINES)), "waits", ""]
    assert sorted(run.results) == [("h1", r, x) for r, x in _ranks_of(run, "h1")] + [
        ("h2", r, x) for r, x in _ranks_of(run, "h2")
    ]


def _ranks_of(run: Any, host: str) -> list[tuple[str, str]]:
    return [(str(rank.rank), str(rank.local_rank)) for rank in run.status.ranks if rank.host == host]


def test_what_ranks_find(ray: RayNodes, runs: Runs, tmp_path: Path) -> None:
    """torch's and TensorFlow's variables, Ray's GPUs, the Ray itself, and nothing that is a Ray worker's."""
    environment = tmp_path / "env.yaml"
    environment.write_text("env_vars: {FROM_RAY: 'yes'}\n")
    cell = """
import json, os
names = ("OMP_NUM_THREADS", "RAY_JOB_ID", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES", "FROM_RAY")
env = {name: os.environ.get(name) for name in names}
import ray
import torch
import torch.distributed as group
import jupyter_dist as dist

dist.init()
found = torch.tensor([float(os.environ["RANK"])])
group.all_reduce(found)
ray.init(log_to_driver=False, logging_level="ERROR")
nodes = len([node for node in ray.nodes() if node["Alive"]])
ray.shutdown()
task = json.loads(os.environ["TF_CONFIG"])
(found.item(), nodes, env, len(task["cluster"]["worker"]), task["task"]["index"], group.get_backend())
"""
    run = runs.finish(
        cell,
        np=2,
        gpus_per_worker=1,
        communicator="gloo",
        runtime_env=str(environment),
    )
    assert_state(run, State.SUCCEEDED)
    cores = str(len(os.sched_getaffinity(0)))
    env = {
        "OMP_NUM_THREADS": cores,
        "RAY_JOB_ID": None,
        "PYTHONBREAKPOINT": None,
        "CUDA_VISIBLE_DEVICES": "0",
        "FROM_RAY": "yes",
    }
    assert list(run.results) == [(1.0, 3, env, 2, rank, "gloo") for rank in range(2)], story(run)


def test_room_that_is_not_there_is_waited_for(ray: RayNodes, runs: Runs) -> None:
    """It says what is missing, and a stop gives up what was asked for."""
    run = runs.start(WAITS, cpus_per_worker=2, gpus_per_worker=1)
    said = "asks 8 CPUs, the cluster has 4; asks 4 GPUs, the cluster has 2; no autoscaler runs there"
    wait_until(lambda: said in str(run.status.reason), said, run)
    run.stop()
    assert_state(runs.wait(run), State.STOPPED)
    groups = "print(json.dumps([g['state'] for g in ray.util.placement_group_table().values()]))"
    assert set(ask(ray.address, groups)) <= {"REMOVED"}


def test_another_version_is_refused(ray: RayNodes, runs: Runs) -> None:
    """Of Ray or of Python: before anything is pickled."""
    with ray.pretending(ray_version="2.9.3"):
        run = runs.finish("1")
    assert_state(run, State.FAILED)
    said = r"is 2\.9\.3, but the notebook has .*pip install \"ray==2\.9\.3\""
    assert re.search(said, str(run.status.reason)), story(run)
    assert "Nothing was started" in str(run.status.reason)
    own, (major, minor, micro) = importlib.metadata.version("ray"), sys.version_info[:3]
    for address, python in (
        ("h:6379", "3.9.18"),
        ("h:6379", f"{major}.{minor}.{micro + 1}"),
        ("ray://h:10001", f"{major}.{minor + 1}.{micro}"),
    ):
        said = rf"the Ray at {address} has Python {python}, but the notebook has Python .*Nothing was started"
        with pytest.raises(LaunchError, match=said):
            connection._compare(address, {"ray": own, "python": python})
    connection._compare("ray://h:10001", {"ray": own, "python": f"{major}.{minor}.{micro + 1}"})


@pytest.mark.parametrize("reads_ours", [True, False], ids=["reads what a client sends", "cannot read it"])
def test_another_version_behind_a_clients_address(monkeypatch: pytest.MonkeyPatch, reads_ours: bool) -> None:
    """Whether or not it understands what our Ray pickles, its version is said, and what to do."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with a_clients_door("2.9.3", "3.9.18", reads_ours) as (address, _):
        said = connected_to(address)
    assert re.search(r"LaunchError: .*is 2\.9\.3, but the notebook has .*pip install", said), said


def test_a_client_asks_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts one for each client, which takes it seconds, and half a minute where it fails."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    own = importlib.metadata.version("ray")
    with a_clients_door(own, platform.python_version(), True) as (address, clients):
        assert connected_to(address) == "it is connected\n"
    assert len(clients) == 1


def connected_to(address: str) -> str:
    """What a process says that connects to a Ray: Ray's client changes the one that it is in."""
    argv = [sys.executable, "-c", CONNECTS, address]
    return run_process(argv).stdout


@contextlib.contextmanager
def a_clients_door(ray: str, python: str, reads_ours: bool) -> Iterator[tuple[str, set[str]]]:
    """What lets clients in, for the versions named; its address, and the clients that came."""
    import grpc
    from ray.core.generated import ray_client_pb2 as messages
    from ray.core.generated import ray_client_pb2_grpc as stubs

    clients: set[str] = set()

    class Data(stubs.RayletDataStreamerServicer):  # type: ignore[misc]
        def Datapath(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
            clients.add(dict(context.invocation_metadata())["client_id"])
            for request in requests:
                kind = request.WhichOneof("type")
                ok = reads_ours or request.init.job_config == b""
                about = messages.ConnectionInfoResponse(ray_version=ray, python_version=python)
                answers = {
                    "init": {"init": messages.InitResponse(ok=ok, msg="" if ok else "ValueError: pickle")},
                    "connection_info": {"connection_info": about},
                    "connection_cleanup": {"connection_cleanup": messages.ConnectionCleanupResponse()},
                }
                yield messages.DataResponse(req_id=request.req_id, **answers.get(kind, {}))

    class Driver(stubs.RayletDriverServicer):  # type: ignore[misc]
        def ClusterInfo(self, *_: Any) -> Any:
            return messages.ClusterInfoResponse(json="{}")

        def KVPut(self, *_: Any) -> Any:  # that somebody uses it
            return messages.KVPutResponse(already_exists=False)

    class Log(stubs.RayletLogStreamerServicer):  # type: ignore[misc]
        def Logstream(self, requests: Iterator[Any], _: Any) -> Iterator[Any]:
            for _request in requests:
                yield messages.LogData()

    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads)
        stubs.add_RayletDataStreamerServicer_to_server(Data(), server)
        stubs.add_RayletDriverServicer_to_server(Driver(), server)
        stubs.add_RayletLogStreamerServicer_to_server(Log(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"ray://127.0.0.1:{port}", clients
        finally:
            server.stop(0).wait()


def test_a_clients_server_that_does_not_come_up_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ray answers of it differs with who asks; anything else it says is the end."""
    failed = "RuntimeError: Starting Ray client server failed. See ray_client_server_23001.err"
    errors: list[Exception] = []

    class Client:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**_: Any) -> None:
            if errors:
                raise errors.pop()

    monkeypatch.setattr(connection, "_ray", lambda: Client)
    monkeypatch.setattr(connection, "_AGAIN_S", (0, 0))
    monkeypatch.setattr(connection, "check_listening", lambda address: None)
    monkeypatch.setattr(connection, "_greet", lambda address: None)
    monkeypatch.setattr(connection, "_versions_by_client", lambda address: {})
    long = f"Initialization failure from server:\n{'x' * 600}\n{failed}"
    errors += [ConnectionAbortedError(long), ConnectionAbortedError(long)]
    connection.connect("ray://head:10001")
    assert errors == []
    for another in (ConnectionAbortedError("no"), RuntimeError(failed)):
        errors[:] = [RuntimeError("not asked for"), another]
        with pytest.raises((Unreachable, LaunchError), match="does not let us in"):
            connection.connect("ray://head:10001")
        assert len(errors) == 1
    errors[:] = [ConnectionAbortedError(long)] * 4
    with pytest.raises(Unreachable):
        connection.connect("ray://head:10001")
    assert len(errors) == 1


def test_calls_that_overtake_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the calls of an actor return is put in order, its end too."""
    import ray

    monkeypatch.setattr(ray, "get", lambda told: told)
    told = [(5, b" wor"), (0, b""), (11, None), (9, b"ld"), (11, None), (0, b"hello")] + [(11, None)] * 9
    receive = SimpleNamespace(remote=lambda session, wait_s: told.pop(0))
    near, far = socket.socketpair()
    over = threading.Event()
    with near, far:
        actor_transport._carry_down(SimpleNamespace(receive=receive), "session", far, over)
        near.settimeout(10)
        assert near.recv(100) == b"hello world"
        assert near.recv(100) == b""
    assert over.is_set()


def test_nobody_at_the_address(ray: RayNodes, runs: Runs) -> None:
    run = runs.finish("1", address="127.0.0.1:9")
    assert_state(run, State.FAILED)
    assert "no Ray answers at 127.0.0.1:9" in str(run.status.reason), story(run)
    with pytest.raises(Unreachable, match=r"no Ray answers at 127\.0\.0\.1:9"):
        connection.connect("ray://127.0.0.1:9")


def test_an_actor_that_is_evicted(ray: RayNodes, runs: Runs) -> None:
    """The ranks whose place it held end, and it is said why."""
    run = runs.until_up(runs.start(WAITS, placement_strategy="SPREAD"))
    processes = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    for pid in ray.pids("h2", "NodeActor"):
        os.kill(pid, signal.SIGKILL)
    runs.wait(run)
    assert_state(run, State.FAILED)
    assert "host h2 was lost: Ray ended our place on it" in str(run.status.reason), story(run)
    assert {rank.state for rank in run.status.ranks if rank.host == "h2"} == {State.LOST}, story(run)
    runs.gone(*processes)


def test_a_carrier_that_dies(ray: RayNodes, runs: Runs, tmp_path: Path) -> None:
    """The next one goes on where the first was."""
    enough = f"/tmp/{tmp_path.name}-enough"
    cell = f"""
import os, time
print("up", flush=True)
for number in range(200):
    print(number)
    time.sleep(0.02)
while not os.path.exists({enough!r}):
    time.sleep(0.02)
"""
    run = runs.until_up(runs.start(cell, np=2, placement_strategy="STRICT_SPREAD"))
    carrier = run.status.carrier
    assert carrier is not None
    os.kill(carrier[0], signal.SIGKILL)
    for name in ray.hosts.names:
        ray.hosts.exec(name, ["touch", enough])
    assert_state(runs.wait(run), State.SUCCEEDED)
    for rank in range(2):
        assert run.log(rank).split() == ["up", *map(str, range(200))]


def test_a_supervisor_that_nobody_comes_after(runs: Runs) -> None:
    """After the time of grace the ranks end, and the room is given back; `runs` sees to that."""
    run = runs.until_up(runs.start(WAITS, np=2, placement_strategy="STRICT_SPREAD", grace=5))
    supervisor = run.status.supervisor
    assert supervisor is not None
    processes = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    os.kill(supervisor.pid, signal.SIGKILL)
    runs.gone(*processes)


def test_a_ray_of_the_runs_own(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none: it has room for all ranks, takes nobody in without the user's token, and ends with
    the run."""
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    cell = """
import os, ray, jupyter_dist as dist
if dist.rank() == 0:
    ray.init(logging_level="ERROR")
os.environ["RAY_ADDRESS"].split(":")[0], os.environ["RAY_AUTH_MODE"]
"""
    run = runs.finish(cell, np=3, address="local")
    assert_state(run, State.SUCCEEDED)
    assert list(run.results) == [(connection.EMBEDDED_IP, "token")] * 3


def test_the_ray_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[str] = []
    monkeypatch.setattr(connection, "of_this_machine", lambda: here)
    monkeypatch.setattr(connection, "_listens", lambda address: True)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert connection.find_address(None) is None
    with pytest.raises(LaunchError, match="no Ray runs on this machine"):
        connection.find_address("auto")
    here += ["127.0.0.2:4000"]  # some run's own
    assert connection.find_address(None) is None
    here += ["10.0.0.1:6379"]
    assert connection.find_address(None) == connection.find_address("auto") == "10.0.0.1:6379"
    here += ["10.0.0.1:6380"]
    with pytest.raises(LaunchError, match="Several Rays"):
        connection.find_address(None)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    assert connection.find_address(None) == "ray://head:10001"
    assert connection.find_address("local") is None


def test_options(tmp_path: Path) -> None:
    asked = RayOptions(memory_per_worker="1.5G", resources={"TPU": 4}, accelerator_type="A100")
    amounts = {"CPU": 1, "GPU": 0.5, "memory": 1_500_000_000, "TPU": 4, "accelerator_type:A100": 0.001}
    assert asked.bundle(0.5) == amounts
    for wrong in (
        {"address": "http://head"},
        {"resources": {"GPU": 1}},
        {"resources": {"TPU": 1.5}},
        {"placement_strategy": "TIGHT"},
        {"memory_per_worker": "much"},
        {"gpus_per_worker": 1.5},
    ):
        with pytest.raises(ValueError, match="validation error"):
            RayOptions.model_validate(wrong)
    for text, said in (("- 1", "must contain fields"), ("a: [", "is not YAML")):
        path = tmp_path / "env.yaml"
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            RayOptions(runtime_env=str(path)).read_runtime_env()
    with pytest.raises(InputError, match="cannot be read"):
        RayOptions(runtime_env=str(tmp_path / "none.yaml")).read_runtime_env()
