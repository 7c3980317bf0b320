"""Every endpoint refuses whoever is not the user, and ids that are no ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.server.operations import OPERATIONS, Operation
from tests.rigs.run_maker import RunMaker
from tests.rigs.server_process import TOKEN, Answer, Server, api, fill

CASES = [pytest.param(op, id=f"{op.method} {op.path}") for op in OPERATIONS]
RUN_CASES = [case for case in CASES if "{id}" in str(case.id)]
BODIES = {
    "/clean": {"days": 1000},
    "/clusters/{name}": {"backend": "local", "options": {"np": 1}},
}
OUTSIDE = [
    "..",
    "../../outside",
    "..%2f..%2foutside",
    "..%2foutside",
    "%2e%2e%2foutside",
    "..%5coutside",
    "%2fetc",
    "{id}%00",
    "%00",
    "..%2foutside%2f{secret}",
    "{id}%2f..%2f..%2foutside%2f{secret}",
    "..%2fruns%2f{id}",
    "{id}%2f",
    "{id}%0a",
    "{half}",
    "*",
    "%ff",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server")).start()
    yield started
    started.stop()


@pytest.fixture
def run(server: Server) -> RunMaker:
    maker = RunMaker(server.runs, 1)
    maker.print(0, "one line\n", 1_700_000_001.0)
    maker.end()
    return maker


def whole(op: Operation, run: RunMaker) -> str:
    return fill(op.path, id=run.folder.id, name="nobody", verb="up", backend="local")


def ask(server: Server, op: Operation, run: RunMaker, headers: dict[str, str]) -> Answer:
    query = "?query=x" if op.path.endswith("/search") else ""
    target = api(whole(op, run)) + query
    body = json.dumps(BODIES.get(op.path, {})).encode() if op.method in ("POST", "PUT") else None
    return server.request(op.method, target, headers, body)


def untouched(run: RunMaker) -> bool:
    return run.folder.state.exists() and not any(run.folder.requests.iterdir())


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "token wrong"}, {"Cookie": "username=me"}])
def test_strangers_are_refused(server: Server, run: RunMaker, op: Operation, headers: dict[str, str]) -> None:
    answer = ask(server, op, run, headers)
    assert answer.status == 403
    assert b"one line" not in answer.body
    assert untouched(run)


@pytest.mark.parametrize("op", CASES)
def test_wrong_token_in_the_query_is_refused(server: Server, run: RunMaker, op: Operation) -> None:
    target = api(whole(op, run)) + "?token=wrong"
    assert server.request(op.method, target, {}, b"{}").status == 403
    assert untouched(run)


@pytest.mark.parametrize("op", CASES)
def test_other_sites_are_refused(server: Server, run: RunMaker, op: Operation) -> None:
    """With the browser's cookie and even an XSRF token: the Origin decides."""
    headers = server.log_in()
    answer = ask(server, op, run, {**headers, "Origin": "https://evil.example"})
    assert answer.status in (403, 404)
    assert b"one line" not in answer.body
    assert b"root" not in answer.body
    assert untouched(run)
    own = ask(server, op, run, headers)
    assert own.status in (200, 400, 409), own.body  # the same from the page itself is answered


@pytest.mark.parametrize("op", CASES)
def test_a_cookie_alone_is_refused(server: Server, run: RunMaker, op: Operation) -> None:
    headers = server.log_in()
    answer = ask(server, op, run, {"Cookie": headers["Cookie"]})
    assert answer.status == 403
    assert b"one line" not in answer.body
    assert untouched(run)


def test_the_socket_refuses(server: Server) -> None:
    headers = server.log_in()
    assert server.shake_hands({}) == 403
    assert server.shake_hands({"Authorization": "token wrong"}) == 403
    assert server.shake_hands({"Cookie": headers["Cookie"], "Origin": "https://evil.example"}) == 403
    assert server.shake_hands({**headers, "Origin": "https://evil.example"}) == 403
    assert server.shake_hands({"Cookie": headers["Cookie"]}) == 403
    # What a browser sends for a page of this server; it cannot add headers of its own.
    assert server.shake_hands({"Cookie": headers["Cookie"], "Origin": server.origin}) == 101
    assert server.shake_hands({"Authorization": f"token {TOKEN}"}) == 101


@pytest.fixture(scope="module")
def secret(server: Server) -> RunMaker:
    """A run that this server must not find: it lies beside its folder of runs."""
    maker = RunMaker(server.home / "outside", 1)
    maker.print(0, "a secret\n", 1_700_000_001.0)
    maker.end()
    return maker


@pytest.mark.parametrize("op", RUN_CASES)
def test_no_way_out_of_the_runs(server: Server, run: RunMaker, secret: RunMaker, op: Operation) -> None:
    """Nothing is read, changed or removed but what has exactly that id."""
    before = sorted(secret.folder.path.rglob("*"))
    run_id = run.folder.id
    query = "?query=e" if op.path.endswith("/search") else ""
    headers = {"Authorization": f"token {TOKEN}"}
    broken = []
    for written in OUTSIDE:
        name = written
        for word, stands_for in (("{id}", run_id), ("{half}", run_id[:12]), ("{secret}", secret.folder.id)):
            name = name.replace(word, stands_for)
        answer = server.request(op.method, api(fill(op.path, id=name)) + query, headers, b"{}")
        if answer.status not in (400, 404, 405):
            broken.append(f"{written!r} is answered with {answer.status}")
        if b"a secret" in answer.body:
            broken.append(f"{written!r} reads the other folder")
        if sorted(secret.folder.path.rglob("*")) != before:
            broken.append(f"{written!r} changes the other folder")
        if not untouched(run):
            broken.append(f"{written!r} changes the run")
    assert broken == [], "\n".join(broken)


def test_links_to_files_outside_are_not_ids(server: Server, tmp_path: Path) -> None:
    link = server.runs / "escape"
    if not link.is_symlink():
        link.symlink_to(tmp_path)
    assert server.call("GET", "/runs/escape").status == 404
