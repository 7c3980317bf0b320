"""One pod as a process of this machine in namespaces of its own, over a copy of this machine's files."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.rigs.kubernetes.api import Api

__all__ = ["Network", "Pod"]

# $1: a tmpfs goes here, $2: the pod's host name, $3: its /etc/hosts, $4: its /etc/resolv.conf; then, each up
# to `--`: mounts as SOURCE TARGET, folders of this machine that it must not see, folders that it must.
_BOOT = r"""
set -e
base=$1 name=$2 hosts=$3 resolv=$4; shift 4
mount --make-rprivate /
mount -t tmpfs -o size=4g,mode=755 pod "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay pod -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
cd "$base/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o size=64m shm dev/shm
mount -t tmpfs -o size=1g,mode=1777 tmp tmp
mount -t tmpfs -o size=64m,mode=755 run run
mkdir -p run/old
rm -f etc/resolv.conf
printf '%s\n' "$hosts" > etc/hosts
printf '%s\n' "$resolv" > etc/resolv.conf
printf 'hosts: files dns\n' > etc/nsswitch.conf
while [ "$1" != -- ]; do
  mkdir -p ".$2"
  if [ "$1" != memory ]; then mount --bind "$1" ".$2"; else
    mount -t tmpfs -o size=2g,mode=1777 memory ".$2"
  fi
  shift 2
done; shift
while [ "$1" != -- ]; do [ ! -d ".$1" ] || mount -t tmpfs -o size=4k,mode=755 hidden ".$1"; shift; done; shift
while [ "$1" != -- ]; do
  [ -e ".$1" ] || { mkdir -p ".$1"; mount --bind "$1" ".$1"; mount -o remount,bind,ro ".$1"; }
  shift
done; shift
hostname "$name"
pivot_root . run/old
cd /
umount -l /run/old
echo up >&0
exec "$@" </dev/null
"""


class Network:
    """The pods' network: a bridge of which each pod gets an address, and of which each node has its part."""

    def __init__(self, slot: int, node: int) -> None:
        self._slot = slot
        self.gateway = f"198.18.{slot}.1"
        self._free = list(range(10 + 80 * node, 90 + 80 * node))

    def join(self) -> tuple[int, str, str]:
        """A new namespace: its number, its name and its address."""
        number = self._free.pop(0)
        space, link, address = f"jd{self._slot}-p{number}", f"jd{self._slot}v{number}", self._address(number)
        _ip(
            f"netns add {space}",
            f"link add {link} type veth peer name eth0 netns {space}",
            f"link set {link} master jd{self._slot} up",
        )
        commands = (f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up")
        _ip(*commands, f"route add default via {self.gateway}", space=space)
        return number, space, address

    def leave(self, number: int) -> None:
        _ip(f"netns delete jd{self._slot}-p{number}")
        self._free.append(number)

    def _address(self, number: int) -> str:
        return f"198.18.{self._slot}.{number}"


def _ip(*commands: str, space: str | None = None) -> None:
    argv = ["ip", *(["-n", space] if space else []), "-batch", "-"]
    subprocess.run(argv, input="\n".join(commands) + "\n", text=True, check=True, capture_output=True)


class Pod:
    """One pod of which the first container runs; the others are left out."""

    def __init__(self, api: Api, network: Network, folder: Path, node: str, told: Mapping[str, Any]) -> None:
        meta, self._spec = told["metadata"], told["spec"]
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        self.container = self._spec["containers"][0]
        self._api, self._network, self._meta, self._node = api, network, meta, node
        self._folder = folder / self.uid
        self.log = self._folder / "log"
        self.over = False
        self.process: subprocess.Popen[bytes] | None = None
        self.init = 0
        self.env: dict[str, str] = {}
        self._times: list[tuple[int, float]] = []
        """How long the log was, and when."""
        self._timed = False

    def start(self) -> str:
        """Start it, and return its address once its command is about to run."""
        (self._folder / "base").mkdir(parents=True)
        self._number, space, address = self._network.join()
        self.env = self._environment(address)
        host = self._spec.get("hostname") or self.name
        domain = f"{self.namespace}.svc.cluster.local"
        own = f"{host}.{self._spec['subdomain']}.{domain} " if self._spec.get("subdomain") else ""
        hosts = f"127.0.0.1 localhost\n{address} {own}{host}"
        search = f"search {domain} svc.cluster.local cluster.local\noptions ndots:5 timeout:1"
        resolv = f"nameserver {self._network.gateway}\n{search}"
        env = [f"{name}={value}" for name, value in self.env.items()]
        work = self.container.get("workingDir") or "/"
        command = [*self.container.get("command", []), *self.container.get("args", [])]
        inside = ["env", "-i", *env, "sh", "-c", 'cd "$0"; exec "$@"', work, *command]
        spaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=SIGKILL"]
        boot = ["sh", "-c", _BOOT, "boot", str(self._folder / "base"), host, hosts, resolv]
        boot += [*self._mounts(), "--", *json.loads(os.environ["KUBE_HIDDEN"]), "--"]
        boot += [*json.loads(os.environ["KUBE_READ"]), "--", *inside]
        # It ends with this kubelet, as with its machine.
        argv = ["setpriv", "--pdeathsig", "KILL", "--", "ip", "netns", "exec", space, *spaces, *boot]
        read, write = os.pipe()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, stdin=write, stdout=log, stderr=log, start_new_session=True)
        os.close(write)
        os.read(read, 3)  # that it is up, or that it has ended
        os.close(read)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.init = int((children.read_text().split() or ["0"])[0]) if self.process.poll() is None else 0
        threading.Thread(target=self._time, daemon=True).start()
        return address

    def _time(self) -> None:
        while not self._timed:
            over = self.over
            size = self.log.stat().st_size
            if size > (self._times[-1][0] if self._times else 0):
                self._times.append((size, time.time()))
            self._timed = over
            time.sleep(0.02)

    def stamped(self, *, follow: bool) -> Iterator[tuple[float, list[bytes]]]:
        """The lines of its log, and when this node got them; with `follow` those to come, until its end."""
        number, place, rest, when = 0, 0, b"", 0.0
        with self.log.open("rb") as file:
            while True:
                timed, known = self._timed, len(self._times)
                for size, when in self._times[number:known]:
                    *lines, rest = (rest + file.read(size - place)).split(b"\n")
                    place = size
                    yield when, [line + b"\n" for line in lines]
                number = known
                if timed and rest:
                    yield when, [rest]
                if timed or not follow:
                    return
                time.sleep(0.02)

    def wait(self) -> int:
        """Its exit code, as a shell tells it; what it held is given back."""
        assert self.process is not None
        code = self.process.wait()
        self.over = True
        self._network.leave(self._number)
        return 128 - code if code < 0 else code

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The arguments with which somebody else runs a command in it, as exec does."""
        env = [f"{name}={value}" for name, value in self.env.items()]
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
        return ["nsenter", "--target", str(self.init), *spaces, "--", "env", "-i", *env, *argv]

    def _environment(self, address: str) -> dict[str, str]:
        found = {"PATH": os.environ["KUBE_PATH"], "HOME": "/root", "LANG": "C.UTF-8", "HOSTNAME": self.name}
        found["OMP_WAIT_POLICY"] = "PASSIVE"  # as in conftest.py
        server = urlsplit(os.environ["KUBE_URL"])
        found |= {
            "KUBERNETES_SERVICE_HOST": f"{server.hostname}",
            "KUBERNETES_SERVICE_PORT": f"{server.port}",
        }
        known = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "status.podIP": address,
            "spec.nodeName": self._node,
        }
        for each in self.container.get("env", []):
            if "value" in each or "valueFrom" not in each:
                found[each["name"]] = each.get("value", "")
                continue
            if "secretKeyRef" in each["valueFrom"]:
                found |= self._kept_secret(each["name"], each["valueFrom"]["secretKeyRef"])
                continue
            field = each["valueFrom"]["fieldRef"]["fieldPath"]
            if field.startswith("metadata.annotations["):
                known[field] = self._meta.get("annotations", {}).get(field.split("'")[1], "")
            found[each["name"]] = known.get(field, "")
        return found

    def _kept_secret(self, name: str, told: Mapping[str, Any]) -> dict[str, str]:
        """A variable that has its value from a Secret, which must be there: else the start is tried again."""
        data = self._api.get(self._core("secrets", told["name"])).get("data", {})
        if told.get("optional") and told["key"] not in data:
            return {}
        return {name: base64.b64decode(data[told["key"]]).decode()}

    def _mounts(self) -> list[str]:
        volumes = {volume["name"]: volume for volume in self._spec.get("volumes", [])}
        found: list[str] = []
        for mount in self.container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            target = os.path.realpath(mount["mountPath"])  # /var/run is another name of /run, in pods as well
            if volume.get("emptyDir", {}).get("medium") == "Memory":
                found += ["memory", target]
                continue
            if "hostPath" in volume:
                found += [volume["hostPath"]["path"], target]
                continue
            place = self._folder / "volumes" / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o1777)
            if "secret" in volume:
                told = volume["secret"]
                data = self._api.get(self._core("secrets", told["secretName"]))["data"]
                _fill(place, told, {name: base64.b64decode(value) for name, value in data.items()})
            elif "configMap" in volume:
                told = volume["configMap"]
                data = self._api.get(self._core("configmaps", told["name"]))["data"]
                _fill(place, told, {name: value.encode() for name, value in data.items()})
            found += [str(place), target]
        return found

    def _core(self, kind: str, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{kind}/{name}"


def _fill(place: Path, told: Mapping[str, Any], data: Mapping[str, bytes]) -> None:
    """The files of a Secret or a ConfigMap, or those of them that are named, with their modes."""
    for item in told.get("items") or [{"key": name, "path": name} for name in data]:
        file = place / item["path"]
        file.write_bytes(data[item["key"]])
        file.chmod(item.get("mode") or told.get("defaultMode") or 0o644)
