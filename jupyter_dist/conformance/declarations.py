"""Tests of what a backend declares, and of what it would start. Nothing runs here."""

from __future__ import annotations

import dataclasses
import json

import pytest

from .. import backends, start
from ..backends import Capabilities
from ..errors import InputError
from ..flags import flags_of
from ..options import RunOptions
from .run_control import Runs
from .target import Target

__all__ = ["Declared"]


class Declared:
    """Tests of a backend's members, options, dry run and refusals."""

    def test_its_members_are_those_of_a_backend(self, target: Target) -> None:
        backend = backends.load(target.backend)
        assert backend.name == target.backend
        assert isinstance(backend.capabilities, Capabilities)
        assert 0 < backend.poll_interval_s <= 60
        assert backend.default_np() >= 1
        json.dumps(backend.detect())

    def test_it_is_listed_with_what_to_install(self, target: Target) -> None:
        assert target.backend in backends.names()
        assert backends.install_hint(target.backend)

    def test_each_of_its_options_is_described_and_hides_no_flag_of_a_run(self, target: Target) -> None:
        model = backends.declared(target.backend).options
        for name, field in model.model_fields.items():
            if flags_of(model) and (field.json_schema_extra or {}) != {"flags": []}:
                assert field.title, name
                assert field.description, name
        own = [name for flag in flags_of(model) for name in flag.names]
        assert set(own).isdisjoint(name for flag in flags_of(RunOptions) for name in flag.names)
        assert len(own) == len(set(own))
        json.dumps(model.model_json_schema())

    def test_a_dry_run_is_json_creates_nothing_and_tells_no_value(self, runs: Runs) -> None:
        plan, origin = runs.plan(env={"CONFORMANCE_SECRET": "hush-hush"})
        with runs.here():
            before = sorted(runs.folder.rglob("*"))
            told = start.describe("1 + 1", {}, plan, origin)
            again = start.describe("1 + 1", {}, plan, origin)
            assert sorted(runs.folder.rglob("*")) == before
        assert told["np"] == runs.target.np
        assert "hush-hush" not in json.dumps(told)
        assert json.dumps(told["request"]) == json.dumps(again["request"])

    def test_hosts_are_taken_or_refused(self, runs: Runs) -> None:
        able = backends.declared(runs.target.backend).capabilities.hosts
        assert able == ("hosts" in backends.declared(runs.target.backend).options.model_fields)
        if not able:
            with pytest.raises(InputError, match="cannot be used with the backend"):
                runs.plan(hosts="one:1,two:1")

    def test_restarts_are_done_or_refused(self, runs: Runs) -> None:
        if backends.declared(runs.target.backend).capabilities.restarts:
            assert runs.plan(max_restarts=1)[0].run.max_restarts == 1
        else:
            with pytest.raises(InputError, match="cannot restart ranks"):
                runs.plan(max_restarts=1)

    def test_sessions_are_run_or_refused(self, runs: Runs) -> None:
        if not backends.declared(runs.target.backend).capabilities.sessions:
            plan, origin = runs.plan(session="conformance")
            with runs.here(), pytest.raises(InputError, match="--session does not work with the backend"):
                start.cell_in_session("1", {}, plan, origin, {})

    def test_an_option_it_does_not_have_is_an_error(self, runs: Runs) -> None:
        with pytest.raises(InputError, match="no_such_option"):
            runs.plan(no_such_option=1)

    def test_what_it_declares_fits_together(self, target: Target) -> None:
        can = backends.declared(target.backend).capabilities
        assert {field.name: type(getattr(can, field.name)) for field in dataclasses.fields(can)} == {
            field.name: tuple if field.name == "client" else float if field.name.endswith("_s") else bool
            for field in dataclasses.fields(can)
        }
        assert can.apart or not can.client
        if can.own_restarts:
            assert can.restarts
        if can.outlives:
            assert not can.warm
