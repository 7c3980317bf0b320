"""The server extension: what the API answers, and that its description is right."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import WebSocketClientConnection

from jupyter_dist import queries
from jupyter_dist.errors import InputError
from jupyter_dist.job import State
from jupyter_dist.manage import actions
from jupyter_dist.queries.media_pages import SAFE_TYPES
from jupyter_dist.queries.snapshot import snapshot
from jupyter_dist.server import operations
from jupyter_dist.server.operations import OPERATIONS, Operation, Param
from jupyter_dist.worker.output import events, media
from tests.rigs.launching import open_files
from tests.rigs.run_maker import BEGAN, RunMaker
from tests.rigs.server_process import TOKEN, Server, api

TYPES = {"names": "array"}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server")).start()
    yield started
    started.stop()


def documented() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("jupyter_dist.server").joinpath("openapi.json").read_text())
    return found


def test_openapi_names_every_operation_and_no_other() -> None:
    told = {(method.upper(), path) for path, methods in documented()["paths"].items() for method in methods}
    assert told == {(op.method, op.path) for op in OPERATIONS} | {("GET", "/watch")}


def test_what_is_made_from_the_shapes_of_answers_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/answers.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_answers_fit_their_schemas(own_folders: Path) -> None:
    import jsonschema  # type: ignore[import-untyped]  # takes seconds, in every process that collects tests

    run = RunMaker(own_folders)
    run.print(0, "one\ntwo", BEGAN + 1)
    run.metric(0, 1, {"loss": 0.5})
    run.metric(1, 1, {"loss": float("nan")})
    run.event(0, "progress", id=0, n=1, total=2, desc="")
    run.result(0, 3)
    told: dict[str, Any] = {
        "RunInfo": queries.run(run.folder.id),
        "RunList": queries.runs(),
        "LogPage": queries.log_page(run.folder.id),
        "SearchResult": queries.log_search(run.folder.id, query="o"),
        "Curves": queries.curves(run.folder.id),
        "Snapshot": snapshot(run.folder.id, lines=10, points=100, each=10, final=False),
        "Stacks": actions.stacks(run.folder.id, timeout_s=0.0),
        "ClusterList": queries.clusters(),
    }
    several: dict[str, list[Any]] = {
        "Change": [*queries.RunChanges([run.folder.id, "runs"]).poll()],
        "Result": [*queries.results(run.folder.id)],
        "Backend": [*queries.backends()],
    }
    run.fail(1, "ValueError", "bad", "Traceback")
    several["RankError"] = [*queries.errors(run.folder.id)]
    assert all(several.values())
    for name, answer in [*told.items(), *((name, one) for name, found in several.items() for one in found)]:
        schema = {"$ref": f"#/components/schemas/{name}", "components": documented()["components"]}
        jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(answer)))


@pytest.mark.parametrize("op", [pytest.param(op, id=f"{op.method} {op.path}") for op in OPERATIONS])
def test_openapi_parameters(op: Operation) -> None:
    told = documented()["paths"][op.path][op.method.lower()]
    in_path = {p["name"] for p in told.get("parameters", []) if p["in"] == "path" and p["required"]}
    assert in_path == set(re.findall(r"\{(\w+)\}", op.path))
    if op.method in ("GET", "DELETE"):
        assert "requestBody" not in told
        given = {
            p["name"]: (p["schema"]["type"], p["required"])
            for p in told.get("parameters", [])
            if p["in"] == "query"
        }
    else:
        schema = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        given = {
            name: (value["type"], name in schema.get("required", []))
            for name, value in schema.get("properties", {}).items()
        }
    assert given == {p.name: (TYPES.get(p.kind, p.kind), p.required) for p in op.params}
    content = told["responses"]["200"]["content"]
    closed = {*SAFE_TYPES.values(), "text/plain", "application/octet-stream"}
    assert {*content} == (closed if op.content else {op.file or "application/json"})


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("integer", "-3", -3),
        ("integer", 4, 4),
        ("number", "1.5", 1.5),
        ("boolean", "true", True),
        ("boolean", False, False),
        ("names", "a,b", ["a", "b"]),
        ("string", "x", "x"),
        ("object", {"a": 1}, {"a": 1}),
    ],
)
def test_parameters_are_read(kind: operations.Kind, raw: object, value: object) -> None:
    assert Param("p", kind).read(raw) == value


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("integer", "x"),
        ("integer", True),
        ("integer", 1.5),
        ("boolean", "yes"),
        ("boolean", 1),
        ("names", [1]),
        ("object", []),
        ("object", "{}"),
        ("string", 1),
        ("number", []),
    ],
)
def test_wrong_parameters_are_refused(kind: operations.Kind, raw: object) -> None:
    with pytest.raises(InputError, match=f"p must be of type {kind}"):
        Param("p", kind).read(raw)


def test_the_list_says_where_it_looked(server: Server) -> None:
    answer = server.call("GET", "/runs?text=nothing-is-called-so").json
    assert answer["runs"] == []
    assert answer["root"] == str(server.runs)
    missing = server.call("GET", "/runs/20200101-000000-abcd")
    assert missing.status == 404
    assert missing.json["root"] == str(server.runs)
    assert "20200101-000000-abcd" in missing.json["message"]


def test_a_run_and_its_log(server: Server) -> None:
    run = RunMaker(server.runs, 2)
    for rank in range(2):
        run.print(rank, f"both\nrank {rank} <script>\x1b[31m\0\n", BEGAN + 1)
    run.end()
    found = server.call("GET", f"/runs/{run.folder.id}").json
    assert (found["state"], len(found["ranks"]), found["source"]) == ("succeeded", 2, "train()")
    page = server.call("GET", f"/runs/{run.folder.id}/log?start=0&count=10")
    assert page.headers["Content-Type"].startswith("application/json")
    assert [(line["ranks"], line["text"]) for line in page.json["lines"]] == [
        ([0, 1], "both"),
        ([0], "rank 0 <script>\x1b[31m\0"),
        ([1], "rank 1 <script>\x1b[31m\0"),
    ]
    hits = server.call("GET", f"/runs/{run.folder.id}/log/search?query=RANK+.&regex=true").json
    assert hits == {"count": 2, "hits": [1, 2], "truncated": False}
    for query, lines in ((" 1", [2]), ("1 ", [2]), (" ", [1, 2])):
        asked = urllib.parse.urlencode({"query": query})
        hits = server.call("GET", f"/runs/{run.folder.id}/log/search?{asked}").json
        assert hits == {"count": len(lines), "hits": lines, "truncated": False}, query
    for bad in ("count=0", "rank=2", "rank=x", "attempt=7"):
        assert server.call("GET", f"/runs/{run.folder.id}/log?{bad}").status == 400, bad
    wrong = server.call("GET", f"/runs/{run.folder.id}/log/search?query=(&regex=1")
    assert wrong.status == 400
    assert "regular expression" in wrong.json["message"]
    assert server.call("POST", f"/runs/{run.folder.id}").status == 405
    for body in (b"\xff", b"{", b"[" * 100_000, b"[]", b'"x"'):
        headers = {"Authorization": f"token {TOKEN}"}
        wrong = server.request("POST", api(f"/runs/{run.folder.id}/stop"), headers, body)
        assert (wrong.status, wrong.json["message"][:8]) == (400, "the body"), body[:9]


def test_downloads_are_files(server: Server) -> None:
    run = RunMaker(server.runs, 2)
    data = b"<html>\n\xff\0\n" + b"x" * 3_000_000 + b"\nlast"
    run.print(0, data, BEGAN + 1)
    run.print(1, "one\n", BEGAN + 2)
    run.end()
    path = f"/runs/{run.folder.id}/log/download"
    answer = server.call("GET", f"{path}?rank=0")
    assert answer.body == data
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{run.folder.id}-rank-0.log"'
    named = server.call("GET", f"{path}?rank=0&attempt=0").headers["Content-Disposition"]
    assert named.endswith('-rank-0-attempt-0.log"')
    whole = server.call("GET", path).body
    assert whole.startswith(b"[0] <html>\n")
    assert b"\n[1] one\n" in whole
    assert server.call("GET", f"{path}?rank=5").status == 400
    # A link carries no header: the browser's Referer stands for the XSRF token.
    headers = server.log_in()
    link = {"Cookie": headers["Cookie"], "Referer": f"{server.origin}/user/lab"}
    assert server.request("GET", api(f"{path}?rank=1"), link).body == b"one\n"


def test_a_download_that_was_left_is_ended(tmp_path: Path, wait_for: Callable[..., Any]) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "jupyter_server_config.py").write_text(
        "from jupyter_dist.server import rest\nrest._STALLED_S = 1.0\n"
    )
    server = Server(tmp_path).start()
    try:
        run = RunMaker(server.runs, 1)
        run.print(0, b"x" * 40_000_000 + b"\n", BEGAN + 1)
        run.end()
        log = os.path.realpath(run.rank(0).output)

        def is_open() -> bool:
            return log in open_files(server.pid)

        path = api(f"/runs/{run.folder.id}/log/download?rank=0")
        with socket.create_connection(("127.0.0.1", server.port)) as left:
            head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: token {TOKEN}\r\n\r\n"
            left.sendall(head.encode())
            assert left.recv(12) == b"HTTP/1.1 200"
            assert is_open()
            wait_for(lambda: not is_open(), "the end of a download whose client takes nothing")
        # One that is slow, but takes what it gets, is left alone.
        assert len(server.call("GET", f"/runs/{run.folder.id}/log/download?rank=0").body) == 40_000_001
    finally:
        server.stop()


def test_stop_and_remove(server: Server) -> None:
    run = RunMaker(server.runs, 1)
    assert server.call("DELETE", f"/runs/{run.folder.id}").status == 400
    assert server.call("POST", f"/runs/{run.folder.id}/stop", {"kill": "now"}).status == 400
    assert server.call("POST", f"/runs/{run.folder.id}/stop", {"kill": True}).json["state"] == "running"
    assert [path.name for path in run.folder.requests.iterdir()] == ["kill"]
    assert server.call("POST", f"/runs/{run.folder.id}/stop", [1]).status == 400
    run.end(State.STOPPED)
    assert server.call("POST", f"/runs/{run.folder.id}/stacks").status == 409
    assert server.call("GET", f"/runs/{run.folder.id}/size").json["bytes"] > 0
    assert server.call("DELETE", f"/runs/{run.folder.id}").json["freed_bytes"] > 0
    assert not run.folder.path.exists()
    assert server.call("DELETE", f"/runs/{run.folder.id}").status == 404


def test_curves_say_when_nothing_is_new(server: Server) -> None:
    run = RunMaker(server.runs, 1)
    run.metric(0, 0, {"loss": 1.5, "bad": "NaN"})
    path = f"/runs/{run.folder.id}/curves"
    first = server.call("GET", path)
    assert b"NaN" not in first.body.replace(b'"NaN"', b"")
    again = server.call("GET", f"{path}?since={first.json['version']}").json
    assert again == {**first.json, "curves": []}
    run.metric(0, 1, {"loss": 1.0})
    third = server.call("GET", f"{path}?since={first.json['version']}&names=loss").json
    assert [curve["name"] for curve in third["curves"]] == ["loss"]
    run.end()


def test_old_runs_are_removed_once_an_hour(server: Server) -> None:
    assert server.call("POST", "/clean", {"days": 0}).status == 400
    assert server.call("POST", "/clean", {}).status == 400
    old = RunMaker(server.runs, 1, began=time.time() - 10 * 86_400)
    old.end()
    new = RunMaker(server.runs, 1, began=time.time() - 100)
    new.end()
    first = server.call("POST", "/clean", {"days": 9}).json
    assert old.folder.id in first["removed"]
    assert new.folder.path.exists()
    assert not old.folder.path.exists()
    assert server.call("POST", "/clean", {"days": 9}).json["skipped"] is True
    assert server.call("POST", "/clean", {"days": 8}).json["skipped"] is False


def test_clusters_and_a_real_run(server: Server, wait_for: Callable[..., Any]) -> None:
    saved = server.call("PUT", "/clusters/here", {"backend": "local", "options": {"np": "2"}})
    assert saved.json == {
        "name": "here",
        "backend": "local",
        "options": {"np": 2},
        "launched_from": None,
        "warnings": [],
    }
    wrong = server.call("PUT", "/clusters/there", {"backend": "local", "options": {"np": 0}})
    assert wrong.status == 400
    assert "np" in wrong.json["message"]
    taken = server.call("PUT", "/clusters/here", {"backend": "local", "options": {}})
    assert (taken.status, taken.json["field"]) == (400, "name")
    # One rank, which is what a test has, could not be all of these.
    options = {"np": 3, "ps": 1, "chief": True}
    renamed = {"backend": "local", "options": options, "old_name": "here"}
    assert server.call("PUT", "/clusters/mine", renamed).status == 200
    assert server.call("POST", "/clusters/mine/duplicate").json["name"] == "mine-2"
    names = [row["name"] for row in server.call("GET", "/clusters").json["clusters"]]
    assert names == ["mine", "mine-2"]
    backends = {row["name"]: row for row in server.call("GET", "/backends").json}
    assert backends["local"]["available"] is True
    assert "gpus_per_worker" in backends["local"]["schema"]["properties"]
    assert not {"out", "cluster", "hosts"} & backends["local"]["run_schema"]["properties"].keys()

    run_id = server.call("POST", "/clusters/mine/test").json["run_id"]
    ended = wait_for(
        lambda: (found := server.call("GET", f"/runs/{run_id}").json)["ended"] and found, "its end"
    )
    assert (ended["state"], ended["world_size"]) == ("succeeded", 1), ended
    lines = server.call("GET", f"/runs/{run_id}/log").json["lines"]
    assert "hello from rank 0 of 1" in lines[-1]["text"]
    assert server.call("POST", "/clusters/nobody/test").status == 400
    for name in names:
        assert server.call("DELETE", f"/clusters/{name}").status == 200
    assert server.call("DELETE", "/clusters/mine").status == 400


def test_backends_are_asked_in_the_notebooks_folder(server: Server) -> None:
    config = server.home / "project" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}))

    def workspace(folder: str) -> str | None:
        rows = server.call("GET", f"/backends?folder={folder}").json
        found: str | None = next(row["detail"].get("workspace") for row in rows if row["name"] == "azureml")
        return found

    assert workspace("/project") == "w"
    assert workspace("/") is None
    assert workspace("/../project") is None, "nothing outside the server's folder is read"
    (server.home / "link").symlink_to(config.parent)
    assert workspace("/link") == "w"
    options = {"compute": "c", "environment": "e:1"}
    for folder, found in [("/project", True), ("/", False)]:
        body = {"options": options, "folder": folder}
        problems = server.call("POST", "/backends/azureml/meaning", body).json["problems"]
        assert ("needs a workspace" not in str(problems)) is found


async def told(socket: WebSocketClientConnection, **wanted: Any) -> dict[str, Any]:
    """The next message that has these values."""
    deadline = time.monotonic() + 30
    unread: list[dict[str, Any]] = vars(socket).setdefault("unread", [])
    while True:
        while unread:
            message = unread.pop(0)
            if all(message.get(key) == value for key, value in wanted.items()):
                return message
        text = await asyncio.wait_for(socket.read_message(), max(0.0, deadline - time.monotonic()))
        assert text is not None, "the socket was closed"
        unread += json.loads(text)


def test_watching(server: Server) -> None:
    run = RunMaker(server.runs, 2)
    run.print(0, "first\n", BEGAN + 1)
    run_id = run.folder.id

    async def watch(socket: WebSocketClientConnection) -> None:
        await socket.write_message(json.dumps({"watch": [run_id]}))
        assert (await told(socket, kind="run"))["run"]["state"] == "running"
        assert (await told(socket, kind="log"))["ranks"] == {"0": 1, "1": 0}
        run.print(1, "second\nthird\n", BEGAN + 2)
        # The server may see the lines before the index of their times. It then tells twice.
        message = await told(socket, kind="log", all=3)
        assert (message["ranks"], message["all"]) == ({"0": 1, "1": 2}, 3)
        run.metric(0, 0, {"loss": 1.0})
        await told(socket, kind="curves", id=run_id)
        await socket.write_message(json.dumps({"watch": ["runs"]}))
        await told(socket, kind="runs")
        other = RunMaker(server.runs, 1)
        await told(socket, kind="runs")
        other.end()
        await told(socket, kind="runs")
        run.end()
        await socket.write_message(json.dumps({"watch": [run_id, "no-such-run"]}))
        assert (await told(socket, kind="log", complete=True))["all"] == 3
        assert (await told(socket, kind="run"))["run"]["state"] == "succeeded"
        assert (await told(socket, kind="gone"))["id"] == "no-such-run"

    server.watching(watch)


def test_lines_come_with_the_news_as_long_as_they_get_through(server: Server) -> None:
    """Else the page asks for them, as fast as it can take them."""
    # Each news must be one write. The log of several ranks also needs an index of times.
    run = RunMaker(server.runs, 1)
    run_id = run.folder.id

    async def watch(socket: WebSocketClientConnection) -> None:
        tail = {"id": run_id, "rank": None, "launcher": None}
        await socket.write_message(json.dumps({"watch": [run_id], "tails": [tail, 3, {"id": []}]}))
        await told(socket, kind="log", push=1)
        for number in (1, 2, 3):
            run.print(0, f"line {number}\n")
            message = await told(socket, kind="log", all=number)
            came = [line["text"] for part in message.get("tails", ()) for line in part["page"]["lines"]]
            assert came == ([f"line {number}"] if number == 1 else []), "two are under way: no more"
        await socket.write_message(json.dumps({"got": 2}))
        # The server has read the message before once it answers this one.
        await socket.write_message(json.dumps({"watch": [run_id, "runs"], "tails": [tail]}))
        await told(socket, kind="runs")
        run.print(0, "line 4\n")
        (part,) = (await told(socket, kind="log", all=4))["tails"]
        assert [line["text"] for line in part["page"]["lines"]] == ["line 2", "line 3", "line 4"]

    server.watching(watch)


@pytest.mark.parametrize("text", ["[]", "no json", '{"watch": 3}', "{}", '{"watch": [], "tails": 3}'])
def test_what_the_socket_cannot_read_closes_it(server: Server, text: str) -> None:
    async def watch(socket: WebSocketClientConnection) -> int | None:
        await socket.write_message(text)
        assert await asyncio.wait_for(socket.read_message(), 30) is None
        return socket.close_code

    assert server.watching(watch) == 1003
    assert server.call("GET", "/clusters").status == 200


def test_what_ranks_show(server: Server) -> None:
    run = RunMaker(server.runs, 1)
    events.open_writer(str(run.rank(0).events))
    writer = media.MediaWriter(str(run.rank(0).events))
    writer.display({"image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg'>{'<g/>' * 1000}</svg>"})
    writer.media("hist", 7, "histogram", {"application/json": [1, 2]})
    events.close()
    run.end()
    (shown,) = server.call("GET", f"/runs/{run.folder.id}/displays").json["displays"]
    content = shown["exhibits"][0]["contents"][0]
    query = "&".join(f"{name}={value}" for name, value in {"rank": 0, **content}.items())
    answer = server.call("GET", f"/runs/{run.folder.id}/content?{query.replace('+', '%2B')}")
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    (series,) = server.call("GET", f"/runs/{run.folder.id}/media").json["series"]
    assert (series["name"], series["count"], series["last_step"]) == ("hist", 1, 7)
    page = server.call("GET", f"/runs/{run.folder.id}/media/page?name=hist").json
    assert page["steps"][0]["exhibits"][0]["contents"] == [{"mime": "application/json", "json": [1, 2]}]
