"""The cluster's name server: SERVICE.NAMESPACE.svc.cluster.local and HOST.SERVICE.… from real Endpoints.

python name_server.py URL TOKEN CA ADDRESS
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rigs.kubernetes.api import Api

__all__ = ["main"]


def _zone(endpoints: Mapping[str, Any]) -> dict[str, list[str]]:
    meta = endpoints["metadata"]
    name = f"{meta['name']}.{meta['namespace']}.svc.cluster.local"
    found: dict[str, list[str]] = {}
    for subset in endpoints.get("subsets") or []:
        # What is not ready stands among the others where the service publishes it.
        for address in subset.get("addresses") or []:
            found.setdefault(name, []).append(address["ip"])
            if address.get("hostname"):
                found.setdefault(f"{address['hostname']}.{name}", []).append(address["ip"])
    return found


def _follow(api: Api, zones: dict[str, dict[str, list[str]]]) -> None:
    while True:
        try:
            for kind, item in api.watch("/api/v1/endpoints"):
                zones[item["metadata"]["uid"]] = {} if kind == "DELETED" else _zone(item)
        except Exception as error:
            print(type(error).__name__, flush=True)
        time.sleep(0.5)


def _answer(question: bytes, zones: Mapping[str, Mapping[str, list[str]]]) -> bytes:
    place, labels = 12, []
    while question[place]:
        labels.append(question[place + 1 : place + 1 + question[place]].decode())
        place += question[place] + 1
    name = ".".join(labels).lower()
    (kind,) = struct.unpack("!H", question[place + 1 : place + 3])
    found = next((zone[name] for zone in list(zones.values()) if name in zone), None)
    addresses = found if found is not None and kind == 1 else []
    head = struct.pack("!HHHHH", 0x8580 | (0 if found is not None else 3), 1, len(addresses), 0, 0)
    each = [b"\xc0\x0c\0\1\0\1" + struct.pack("!IH", 5, 4) + socket.inet_aton(one) for one in addresses]
    return question[:2] + head + question[12 : place + 5] + b"".join(each)


def main(url: str, token: str, ca: str, address: str) -> None:
    zones: dict[str, dict[str, list[str]]] = {}
    threading.Thread(target=_follow, args=(Api(url, token, Path(ca)), zones), daemon=True).start()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    while True:
        question, asker = server.recvfrom(4096)
        server.sendto(_answer(question, zones), asker)


if __name__ == "__main__":
    main(*sys.argv[1:])
