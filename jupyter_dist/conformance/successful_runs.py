"""Tests of runs that succeed: results, logs, metrics, environment, much data, one rank alone."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..errors import ResultError
from ..job import State
from ..manage import removal
from ..record import reader
from ..record.outputs import rich_output
from ..showing.run import Run
from . import cells
from .ports import take_port
from .run_control import Runs, assert_state, notebook
from .target import Target

__all__ = ["Good", "GoodRun", "Worked"]

LINES, STEPS = 10_000, 200
PAYLOAD_BYTES, RESULT_BYTES, SHOWN_BYTES = 50_000_000, 20_000_000, 500_000
ODD = 'it\'s "odd" $HOME `x`\n\\ ünïcode 🚀 a=b;c'
NAMES = [
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("JUPYTER_DIST_RUN_ID", "JUPYTER_DIST_ATTEMPT", "CONFORMANCE_ODD"),
]


@dataclass(frozen=True)
class GoodRun:
    """A run in which every rank has succeeded, and its secret."""

    run: Run
    secret: str

    @property
    def results(self) -> list[Mapping[str, Any]]:
        return list(self.run.results)

    def lines(self, rank: int) -> list[str]:
        return reader.output(self.run.folder, rank).decode().split("\n")


@dataclass(frozen=True)
class _Heavy:
    """Observations of a run that received 50 MB and sent 20 MB per rank. Its folder is removed."""

    digests: list[list[str]]
    got: list[list[str]]
    result: bytes
    expected: bytes
    errors: list[str]
    logs: list[list[str]]
    status: Any


class Good:
    """Tests of a run with all kinds of output."""

    @pytest.fixture(scope="class")
    @classmethod
    def good(cls, runs: Runs) -> GoodRun:
        secret = secrets.token_hex(16)
        names = {**notebook(cells.FUNCTIONS), "LINES": LINES, "STEPS": STEPS, "NAMES": NAMES}
        names["SHOWN_BYTES"] = SHOWN_BYTES
        env = {"CONFORMANCE_SECRET": secret, "CONFORMANCE_ODD": ODD}
        run = runs.finish(cells.GOOD, names, env=env)
        assert_state(run, State.SUCCEEDED)
        return GoodRun(run, secret)

    def test_every_rank_has_succeeded(self, good: GoodRun, target: Target) -> None:
        status = good.run.status
        assert [rank.rank for rank in status.ranks] == list(range(target.np))
        assert {(rank.state, rank.exit_code, rank.signal) for rank in status.ranks} == {
            (State.SUCCEEDED, 0, None)
        }
        assert (status.attempt, good.run.folder.attempts(), status.reason) == (0, [0], None)
        assert all(rank.started and rank.ended and rank.ended >= rank.started for rank in status.ranks)
        assert good.run.errors == []

    def test_every_rank_has_its_own_result(self, good: GoodRun, target: Target) -> None:
        results = good.results
        assert [result["rank"] for result in results] == list(range(target.np))
        assert {result["world_size"] for result in results} == {target.np}
        assert {result["text"] for result in results} == {"ünïcode 🚀"}

    def test_the_model_is_fetched(self, good: GoodRun) -> None:
        assert (good.run.model / "weights").read_text() == "of rank 0"

    def test_functions_of_the_notebook_that_call_each_other_go_along(
        self, good: GoodRun, target: Target
    ) -> None:
        expected = [10 * rank * rank + target.np**2 for rank in range(target.np)]
        assert [result["combined"] for result in good.results] == expected

    def test_a_process_that_is_spawned_knows_functions_of_the_notebook_and_of_the_cell(
        self, good: GoodRun, target: Target
    ) -> None:
        assert [result["spawned"] for result in good.results] == [
            rank * rank + 10 for rank in range(target.np)
        ]

    def test_every_line_arrives_once_in_order_and_from_its_rank(self, good: GoodRun, target: Target) -> None:
        for rank in range(target.np):
            lines = [line for line in good.lines(rank) if line.startswith("line ")]
            assert lines == [f"line {number} of rank {rank}" for number in range(LINES)]

    def test_output_of_print_of_c_and_of_a_subprocess_arrives_whole(
        self, good: GoodRun, target: Target
    ) -> None:
        expected = ["from print in pieces", "from C", "from a subprocess", "on stderr"]
        for rank in range(target.np):
            assert [line for line in good.lines(rank) if line in expected] == expected

    def test_unicode_arrives(self, good: GoodRun, target: Target) -> None:
        for rank in range(target.np):
            assert "ünïcode 🚀 你好" in good.lines(rank)

    def test_a_last_line_without_newline_arrives(self, good: GoodRun, target: Target) -> None:
        for rank in range(target.np):
            assert "no newline at the end" in good.lines(rank)

    def test_what_ranks_show_arrives_whole_and_as_it_was_in_the_end(
        self, good: GoodRun, target: Target
    ) -> None:
        for rank in range(target.np):
            files = good.run.folder.rank(0, rank)
            picture, page = (
                rich_output.decoded(files.media, one) for one in rich_output.standing(rich_output.read(files))
            )
            assert picture["image/png"] == random.Random(rank).randbytes(SHOWN_BYTES)
            assert page["text/html"] == "<b>in the end</b>"

    def test_every_metric_arrives_once_and_in_order(self, good: GoodRun, target: Target) -> None:
        for rank in range(target.np):
            found = [e.data for e in reader.events(good.run.folder) if e.rank == rank and e.kind == "metric"]
            expected = [{"loss": rank + 1 / (step + 1), "größe": step} for step in range(STEPS)]
            assert [event["values"] for event in found[:-1]] == expected
            assert [event["step"] for event in found] == list(range(STEPS + 1))
        frame = good.run.metrics
        assert len(frame) == target.np * (2 * STEPS + 1)
        assert all(math.isnan(value) for value in frame[frame.name == "hole"].value)

    def test_started_events_tell_host_and_pid_and_the_state_agrees(
        self, good: GoodRun, target: Target
    ) -> None:
        started = [e for e in reader.events(good.run.folder) if e.kind == "started"]
        told = {e.rank: (e.data["host"], e.data["pid"]) for e in started}
        assert told == {r["rank"]: (r["host"], r["pid"]) for r in good.results}
        assert len(started) == target.np
        ranks = good.run.status.ranks
        assert {rank.rank: rank.pid for rank in ranks} == {r["rank"]: r["pid"] for r in good.results}
        assert all(rank.host for rank in ranks)

    def test_the_environment_is_what_frameworks_expect(self, good: GoodRun, target: Target) -> None:
        envs = [result["env"] for result in good.results]
        for rank, env in enumerate(envs):
            assert (env["RANK"], env["WORLD_SIZE"]) == (str(rank), str(target.np))
            assert (env["JUPYTER_DIST_RUN_ID"], env["JUPYTER_DIST_ATTEMPT"]) == (good.run.id, "0")
        assert len({(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in envs}) == 1
        assert int(envs[0]["MASTER_PORT"]) > 0
        nodes: dict[int, list[int]] = {}
        for rank, env in enumerate(envs):
            nodes.setdefault(int(env["GROUP_RANK"]), []).append(int(env["LOCAL_RANK"]))
            assert good.run.status.ranks[rank].local_rank == int(env["LOCAL_RANK"])
        assert sorted(nodes) == list(range(len(nodes)))
        for node, local in nodes.items():
            sizes = {int(e["LOCAL_WORLD_SIZE"]) for e in envs if int(e["GROUP_RANK"]) == node}
            assert sizes == {len(local)}
            assert sorted(local) == list(range(len(local)))

    def test_variables_reach_the_ranks_whatever_they_hold(self, good: GoodRun) -> None:
        assert {result["env"]["CONFORMANCE_ODD"] for result in good.results} == {ODD}
        digest = hashlib.sha256(good.secret.encode()).hexdigest()
        assert {result["secret"] for result in good.results} == {digest}

    def test_values_of_variables_are_never_written(self, good: GoodRun) -> None:
        secret = good.secret.encode()
        holding = [p for p in good.run.folder.path.rglob("*") if p.is_file() and secret in p.read_bytes()]
        assert holding == []
        assert good.run.job.env_names == ("CONFORMANCE_SECRET", "CONFORMANCE_ODD")

    def test_nobody_waits_for_input(self, good: GoodRun) -> None:
        assert {result["stdin"] for result in good.results} == {""}


class Worked:
    """Tests of a run with much data, and of one rank alone."""

    @pytest.fixture(scope="class")
    @classmethod
    def heavy(cls, runs: Runs) -> _Heavy:
        plain, beside = os.urandom(PAYLOAD_BYTES // 2), bytearray(os.urandom(PAYLOAD_BYTES // 2))
        names = notebook(cells.TIES)
        names |= {"PLAIN": plain, "block": names["Block"](beside), "RESULT_BYTES": RESULT_BYTES}
        names["PORT"] = take_port()
        later_s = max(1.0, 0.3 * runs.target.startup_s)
        run = runs.finish(cells.HEAVY, {**names, "LATER_S": later_s})
        assert_state(run, State.SUCCEEDED)
        logs = [reader.output(run.folder, rank).decode().split("\n") for rank in range(runs.target.np)]
        errors = []
        try:
            errors.append(repr(run.results[0]))
        except ResultError as error:
            errors.append(str(error))
        told = _Heavy(
            digests=[[hashlib.sha256(data).hexdigest() for data in (plain, beside)]] * runs.target.np,
            got=[line.split()[1:] for log in logs for line in log if line.startswith("got ")],
            result=bytes(run.results[runs.target.last]),
            expected=plain[:RESULT_BYTES],
            errors=errors,
            logs=logs,
            status=run.status,
        )
        removal.remove([run.folder])
        return told

    def test_a_payload_of_50_megabytes_arrives(self, heavy: _Heavy) -> None:
        assert heavy.got == heavy.digests

    def test_a_result_of_20_megabytes_arrives(self, heavy: _Heavy) -> None:
        assert len(heavy.result) == RESULT_BYTES
        assert heavy.result == heavy.expected

    def test_a_result_that_cannot_be_pickled_fails_nobody(self, heavy: _Heavy) -> None:
        assert {rank.state for rank in heavy.status.ranks} == {State.SUCCEEDED}
        assert "zlib.Compress" in heavy.errors[0]
        assert "rank 0" in heavy.errors[0]

    def test_a_rank_that_ends_early_leaves_the_others_to_go_on(self, heavy: _Heavy, target: Target) -> None:
        first, *others = heavy.status.ranks
        assert all("later" in heavy.logs[rank] for rank in range(1, target.np))
        assert all(first.ended < other.ended for other in others)

    def test_one_rank_alone_under_a_path_with_quotes_and_newlines(
        self, target: Target, tmp_path: Path
    ) -> None:
        runs = Runs(target, tmp_path / ODD.replace("/", "-"))
        try:
            (runs.cwd / "beside.py").write_text("ANSWER = 42\n")
            flags: dict[str, Any] = {"np": 1}
            run = runs.finish(cells.ALONE, {"WANTED": str(runs.cwd)}, **flags)
            assert_state(run, State.SUCCEEDED)
            rank, size, cwd, is_there, answer = run.results[0]
            assert (rank, size, answer) == (0, 1, 42)
            # A host without such a folder runs the rank elsewhere.
            assert cwd == str(runs.cwd) or not is_there
            assert json.loads(run.folder.job.read_text())["cwd"] == str(runs.cwd)
        finally:
            runs.close()
