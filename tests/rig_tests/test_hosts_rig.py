"""The hosts that other tests run on are hosts: apart, reachable, breakable, and gone afterwards."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from jupyter_dist.conformance.deadlines import run_process, wait_for_exit
from tests.rigs.hosts import Hosts, missing
from tests.rigs.stopwatch import Stopwatch, WaitFor

SOON = ("-o", "ConnectTimeout=1")


def login(hosts: Hosts, name: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    strict = [*options, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"]
    argv = ["ssh", "-F", str(hosts.ssh_config), *strict, name, command]
    return run_process(argv, stdin=subprocess.DEVNULL)


def test_hosts_are_apart_and_know_each_other(hosts: Hosts, tmp_path: Path, wait_for: WaitFor) -> None:
    for name in hosts.names:
        other = "h2" if name == "h1" else "h1"
        seen = login(hosts, name, f"hostname; echo ~; ssh -o BatchMode=yes {other} hostname")
        assert seen.stdout.split() == [name, hosts.home, other], seen
        assert seen.stderr == ""
    # Written on one: not on the others, not here; and the driver's files are not there.
    name = f"of-{tmp_path.name}-{os.getpid()}"
    paths = [f"{folder}/{name}" for folder in ("/tmp", hosts.home, "/etc")]
    hosts.exec("h1", ["tee", *paths])
    for path in paths:
        assert hosts.exec("h2", ["test", "-e", path], check=False).returncode == 1
        assert not Path(path).exists()
    assert hosts.exec("h1", ["ls", str(tmp_path)], check=False).returncode == 2
    # The code is there, at the same path.
    code = "import jupyter_dist, pathlib; print(pathlib.Path(jupyter_dist.__file__).parents[1])"
    repository = str(Path(__file__).parents[2])
    assert (
        hosts.exec("h3", [sys.executable, "-c", code], env={"PYTHONPATH": repository}).stdout
        == f"{repository}\n"
    )
    # A daemon outlives its login, is seen under both numbers, and is reaped by its host.
    assert hosts.pids("h1") == []
    login(hosts, "h1", "setsid sleep 4321 < /dev/null > /dev/null 2>&1 &")
    wait_for(lambda: [left.argv for left in hosts.pids("h1")] == [("sleep", "4321")])
    (left,) = hosts.pids("h1")
    assert left.own_pid < left.pid
    os.kill(left.pid, signal.SIGTERM)
    wait_for(lambda: not hosts.pids("h1"))
    wait_for(lambda: " Z" not in hosts.exec("h1", ["ps", "-eo", "pid,stat"]).stdout)
    # A host reaches the driver too.
    code = (
        "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); s.accept()"
    )
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    hosts.exec("h1", ["bash", "-c", f"exec 3<>/dev/tcp/driver/{port}"])
    assert wait_for_exit(server) == 0
    server.stdout.close()


@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_network_faults(hosts: Hosts) -> None:
    # Cut: what is there hangs (and goes on afterwards), what is new times out.
    talk = "for i in 1 2; do read line; echo $line; done"
    argv = ["ssh", "-F", str(hosts.ssh_config), "h1", talk]
    talking = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert talking.stdin is not None
    assert talking.stdout is not None
    talking.stdin.write("before\n")
    assert talking.stdout.readline() == "before\n"
    hosts.cut("h1")
    talking.stdin.write("after\n")
    refused = login(hosts, "h1", "true", *SOON)
    assert "timed out" in refused.stderr, refused
    assert login(hosts, "h2", "ssh -o ConnectTimeout=1 h1 true").returncode == 255
    assert talking.poll() is None
    hosts.mend("h1")
    assert talking.stdout.readline() == "after\n"
    assert wait_for_exit(talking) == 0
    talking.stdin.close()
    talking.stdout.close()
    assert login(hosts, "h1", "hostname").stdout == "h1\n"

    # Delay: each round trip is longer, on a connection that is open already too; nothing is lost or torn.
    hosts.delay("h2", 200)
    started, watch = time.monotonic(), Stopwatch()
    with pytest.raises(ConnectionRefusedError):
        _connect(hosts.address("h2"))
    assert time.monotonic() - started >= 0.2
    assert watch.under(0.35)
    sent = login(hosts, "h2", "seq 300000")
    assert sent.stdout == "".join(f"{i}\n" for i in range(1, 300_001))
    hosts.cut("h2")  # also where the wire is slow
    assert "timed out" in login(hosts, "h2", "true", *SOON).stderr
    hosts.mend("h2")
    hosts.delay("h2", 0)
    watch = Stopwatch()
    with pytest.raises(ConnectionRefusedError):
        _connect(hosts.address("h2"))
    assert watch.under(0.1)

    # Off, and on again.
    hosts.exec("h1", ["touch", f"{hosts.home}/x"])
    hosts.power_off("h1")
    refused = login(hosts, "h1", "true", *SOON)
    assert refused.returncode == 255
    assert re.search("timed out|No route", refused.stderr)
    hosts.power_on("h1")
    assert login(hosts, "h1", "hostname; ls").stdout == "h1\n"


def _connect(address: str) -> None:
    import socket

    socket.create_connection((address, 1), timeout=5).close()


@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_faults_of_a_host(hosts: Hosts, wait_for: WaitFor) -> None:
    # Disk.
    write = "echo some text > ~/new && echo more >> ~/new && cat ~/new"
    hosts.fill_disk("h1")
    full = login(hosts, "h1", write)
    assert full.returncode != 0
    assert "No space left" in full.stderr
    assert login(hosts, "h2", write).returncode == 0
    hosts.empty_disk("h1")
    assert login(hosts, "h1", write).stdout == "some text\nmore\n"

    # Clock: of logins, shells and Pythons on that host only.
    clocks = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp())"
    now = f"date +%s; python3 -c '{clocks}'"
    hosts.skew("h1", 3600)
    for name, ahead_s in (("h1", 3600), ("h2", 0)):
        for clock in login(hosts, name, now).stdout.split():
            assert abs(float(clock) - time.time() - ahead_s) < 10, name

    # Python.
    gone_paths = shlex.join(["ls", str(Path(__file__).parents[2]), sys.prefix])
    missing_path = f"{gone_paths} | wc -l; ls {shlex.quote(sys.executable)}; "
    which = "/usr/bin/python3 -c 'import sys; print(sys.version_info[:2], sys.prefix)'"
    hosts.only_python("h2")
    seen = login(hosts, "h2", missing_path + which)
    assert seen.stdout.endswith(" /usr\n"), seen
    assert sys.prefix == "/usr" or "No such file" in seen.stderr
    hosts.without_python("h2")
    for program in ("python3", "python", sys.executable, "/usr/bin/python3.11"):
        gone = login(hosts, "h2", f"{shlex.quote(program)} -c 'print(1)'")
        assert gone.returncode == 127, gone

    # Host keys.
    before = hosts.fingerprint("h2")
    hosts.change_host_key("h2")
    assert hosts.fingerprint("h2") != before
    changed = login(hosts, "h2", "true")
    assert changed.returncode == 255
    assert "IDENTIFICATION HAS CHANGED" in changed.stderr
    assert hosts.fingerprint("h2") in changed.stderr
    hosts.forget_host_key("h2")
    unknown = login(hosts, "h2", "true")
    assert unknown.returncode == 255
    assert "No ED25519 host key is known" in unknown.stderr
    assert login(hosts, "h1", "true").returncode == 0


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_an_emptied_tmp_keeps_this_machine_s_folders(tmp_path: Path) -> None:
    """A clone below /tmp is mounted there on the host, and so is what the host shares."""
    ours = Path(tempfile.mkdtemp(prefix="jd of the rig ", dir="/tmp"))
    try:
        (ours / "deeper").mkdir()
        (ours / "deeper" / "kept").write_text("kept")
        with Hosts(tmp_path / "hosts", ["h1"], shared=[ours]) as rig:
            rig.exec(
                "h1", ["sh", "-c", "mkdir -p /tmp/its/own && echo > /tmp/its/own/file && echo > /tmp/.x"]
            )
            with pytest.raises(RuntimeError, match=r"h1: ls /tmp/none → 2\n.*No such file"):
                rig.exec("h1", ["ls", "/tmp/none"])
            rig.empty_tmp("h1")
            # What is this machine's own below /tmp, such as the repository, is mounted on the host.
            left = set(rig.exec("h1", ["find", "/tmp", "-xdev", "-type", "f"]).stdout.splitlines())
            assert left == set()
            assert rig.exec("h1", ["ls", "-d", "/tmp/its"], check=False).returncode == 2
            assert rig.exec("h1", ["cat", str(ours / "deeper" / "kept")]).stdout == "kept"
            code = rig.exec("h1", ["cat", str(Path(__file__).resolve())]).stdout
        assert code == Path(__file__).read_text()
        assert (ours / "deeper" / "kept").read_text() == "kept"
    finally:
        shutil.rmtree(ours)


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_eight_hosts_come_and_go_quickly(tmp_path: Path) -> None:
    watch = Stopwatch()
    with Hosts(tmp_path / "eight", [f"eight{i}" for i in range(8)]) as eight:
        quick = watch.under(5)
        with Hosts(tmp_path / "two", ["two0", "two1"]) as two:  # two networks side by side
            assert two.address("two0") != eight.address("eight0")
            assert login(two, "two1", "hostname").stdout == "two1\n"
        assert login(eight, "eight7", "hostname").stdout == "eight7\n"
        assert left_of("eight7")
        assert not left_of("two1")
    assert not left_of("eight7")
    assert quick


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_what_a_killed_test_left_is_reaped(tmp_path: Path, wait_for: WaitFor) -> None:
    code = f"""
import sys, time; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path; from tests.rigs.hosts import Hosts
hosts = Hosts(Path({str(tmp_path)!r}) / "x", ["killed"]).__enter__()
hosts.popen("killed", ["sleep", "4444"])
hosts.delay("killed", 10)
print(hosts._machines["killed"].pid, flush=True)
time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    machine = owner.stdout.readline().strip()
    assert left_of("killed")
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_for(lambda: not Path("/proc", machine).exists(), what="the end of the killed test's host")
    with Hosts(tmp_path / "next", ["h1"]) as reaping:
        wait_for(lambda: not left_of("killed"))  # a parallel test may be at it
        assert login(reaping, "h1", "hostname").stdout == "h1\n"


def left_of(name: str) -> list[str]:
    """The network namespaces of hosts with this name, whoever's."""
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"^jd\d+-{name}\b", spaces, re.MULTILINE)
