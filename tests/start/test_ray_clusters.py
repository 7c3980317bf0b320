"""Ray clusters from cluster-launcher files: refused at once, launched, attached to, taken down."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import clusters
from jupyter_dist.backends.ray import cluster_discovery, cluster_file, cluster_file_program
from jupyter_dist.backends.ray.cluster_file import LauncherFile
from jupyter_dist.clusters import Cluster
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.deadlines import PATIENCE_S, Deadline
from jupyter_dist.errors import DistError, InputError, MissingEngine
from jupyter_dist.folder import RunFolder, find_exact, runs
from jupyter_dist.job import State
from jupyter_dist.manage import stop
from jupyter_dist.record import reader
from jupyter_dist.start import ray_cluster_tasks, ray_clusters
from tests.rigs.hosts import Hosts, missing
from tests.rigs.launching import ended, logs, story

LOCAL = (
    "cluster_name: ours\nprovider: {type: local, head_ip: 10.0.0.2, worker_ips: []}\nauth: {ssh_user: x}\n"
)
CHECK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import cluster_file_program
print(json.dumps([cluster_file_program.checked(path) for path in sys.argv[2:]]))
"""
START = (
    "for attempt in 1 2 3 4 5; do ray start --head --port 6379 --num-cpus 2 --node-ip-address {address} "
    "--ray-client-server-port 9999 --include-dashboard false --object-store-memory 80000000 "
    "--disable-usage-stats --include-log-monitor false --metrics-export-port 9001 "
    "--dashboard-agent-grpc-port 9002 --runtime-env-agent-port 9003 --dashboard-agent-listen-port 9004 "
    "&& exit 0; ray stop --force; done; exit 1"
)
"""Ray gives a start 30 seconds, however much else the machine has to do; known ports make it quicker."""


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A host on which a head can be launched: `ray` is found there, as `ray down` wants it."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    pytest.importorskip("ray")
    with Hosts(tmp_path_factory.mktemp("head") / "hosts", ["h1"]) as found:
        ray = f'#!/bin/sh\nexec "{sys.executable}" -m ray.scripts.scripts "$@"\n'
        found.exec("h1", ["sh", "-c", "cat > /usr/local/bin/ray && chmod +x /usr/local/bin/ray"], input=ray)
        yield found


@pytest.fixture
def write(head: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a file that has this done on the host, of a cluster whose name is its own."""
    # Where Ray's launcher keeps what it knows of clusters, on this machine and for all its users.
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def written(command: str) -> Path:
        path = tmp_path / "it's a cluster.yaml"
        config: dict[str, Any] = {
            "cluster_name": f"jd{secrets.token_hex(4)}",
            "provider": {"type": "local", "head_ip": head.address("h1"), "worker_ips": []},
            "auth": {"ssh_user": "root", "ssh_private_key": str(head.folder / "id_ed25519")},
            "min_workers": 0,
            "max_workers": 0,
            "head_start_ray_commands": [command],
        }
        path.write_text(json.dumps(config))  # which is YAML
        return path

    return written


def known(path: Path) -> Cluster:
    (found,) = [one for one in clusters.load().values() if one.launched_from == str(path)]
    return found


def until(folder: RunFolder, text: str) -> None:
    deadline = Deadline()
    while text not in reader.output(folder, 0).decode():
        assert not deadline.passed(), story(folder)
        assert not reader.status(folder).state.ended, story(folder)
        time.sleep(0.05)


def test_what_is_no_cluster_launcher_file_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    files = {
        "ours": (LOCAL, {"name": "ours", "provider": "local", "client_port": 10001}),
        "list": ("- a\n", "no `provider`"),
        "garbled": ("a: [b", "not YAML: ParserError"),
        "binary": ("\x00\x01", "not YAML"),
        "kind": ("cluster_name: x\nprovider: {type: awss}\n", "of type 'awss', and Ray has: aliyun, aws"),
        "typo": (LOCAL + "max_workerss: 3\n", "'max_workerss' was unexpected"),
        "no_head": ("cluster_name: x\nprovider: {type: local}\nauth: {ssh_user: x}\n", "`head_ip`"),
        "azure": (
            "cluster_name: x\nprovider: {type: azure, location: x, resource_group: b}\nauth: {ssh_user: x}\n",
            "its provider 'azure' needs a package that is not installed: No module named 'azure",
        ),
        "port": (LOCAL + "head_start_ray_commands: [ray start --ray-client-server-port=10020]\n", 10020),
    }
    paths = []
    for name, (text, _) in files.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        paths.append(str(path))
    program = str(Path(cluster_file_program.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", CHECK, program, *paths], stdout=subprocess.PIPE, check=True, text=True
    )
    for (name, (_, wanted)), found in zip(
        files.items(), json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        if isinstance(wanted, str):
            assert wanted in (found.get("wrong") or found.get("missing")), name
        elif isinstance(wanted, int):
            assert found["client_port"] == wanted
        else:
            assert found == wanted
    assert list(runs()) == []


@pytest.mark.parametrize("verb", ["up", "attach", "down"])
def test_a_file_that_cannot_be_read_is_refused_at_once(verb: str, tmp_path: Path) -> None:
    for given, said in (("none.yaml", "No such file or directory"), (".", "Is a directory")):
        with pytest.raises(InputError, match=said):
            dispatch(["ray", verb, str(tmp_path / given)], Context())
    with pytest.raises(InputError, match=f"{verb} needs CLUSTER.yaml"):
        dispatch(["ray", verb], Context())
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(InputError, match="it has 1,048,577 bytes"):
        dispatch(["ray", verb, str(large)], Context())
    assert list(runs()) == []


def test_what_the_check_says_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(LOCAL)
    said: dict[str, Any] = {}

    def answers(argv: Any, **_: Any) -> Any:
        return subprocess.CompletedProcess(argv, 0, f"a line of Ray's\n{json.dumps(said)}\n".encode(), b"")

    monkeypatch.setattr(subprocess, "run", answers)
    said = {"missing": "Ray's launcher is not installed (No module named 'ray')"}
    with pytest.raises(MissingEngine, match=r"x\.yaml cannot be launched: Ray's launcher is not installed"):
        cluster_file.read(str(path))
    said = {"wrong": "it has no `provider`"}
    with pytest.raises(
        InputError, match=r"x\.yaml' is not a cluster-launcher file that Ray accepts: it has no"
    ):
        cluster_file.read(str(path))
    said = {"name": "ours", "provider": "aws", "client_port": 10001}
    assert cluster_file.read(str(path)) == LauncherFile(path, "ours", "aws", 10001)


def test_the_name_of_another_cluster_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def read(given: str) -> LauncherFile:
        return LauncherFile(Path(given), name, "local", 10001)

    monkeypatch.setattr(cluster_file, "read", read)
    clusters.add(Cluster("ours", "local", {"np": 2}))
    name = "ours"
    with pytest.raises(InputError, match=r"A saved cluster 'ours' already exists, .* --name NAME"):
        ray_clusters.begin("up", str(tmp_path / "x.yaml"))
    name = "my cluster"
    with pytest.raises(InputError, match=r"cannot be the name of a cluster.* --name NAME"):
        ray_clusters.begin("up", str(tmp_path / "x.yaml"))
    with pytest.raises(
        InputError, match=r"'sideways' is not a command for a Ray cluster\. Use one of: up, attach, down"
    ):
        ray_clusters.launch("sideways", "x.yaml")
    assert list(runs()) == []


def test_a_cluster_is_launched_behind_a_firewall_attached_to_and_taken_down(
    head: Hosts, write: Callable[[str], Path]
) -> None:
    rules = "add table inet t; add chain inet t c { type filter hook input priority 0; }; "
    rules += "add rule inet t c iifname eth0 tcp dport 9999 reject with tcp reset"
    head.exec("h1", ["nft", rules])
    path = write(START.format(address=head.address("h1")))

    up = dispatch(["ray", "up", "--detach", str(path)], Context())
    with pytest.raises(InputError, match=f"Run {up.id} is already running `ray"):
        ray_clusters.begin("down", str(path))
    assert ended(up.folder).state is State.SUCCEEDED, story(up.folder)
    told = "\n".join(logs(up.folder, 0))
    assert "Ray runtime started" in told
    assert f"This machine cannot reach {head.address('h1')}:9999" in told

    # It is saved, with the way there that another run keeps open.
    saved = known(path)
    assert saved.backend == "ray"
    address = str(saved.options["address"])
    assert address == up.results[0]
    assert f"{saved.name} is up. Use it with %%distribute --cluster {saved.name}" in told
    (attached,) = ray_clusters.under_way(path)
    assert reader.job(attached).label == f"ray attach {path.name}"
    census = cluster_discovery.ask([address], patience_s=PATIENCE_S)[address]
    site = cluster_discovery.site(address, census)
    assert site["problem"] is None
    assert site["cpus"]["total"] == 2

    # To attach again is to see the same run; to stop it is to close the way.
    again = ray_clusters.launch("attach", saved.name)
    assert again == {"run_id": attached.id}
    assert stop.stop(attached, wait_s=60) is State.STOPPED
    clusters.add(Cluster(saved.name, "ray", {**saved.options, "np": 2}, saved.launched_from), replace=True)
    anew = dispatch(["ray", "attach", str(path)], Context())
    assert anew.state is State.RUNNING, story(anew.folder)
    assert known(path).options == {"address": address, "np": 2}, "the port stays, and what else was set"

    down = dispatch(["ray", "down", "--detach", saved.name], Context())
    assert ended(down.folder).state is State.SUCCEEDED, story(down.folder)
    assert reader.status(anew.folder).state is State.STOPPED
    assert saved.name not in clusters.load()
    assert [one for one in head.pids("h1") if "raylet" in one.argv[0]] == []


def test_a_launch_that_fails_says_that_nodes_may_be_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        ray_cluster_tasks, "_RAY", (sys.executable, "-c", "import sys; sys.exit(sys.argv[1])")
    )
    with pytest.raises(DistError, match="`ray up` ended with exit code 1: see above"):
        ray_cluster_tasks.up("/x.yaml", cluster="ours", client_port=1)
    printed = capfd.readouterr()
    assert (printed.err, printed.out) == (
        "up\n",
        "\nNodes of the cluster may be running. End them with `%dist ray down /x.yaml`\n",
    )
    with pytest.raises(
        DistError, match=r"of x\.yaml has no running head. Start it with `%dist ray up /x.yaml`"
    ):
        ray_cluster_tasks.attach("/x.yaml", cluster="ours", client_port=1, local_port=1)
    with pytest.raises(DistError, match="`ray down` ended with exit code 1"):
        ray_cluster_tasks.down("/x.yaml", cluster="ours")
    assert clusters.load() == {}


def test_a_launch_that_is_stopped_leaves_no_process_and_says_that_nodes_may_be_up(
    write: Callable[[str], Path],
) -> None:
    path = write("echo 'it begins' && sleep 1000")
    folder = find_exact(ray_clusters.launch("up", str(path))["run_id"])
    until(folder, "it begins")
    assert stop.stop(folder, wait_s=60) is State.STOPPED
    assert f"Nodes of the cluster may be running. End them with `%dist ray down {path}`" in logs(folder, 0)
    assert clusters.load() == {}
    assert list(ray_clusters.under_way(path)) == []
