"""Hosts made of namespaces on this machine, each with a real sshd, and the faults that befall them.

    def test_something(hosts):                        # three hosts: h1, h2, h3; needs root
        ssh = ["ssh", "-F", str(hosts.ssh_config), "-o", "BatchMode=yes"]
        subprocess.run([*ssh, "h1", "hostname"])      # as the driver, which is the test's process
        hosts.exec("h2", ["nproc"])                   # in the host, without ssh
        hosts.cut("h2"); hosts.mend("h2")             # packets vanish, connections hang

    @pytest.mark.parametrize("hosts", [8], indirect=True)          # or a list of names

A host has its own network, name, processes, /tmp, /run, /dev/shm and home (`hosts.home`, small: it can be
filled), over an overlay of this machine's `/`: the virtual environment, the repository and the compilers lie
at the same paths, writes stay on the host. The driver's temporary folder is not there. The user is root.
A login's PATH is Debian's: ask for this test's Python with its path, `sys.executable`.

The driver knows the hosts' names through `hosts.ssh_config` alone (its resolver does not: elsewhere use
`hosts.address("h1")`); hosts know all names, and `driver`, which is `hosts.driver_address`. Every host can
log in to every other; nobody can log in to the driver. The interface to the others is `eth0` on every host,
`hosts.interface` on the driver.

What launchers need here, as seen: Open MPI's mpirun from the driver `--allow-run-as-root -H h1:1,h2:1` and
`--mca plm_rsh_agent "ssh -F CONFIG -o BatchMode=yes"`, no `*_tcp_if_include`; from a host only the first two.
MPICH from the driver `-launcher ssh -launcher-exec SCRIPT` (a script that adds `-F CONFIG`) and
`-iface INTERFACE`: without it the hosts are told a name of the driver that they do not know, and it hangs.
gloo with MASTER_ADDR=h1 nothing more.

Everything ends with the `with` block or the test. What a killed test left is reaped by the next one's start.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from jupyter_dist.conformance.deadlines import Deadline, run_process

__all__ = ["Hosts", "Process", "clear_slot", "hosts", "missing", "take_slot"]

_SLOTS = Path("/run/jupyter-dist-hosts")
_REPOSITORY = Path(__file__).resolve().parents[2]
_PROGRAMS = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "cc": "gcc",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# $1: a tmpfs goes here, $2: the host's own files, $3: its name, $4: the size of its home,
# $5: what it shares with this machine wherever that lies, with colons between,
# then folders of this machine that the host must not see.
_BOOT = r"""
set -e
base=$1 files=$2 name=$3 size=$4 shared=$5 read=$6; shift 6
mount --make-rprivate /
mount -t tmpfs -o size=4g,mode=755 host "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay host -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
cd "$base/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o size=1g shm dev/shm
mount -t tmpfs -o size=1g,mode=1777 tmp tmp
mount -t tmpfs -o size=64m,mode=755 run run
mkdir -p home/jd run/sshd
mount -t tmpfs -o "size=$size,mode=700" home home/jd
cp -a "$files/." .
sed -i 's|^root:.*|root:x:0:0:root:/home/jd:/bin/bash|' etc/passwd
sed -i 's|^root:[^:]*:|root:*:|' etc/shadow
for hidden; do [ ! -d ".$hidden" ] || mount -t tmpfs -o size=4k,mode=755 hidden ".$hidden"; done
# What lies in a hidden folder or on a file system of its own is not in the overlay: it is this machine's own,
# of which a host must not change the checkout and the Python that runs this.
IFS=:
for path in $shared; do [ -e ".$path" ] || { mkdir -p ".$path"; mount --bind "$path" ".$path"; }; done
for path in $read; do
  [ -e ".$path" ] || { mkdir -p ".$path"; mount --bind "$path" ".$path"; mount -o remount,bind,ro ".$path"; }
done
unset IFS
hostname "$name"
mkdir -p run/old
pivot_root . run/old
cd /
umount -l /run/old
/usr/sbin/sshd -D -E /var/log/sshd.log &
echo $! > /run/sshd.pid
# The first process must reap what daemons leave it.
while :; do sleep 86400 & wait $!; done
"""

_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
MaxStartups 200
MaxSessions 200
KexAlgorithms curve25519-sha256
PidFile none
SetEnv OMP_WAIT_POLICY=PASSIVE
"""

_SWITCH = """\
table bridge faults {
  set cut { type ifname; }
  chain forward {
    type filter hook forward priority 0;
    ether type arp accept
    iifname @cut drop
    oifname @cut drop
  }
}
"""

_CLOCK = """\
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += SKEW_S;
  return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *also) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (also) *also = precise.tv_sec;
  return precise.tv_sec;
}
"""


@dataclass(frozen=True)
class Process:
    """A process on a host."""

    pid: int
    """Its number here: what `os.kill` of the test takes."""
    own_pid: int
    """Its number on the host."""
    argv: tuple[str, ...]


def missing() -> str | None:
    """What this machine lacks for hosts, with the cure; None when nothing."""
    if os.geteuid() != 0:
        return "hosts made of namespaces need root"
    lacking = {package for program, package in _PROGRAMS.items() if not _which(program)}
    if lacking:
        return f"hosts made of namespaces need: apt-get install {' '.join(sorted(lacking))}"
    return None


@pytest.fixture
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Three hosts, or as many as (or those that) an indirect parameter says."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    wanted = getattr(request, "param", 3)
    names = [f"h{i + 1}" for i in range(wanted)] if isinstance(wanted, int) else wanted
    with Hosts(tmp_path / "hosts", names) as running:
        yield running


class Hosts:
    """Hosts on one network with the driver; a context manager. `folder` gets keys and settings.

    home_mb: size of each host's home, where stage folders lie. shared: this machine's folders that they see.
    """

    home = "/home/jd"

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = ("h1", "h2", "h3"),
        *,
        home_mb: int = 512,
        shared: Sequence[Path] = (),
    ) -> None:
        self.folder = folder
        self.names = tuple(names)
        self.ssh_config = folder / "ssh_config"
        """For `ssh -F`: addresses, the key to log in with, and exactly the right host keys."""
        self.known_hosts = folder / "known_hosts"
        self._home_mb, self._shared = home_mb, [str(path) for path in shared]
        self._machines: dict[str, subprocess.Popen[bytes]] = {}
        self._inits: dict[str, int] = {}
        self._delays: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Hosts:
        self._slot, self._lock = take_slot()
        self.interface = f"jd{self._slot}"
        """The driver's interface to the hosts."""
        self.driver_address = self._address(1)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write_settings()
            self._build_network()
            for name in self.names:
                self._boot(name)
            for name in self.names:
                self._await(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process on the hosts and take the network down. Repeatable."""
        for process in (*self._delays.values(), *self._machines.values()):
            process.kill()
        for process in (*self._delays.values(), *self._machines.values()):
            process.wait()
        self._delays, self._machines, self._inits = {}, {}, {}
        if self._lock is not None:
            clear_slot(self._slot)
            self._lock.close()
            self._lock = None

    def address(self, name: str) -> str:
        """The host's IPv4 address."""
        return self._address(self.names.index(name) + 2)

    def exec(
        self,
        name: str,
        argv: Sequence[str],
        *,
        check: bool = True,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host as its root, without ssh, in a login's bare environment (and `env`)."""
        # pytest.fail raises what is no Exception: a stand-in's thread would end by it without a word.
        try:
            done = run_process(self.inside(name, argv), input=input, env=self._environment(env))
        except pytest.fail.Exception as error:
            raise RuntimeError(f"{name}: {error}") from error
        if check and done.returncode:
            raise RuntimeError(f"{name}: {' '.join(argv)} → {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a command in the host as `exec` does; it ends with the host."""
        return subprocess.Popen(self.inside(name, argv), env=self._environment(env), **options)

    def pids(self, name: str) -> list[Process]:
        """The host's processes, without its first one and its sshd (nor logins that sshd serves)."""
        space = os.readlink(f"/proc/{self._inits[name]}/ns/pid")
        found = []
        for entry in os.listdir("/proc"):
            # Processes come and go while we look.
            with contextlib.suppress(OSError):
                if not entry.isdigit() or os.readlink(f"/proc/{entry}/ns/pid") != space:
                    continue
                argv = tuple(
                    Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace").split("\0")
                )[:-1]
                status = Path("/proc", entry, "status").read_text()
                own_pid = int(status.split("NSpid:")[1].split("\n")[0].split()[-1])
                program = status.split()[1]
                if own_pid != 1 and program != "sshd" and argv not in {("sleep", "86400"), ()}:
                    found.append(Process(int(entry), own_pid, argv))
        return sorted(found, key=lambda process: process.own_pid)

    def cut(self, name: str) -> None:
        """Lose every packet from and to the host: connections hang, new ones time out."""
        place = self.names.index(name)
        self._switch("nft", "add", "element", "bridge", "faults", "cut", f"{{ p{place}, t{place} }}")

    def mend(self, name: str) -> None:
        """Undo `cut`."""
        place = self.names.index(name)
        self._switch("nft", "delete", "element", "bridge", "faults", "cut", f"{{ p{place}, t{place} }}")

    def delay(self, name: str, ms: float) -> None:
        """Make each round trip to the host take `ms` longer, half of it each way; 0 ends that."""
        port = f"p{self.names.index(name)}"
        line = self._delays.pop(name, None)
        if line is not None:
            line.kill()
            line.wait()
            self._switch("ip", "link", "set", port, "master", "br0")
        if ms:
            self._switch("ip", "link", "set", port, "nomaster", "promisc", "on")
            script = [sys.executable, "-I", str(Path(__file__).with_name("delay_line.py"))]
            argv = [*script, port, port.replace("p", "t"), "br0", str(ms / 2000)]
            line = subprocess.Popen(
                _dying_with_us(["ip", "netns", "exec", self._space("switch"), *argv]), stdout=subprocess.PIPE
            )
            self._delays[name] = line
            assert line.stdout is not None
            with line.stdout:
                if line.stdout.readline() != b"ready\n":
                    pytest.fail(f"the delay of {name} did not start")

    def skew(self, name: str, seconds: int) -> None:
        """Set the wall clock that new processes of the host see ahead (or back); times of files stay."""
        library = self.folder / f"clock{seconds}.so"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", f"-DSKEW_S={seconds}", "-x", "c", "-", "-o", str(library)],
            input=_CLOCK.encode(),
            check=True,
        )
        self._put(name, f"/usr/local/lib/{library.name}", library)
        self.exec(name, ["sh", "-c", f"echo /usr/local/lib/{library.name} > /etc/ld.so.preload"])

    def fill_disk(self, name: str, *, but: int = 0) -> None:
        """Leave no byte free in the host's home, or so many: its tmpfs shrinks to what it holds."""
        for _ in range(50):
            used = self.exec(name, ["df", "--output=used", "-B1", self.home]).stdout.split()[-1]
            options = f"remount,size={max(int(used) + but, 4096)}"
            if not self.exec(name, ["mount", "-o", options, self.home], check=False).returncode:
                return
        pytest.fail(f"the disk of {name} could not be filled")

    def empty_disk(self, name: str) -> None:
        """Undo `fill_disk`: the home has its size again, and nothing is lost."""
        self.exec(name, ["mount", "-o", f"remount,size={self._home_mb}m", self.home])

    def empty_tmp(self, name: str) -> None:
        """Remove what the host has in /tmp, but not what is mounted there: folders of this machine."""
        files = "find /tmp -xdev -mindepth 1 ! -type d -delete"
        self.exec(name, ["sh", "-c", f"{files} && find /tmp -xdev -mindepth 1 -type d -empty -delete"])

    def only_python(self, name: str, executable: str = "/usr/bin/python3") -> None:
        """Leave the host one Python, as /usr/bin/python3: Debian's, or the one at `executable`.

        The repository, the virtual environment and the Python that runs the tests are hidden.
        """
        hidden = {str(_REPOSITORY), sys.prefix, sys.base_prefix} - {"/usr", "/usr/local"}
        for folder in sorted(hidden):
            self.exec(name, ["sh", "-c", '[ ! -d "$0" ] || mount -t tmpfs -o size=4k hidden "$0"', folder])
        if executable != "/usr/bin/python3":
            self.exec(name, ["ln", "-sf", executable, "/usr/bin/python3"])

    def without_python(self, name: str) -> None:
        """Take every Python from the host."""
        self.only_python(name)
        gone = "rm -f /usr/bin/python* /usr/bin/pypy* /usr/local/bin/python*"
        self.exec(name, ["sh", "-c", gone])

    def change_host_key(self, name: str) -> None:
        """Give the host's sshd another key; the driver and the other hosts still know the old one."""
        key = self.folder / f"new-key-of-{name}"
        key.unlink(missing_ok=True)
        _make_key(key)
        for suffix in ("", ".pub"):
            self._put(name, f"/etc/ssh/ssh_host_ed25519_key{suffix}", Path(f"{key}{suffix}"))
        self.exec(name, ["sh", "-c", "kill -HUP $(cat /run/sshd.pid)"])
        fingerprint = self.fingerprint(name)
        deadline = Deadline()
        while fingerprint not in self._offered(name):
            if deadline.passed():
                pytest.fail(f"{name} does not offer its new key")

    def forget_host_key(self, name: str) -> None:
        """Strike the host off the driver's known hosts."""
        lines = self.known_hosts.read_text().splitlines(keepends=True)
        self.known_hosts.write_text("".join(line for line in lines if not line.startswith(f"{name},")))

    def fingerprint(self, name: str) -> str:
        """`SHA256:…` of the host's present key."""
        shown = self.exec(name, ["ssh-keygen", "-l", "-f", "/etc/ssh/ssh_host_ed25519_key.pub"])
        return shown.stdout.split()[1]

    def power_off(self, name: str) -> None:
        """End the host and lose what it wrote; its address then answers nothing."""
        machine = self._machines.pop(name)
        del self._inits[name]
        machine.kill()
        machine.wait()
        self._switch("ip", "link", "set", f"p{self.names.index(name)}", "down")

    def is_on(self, name: str) -> bool:
        """Whether the host runs, and was not powered off."""
        return name in self._machines

    def power_on(self, name: str) -> None:
        """Start the host anew after `power_off`, with the keys of its first start."""
        self._switch("ip", "link", "set", f"p{self.names.index(name)}", "up")
        self._boot(name)
        self._await(name)

    def _address(self, number: int) -> str:
        # 198.18.0.0/15 is set aside for tests of networks: nobody's real network.
        return f"198.18.{self._slot}.{number}"

    def _space(self, name: str) -> str:
        return f"jd{self._slot}-{name}"

    def _write_settings(self) -> None:
        key = self.folder / "id_ed25519"
        _make_key(key)
        known, entries = "", ""
        for name in self.names:
            etc = self.folder / name / "etc"
            (etc / "ssh").mkdir(parents=True)
            _make_key(etc / "ssh" / "ssh_host_ed25519_key")
            public = (etc / "ssh" / "ssh_host_ed25519_key.pub").read_text().split()[:2]
            known += f"{name},{self.address(name)} {' '.join(public)}\n"
            entries += f"Host {name}\n  HostName {self.address(name)}\n"
        self.known_hosts.write_text(known)
        common = "  User root\n  IdentitiesOnly yes\n  IdentityAgent none\n  GlobalKnownHostsFile /dev/null\n"
        own = f"  IdentityFile {key}\n  UserKnownHostsFile {self.known_hosts}\n"
        self.ssh_config.write_text(f"{entries}Host *\n{common}{own}")
        addresses = {name: self.address(name) for name in self.names} | {"driver": self.driver_address}
        names = "".join(f"{address} {name}\n" for name, address in addresses.items())
        for name in self.names:
            etc = self.folder / name / "etc"
            (etc / "hostname").write_text(f"{name}\n")
            (etc / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
            # No name server answers there, and torch asks for the names of addresses: 10 s each.
            (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
            (etc / "ssh" / "sshd_config").write_text(_SSHD)
            login = self.folder / name / self.home[1:] / ".ssh"
            login.mkdir(parents=True)
            for private in (login, login.parent):
                private.chmod(0o700)
            shutil.copy(key, login)
            shutil.copy(key.with_suffix(".pub"), login / "authorized_keys")
            shutil.copy(self.known_hosts, login)
            (login / "config").write_text(f"Host *\n{common}")

    def _build_network(self) -> None:
        switch = self._space("switch")
        spaces = [switch, *(self._space(name) for name in self.names)]
        links = [f"link add {self.interface} type veth peer name driver netns {switch}"]
        for place, space in enumerate(spaces[1:]):
            links.append(f"link add p{place} netns {switch} type veth peer name eth0 netns {space}")
        here = [
            f"address add {self.driver_address}/24 dev {self.interface}",
            f"link set {self.interface} up",
        ]
        _ip([*(f"netns add {space}" for space in spaces), *links, *here])
        ports = ["driver", *(f"p{place}" for place in range(len(self.names)))]
        joined = [f"link set {port} master br0 up" for port in ports]
        _ip(["link add br0 type bridge", "link set br0 up", *joined], switch)
        self._switch("nft", "-f", "-", input=_SWITCH)
        for name in self.names:
            addressed = [
                f"address add {self.address(name)}/24 dev eth0",
                f"route add default via {self.driver_address}",
            ]
            _ip(["link set lo up", "link set eth0 up", *addressed], self._space(name))

    def _switch(self, *argv: str, input: str | None = None) -> None:
        _run(["ip", "netns", "exec", self._space("switch"), *argv], input=input)

    def _boot(self, name: str) -> None:
        base = _SLOTS / str(self._slot) / name
        base.mkdir(parents=True, exist_ok=True)
        hidden = {tempfile.gettempdir(), str(self.folder.parent)}
        read = [str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix]
        boot = ["sh", "-c", _BOOT, "boot", str(base), str(self.folder / name)]
        boot += [name, f"{self._home_mb}m", ":".join(self._shared), ":".join(read)]
        own_spaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=SIGKILL"]
        enter = ["ip", "netns", "exec", self._space(name), *own_spaces]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._machines[name] = subprocess.Popen(
                _dying_with_us([*enter, *boot, *sorted(path for path in hidden if path != "/tmp")]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(None),
                start_new_session=True,
            )

    def _await(self, name: str) -> None:
        """Wait until the host's sshd answers."""
        machine = self._machines[name]
        deadline = Deadline()
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((self.address(name), 22), timeout=1).close()
                break
            if machine.poll() is not None or deadline.passed():
                log = (self.folder / f"{name}.log").read_text(errors="replace")
                pytest.fail(f"host {name} did not start:\n{log}")
            time.sleep(0.01)
        self._inits[name] = int(
            Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()[0]
        )

    def inside(self, name: str, argv: Sequence[str]) -> list[str]:
        """The arguments with which somebody else runs a command in the host, as `exec` does."""
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
        return ["nsenter", "--target", str(self._inits[name]), *spaces, "--", *argv]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        own = {"PATH": _PATH, "HOME": self.home, "USER": "root", "LANG": "C.UTF-8"}
        return {**own, "OMP_WAIT_POLICY": "PASSIVE", **(more or {})}  # as in conftest.py

    def _put(self, name: str, path: str, source: Path) -> None:
        subprocess.run(
            self.inside(name, ["dd", "status=none", f"of={path}"]), input=source.read_bytes(), check=True
        )

    def _offered(self, name: str) -> str:
        scanned = subprocess.run(["ssh-keyscan", "-t", "ed25519", self.address(name)], capture_output=True)
        listed = subprocess.run(["ssh-keygen", "-l", "-f", "-"], input=scanned.stdout, capture_output=True)
        return listed.stdout.decode()


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PATH}")


def _run(argv: Sequence[str], *, check: bool = True, input: str | None = None) -> str:
    # Debian's users have no sbin on their PATH, and `sudo` may keep it so.
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_PATH}"}
    done = subprocess.run(argv, input=input, capture_output=True, text=True, env=env)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)} → {done.returncode}\n{input or ''}\n{done.stderr}")
    return done.stdout


def _ip(commands: Sequence[str], space: str | None = None) -> None:
    _run(["ip", *(["-n", space] if space else []), "-batch", "-"], input="\n".join(commands) + "\n")


def _make_key(path: Path) -> None:
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "jupyter-dist test", "-f", str(path)])


def _dying_with_us(argv: Sequence[str]) -> list[str]:
    # Not a preexec_fn: that is unsafe beside threads, and pytest may have some.
    return ["setpriv", "--pdeathsig", "KILL", "--", *argv]


def take_slot() -> tuple[int, IO[str] | None]:
    """The lowest number nobody alive holds, with its lock; what dead owners left is taken away."""
    _SLOTS.mkdir(mode=0o700, exist_ok=True)
    taken = None
    for slot in range(1, 255):
        path = _SLOTS / f"{slot}.lock"
        if taken is not None and not path.exists():
            break
        lock = path.open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        clear_slot(slot)
        if taken is None:
            taken = slot, lock
        else:
            lock.close()
    if taken is None:
        raise RuntimeError(f"254 tests hold hosts; see {_SLOTS}")
    return taken


def clear_slot(slot: int) -> None:
    """Take away all that hosts of this slot left: processes, network, folders."""
    listed = json.loads(_run(["ip", "-json", "netns", "list"]) or "[]")
    spaces = [space["name"] for space in listed if space["name"].startswith(f"jd{slot}-")]
    for space in spaces:
        for pid in _run(["ip", "netns", "pids", space], check=False).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    # First: the kernel takes a namespace's links away some time after the namespace.
    if Path(f"/sys/class/net/jd{slot}").exists():
        _ip([f"link delete jd{slot}"])
    if spaces:
        _ip([f"netns delete {space}" for space in spaces])
    shutil.rmtree(_SLOTS / str(slot), ignore_errors=True)
