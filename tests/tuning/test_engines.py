"""Engines without runs: what they do after a restart, and with a service that does not answer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_dist.errors import Unreachable
from jupyter_dist.job import Job
from jupyter_dist.record.trials import PRUNED, SUCCEEDED, Trial
from jupyter_dist.search.dimensions import Whole
from jupyter_dist.search.notation import read_dimension
from jupyter_dist.search.spec import Search
from jupyter_dist.tuning import look_times
from jupyter_dist.tuning.engines.optuna_engine import OptunaEngine
from jupyter_dist.tuning.engines.service_engine import ServiceEngine, ServiceStatus

JOB = Job(
    id="20260101-120000-abcd", backend="local", world_size=1, created=0.0, cwd="/", python="", source=""
)


@pytest.mark.needs("optuna")
@pytest.mark.parametrize(
    ("scheduler", "step"),
    [("asha(max_t=8,grace_period=2,reduction_factor=2)", 10), ("hyperband(max_t=2)", 0)],
)
def test_a_scheduler_knows_the_trials_that_ended_before_a_restart(scheduler: str, step: int) -> None:
    search = Search({"lr": Whole(1, 9)}, "max", "score", 9, 1, "random", scheduler=scheduler)
    engine = OptunaEngine(search, JOB)
    steps = tuple((step, 9.0) for step in range(2))
    for number, state in enumerate((SUCCEEDED, PRUNED, SUCCEEDED)):
        value = 9.0 if state == SUCCEEDED else None
        engine.learn(Trial(number, f"r-t{number}", {"lr": 9}, state, value, steps))
    engine.ask(3)
    assert engine.pruned_at(3, [(0, 1.0), (10, 1.0), (20, 9.0)]) == step


@pytest.mark.needs("optuna")
@pytest.mark.parametrize("text", ["quniform(0.1,0.7,0.1)", "quniform(0,0.3,0.1)", "int(1,9,step=4)"])
def test_an_engine_learns_each_point_of_a_range_with_steps(text: str) -> None:
    search = Search({"x": read_dimension(text)}, "max", "score", 9, 1, "grid")
    engine, again = OptunaEngine(search, JOB), OptunaEngine(search, JOB)
    for number in range(int(search.grid_size())):
        proposal = engine.ask(number)
        assert proposal is not None
        assert proposal.parameters == search.grid_point(number)
        again.learn(Trial(number, f"r-t{number}", proposal.parameters, SUCCEEDED, 1.0))


class _Service:
    """Does not answer its first stop."""

    called = "tuning job x"
    known_as = "training_job"

    def __init__(self) -> None:
        self.stops = self.looks = 0

    def begin(self) -> None: ...

    def look(self) -> ServiceStatus:
        self.looks += 1
        return ServiceStatus({}, None)

    def has_ended_early(self, job: str) -> bool:
        return False

    def stop(self) -> None:
        self.stops += 1
        if self.stops == 1:
            raise Unreachable("AWS does not stop the tuning job at the moment: ThrottlingException")

    def close(self) -> None: ...


def test_a_stop_that_a_service_did_not_answer_is_repeated() -> None:
    service = _Service()
    engine = ServiceEngine(JOB.id, service)
    engine.ask(0)
    engine.stop()
    engine.stop()
    assert service.stops == 1, "not at each turn"
    engine.close()
    assert service.stops == 2
    engine.close()
    assert service.stops == 2


def test_a_service_is_asked_seldom_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(look_times, "time", SimpleNamespace(monotonic=lambda: now))
    service = _Service()
    engine = ServiceEngine(JOB.id, service)
    while now < 3600.0:
        engine.ask(0)
        now += 0.25
    assert service.looks < 200, "every 20 s, and at first more often"
    before = service.looks
    engine.tell(Trial(0, "r-t0", {}, SUCCEEDED, 1.0))
    now += 2.0
    engine.ask(1)
    assert service.looks == before + 1, "the service starts the next job"
