"""What an operator does with objects of its kind: have the API server know of them, and act on each once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3

from tests.rigs.kubernetes.api import Api, Refusal

__all__ = ["Make", "decide_by", "follow", "owned_by", "set_conditions"]

Make = Callable[[Api, Mapping[str, Any]], None]


def _definition(kind: str, path: str) -> dict[str, Any]:
    _, _, group, version, plural = path.split("/")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": plural[:-1]},
            "versions": [{**served, "schema": {"openAPIV3Schema": anything}}],
        },
    }


def follow(api: Api, kind: str, path: str, make: Make) -> None:
    """Have each object of a kind acted upon, in threads of its own. `path`: /apis/GROUP/VERSION/PLURAL."""
    with contextlib.suppress(Refusal):
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(kind, path))
    threading.Thread(target=_watch, args=(api, path, make)).start()


def _watch(api: Api, path: str, make: Make) -> None:
    seen: set[str] = set()
    while True:
        try:
            for event, told in api.watch(path):
                if event == "ADDED" and told["metadata"]["uid"] not in seen:
                    seen.add(told["metadata"]["uid"])
                    threading.Thread(target=_act, args=(api, make, told), daemon=True).start()
        except Exception as error:
            print(type(error).__name__, str(error)[:200], flush=True)
        time.sleep(0.3)


def _act(api: Api, make: Make, told: Mapping[str, Any]) -> None:
    """Again where the API server is away."""
    while True:
        try:
            return make(api, told)
        except (urllib3.exceptions.HTTPError, Refusal) as error:
            print(told["metadata"]["name"], type(error).__name__, str(error)[:500], flush=True)
            if isinstance(error, Refusal) and error.status < 500:
                return
        time.sleep(0.3)


def owned_by(told: Mapping[str, Any]) -> dict[str, Any]:
    """What the metadata of an object's parts say of whose they are."""
    owner = {key: told[key] for key in ("apiVersion", "kind")}
    owner |= {key: told["metadata"][key] for key in ("name", "uid")}
    return {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}


def set_conditions(api: Api, path: str, told: Mapping[str, Any], *conditions: Mapping[str, str]) -> None:
    """Have an object's status say so."""
    *group, plural = path.split("/")
    where = (
        f"{'/'.join(group)}/namespaces/{told['metadata']['namespace']}/{plural}/{told['metadata']['name']}"
    )
    status = {"status": {"conditions": [{"status": "True", **one} for one in conditions]}}
    api.ask("PATCH", f"{where}/status", status, kind="application/merge-patch+json")


def decide_by(api: Api, job: str, path: str, told: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Have the object's conditions say so once the Job at that path has ended: `kinds` by the Job's."""
    while True:
        try:
            conditions = api.get(job)["status"].get("conditions") or []
        except Refusal as refusal:
            if refusal.status == 404:
                return
            raise
        for one in conditions:
            kind = kinds.get(one["type"])
            if kind and one["status"] == "True":
                title, name = told["kind"], told["metadata"]["name"]
                said = f"{title} {name}: the Job {job.rpartition('/')[2]} is {one['type']}"
                with contextlib.suppress(Refusal):
                    set_conditions(
                        api, path, told, {"type": kind, "reason": f"{title}{kind}", "message": said}
                    )
                return
        time.sleep(0.3)
