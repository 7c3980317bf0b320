"""A wire that takes its time: `delay_line.py PORT TAP BRIDGE SECONDS` joins PORT to BRIDGE through it.

For `hosts.Hosts.delay`, in the switch's network namespace; the kernel's own (`tc … netem`) is often missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_FRAME = 70_000  # segments may come joined, up to 64 KiB
_ALL_PROTOCOLS = 3


def _open_port(name: str) -> int:
    # With the header that says "checksum and segmentation are still to do": a veth pair leaves both undone.
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    port.bind((name, _ALL_PROTOCOLS))
    return port.detach()


def _open_tap(name: str, bridge: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR)
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    subprocess.run(["ip", "link", "set", name, "master", bridge, "up"], check=True)
    return tap


def main(port_name: str, tap_name: str, bridge: str, delay_s: float) -> None:
    port, tap = _open_port(port_name), _open_tap(tap_name, bridge)
    lines: dict[int, deque[tuple[float, bytes]]] = {port: deque(), tap: deque()}
    print("ready", flush=True)
    while True:
        due = min((line[0][0] for line in lines.values() if line), default=None)
        wait_s = None if due is None else max(0.0, due - time.monotonic())
        for source in select.select([port, tap], [], [], wait_s)[0]:
            lines[tap if source == port else port].append(
                (time.monotonic() + delay_s, os.read(source, _FRAME))
            )
        now = time.monotonic()
        for target, line in lines.items():
            while line and line[0][0] <= now:
                frame = line.popleft()[1]
                with contextlib.suppress(OSError):  # a lost frame: the other end asks again
                    os.write(target, frame)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
