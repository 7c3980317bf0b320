"""Tuning: trials that are runs of their own, what they are given, judged by, and what a tuning outlives."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist import queries
from jupyter_dist.backends.ranks.default_environment import cores
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import DistError, InputError
from jupyter_dist.folder import RunFolder, runs, trial_id, trials_of
from jupyter_dist.launch import submission
from jupyter_dist.manage import removal
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.queries.snapshot import snapshot
from jupyter_dist.record import reader, trials
from jupyter_dist.record.trials import FAILED, RUNNING, STOPPED, SUCCEEDED
from jupyter_dist.search.dimensions import Whole
from jupyter_dist.search.spec import Search
from jupyter_dist.showing import live
from jupyter_dist.start import Origin, describe, start_cell
from jupyter_dist.tuning import trial_runs, tuning_loop
from jupyter_dist.tuning.ledger import Ledger
from jupyter_dist.tuning.tuning_loop import Tuning
from tests.rigs.run_maker import RunMaker
from tests.tuning.test_engines import JOB

pytestmark = [pytest.mark.needs("optuna"), pytest.mark.usefixtures("warm")]


def quadratic(lr: float, kind: str, offset: float) -> float:
    """Best at lr = offset."""
    import jupyter_dist as dist

    assert dist.parameters() == {"lr": lr, "kind": kind}
    print("trying", lr, kind)
    for _ in range(3):
        dist.log(score=-((lr - offset) ** 2))
    return lr


def start(fn: Callable[..., Any], *args: Any, **more: Any) -> jupyter_dist.Run:
    given: dict[str, Any] = {"np": 1, "detach": True, "objective": "max:score", **more}
    return jupyter_dist.run(fn, *args, **given)


def story(run: jupyter_dist.Run) -> str:
    found = [str(run.status), run.folder.supervisor_log.read_text()]
    for trial in trials_of(run.folder):
        found += [str(reader.status(trial)), reader.output(trial, 0).decode()]
    return "\n".join(found)


def test_a_grid_from_the_first_point_to_the_best(own_folders: Path) -> None:
    run = start(
        quadratic, offset=2.0, tune={"lr": "quniform(1,3,1)", "kind": ["a", "b"]}, strategy="grid", parallel=3
    )
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    table = run.trials
    assert sorted(zip(table["lr"], table["kind"], strict=True)) == [
        (lr, kind) for lr in (1.0, 2.0, 3.0) for kind in ("a", "b")
    ]
    assert set(table["state"]) == {"succeeded"}
    assert sorted(table["value"]) == [-1, -1, -1, -1, 0, 0]
    assert (table["ended"] > table["started"]).all()
    assert table["ended"].max().timestamp() == pytest.approx(run.status.ended, abs=60)
    best = run.best
    assert best.results[0] == 2.0
    assert best.job.trial is not None
    assert best.job.trial["parameters"] == {"lr": 2.0, "kind": best.log(0).split()[-1]}
    assert best.metrics["value"].tolist() == [0, 0, 0]
    # Its trials are no runs of the list, and are found by their ids, and go with it.
    assert [folder.id for folder in runs()] == [run.id]
    assert jupyter_dist.attach(f"{run.id[-6:]}-t4").id == f"{run.id}-t4"
    assert removal.remove([run.folder]) > 0
    assert list(own_folders.iterdir()) == []


def slow(lr: float, go: str, steps: int = 3) -> None:
    """Logs `lr` at each step; the last step waits for the file `go`."""
    import time

    import jupyter_dist as dist

    for step in range(steps):
        dist.log(score=lr, step=step)
    while not Path(go).exists():
        time.sleep(0.02)


def test_goes_on_with_the_trials_it_has_when_its_supervisor_is_killed(
    tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    go = tmp_path / "go"
    run = start(slow, go=str(go), tune={"lr": [1, 2, 3, 4]}, strategy="grid", parallel=2)
    wait_for(lambda: _logged(run) == {0, 1}, "two trials that run")
    trial = RunFolder(run.folder.path.parent / f"{run.id}-t0")
    # A rank's events may be there before the state tells of its process.
    (pid,) = wait_for(lambda: [rank.pid for rank in reader.status(trial).ranks if rank.pid], "its process")
    assert run.status.supervisor is not None
    os.kill(run.status.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: run.state == "unwatched")
    assert trials.read(run.folder).trials[1].state == "running"
    go.touch()
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    assert run.trials["value"].tolist() == [1, 2, 3, 4], run.folder.trials.read_text() + story(run)
    assert run.best.job.trial is not None
    assert run.best.job.trial["parameters"] == {"lr": 4}
    # The same process went on: nothing was tried twice.
    assert run.trials["number"].tolist() == [0, 1, 2, 3]
    again = reader.status(trial)
    assert (again.ranks[0].pid, again.attempt) == (pid, 0)


def test_a_trial_is_not_lost_by_what_befalls_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]
) -> None:
    """The first start breaks off before, the second one after there is a supervisor; the third trial's gives
    no sign of life for longer than the reader waits for one."""
    go = tmp_path / "go"
    go.touch()
    # A run with the same payload, whose trials we turn here.
    run = start(slow, go=str(go), tune={"lr": [1, 2, 3]}, strategy="grid", parallel=3, cold=True)
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    for one in trials_of(run.folder):
        removal.remove([one])
    run.folder.trials.unlink()
    real = trial_runs.start
    late: list[tuple[Any, ...]] = []

    def start_trial(tuning: RunFolder, job: Any, one: trials.Trial, options: Any) -> None:
        begun = len(calls)
        calls.append(one.number)
        if begun == 0:
            raise ConnectionResetError("cut off")
        if one.number == 2 and not late:
            with monkeypatch.context() as quiet:
                quiet.setattr(submission, "start_supervisor", lambda *more: late.append(more))
                real(tuning, job, one, options)
            os.utime(RunFolder(tuning.path.parent / one.run_id).job, (1, 1))
            return
        real(tuning, job, one, options)
        if begun == 1:
            raise ConnectionResetError("cut off")

    calls: list[int] = []
    monkeypatch.setattr(trial_runs, "start", start_trial)
    tuning = Tuning(run.folder, run.job)
    broken = 0
    while not tuning.over:
        try:
            tuning.turn()
        except ConnectionResetError:
            broken += 1
        if len(late) == 1 and tuning.told().startswith("2 of 3"):
            submission.start_supervisor(*late[0])
            late.append(())
        time.sleep(0.01)
    tuning.close()
    assert broken == 2
    assert run.trials["value"].tolist() == [1, 2, 3], run.folder.trials.read_text() + story(run)
    for number in range(3):
        trial = jupyter_dist.attach(f"{run.id}-t{number}")
        assert len(trial.metrics) == 3, story(run)  # one supervisor, one rank


def _logged(run: jupyter_dist.Run) -> set[int]:
    return {int(trial.id.rpartition("-t")[2]) for trial in trials_of(run.folder) if reader.events(trial)[2:]}


def test_ends_what_is_hopeless_and_stops_the_rest(tmp_path: Path, wait_for: Callable[..., Any]) -> None:
    """The first trials end by themselves and set the standard; a worse one that goes on for ever is pruned, a
    better one is not, and is stopped with the tuning."""
    run = start(
        _endless_after_two,
        str(tmp_path),
        tune={"lr": [5, 6, 1, 9]},
        strategy="grid",
        early_stopping=True,
        max_jobs=4,
        parallel=2,
    )
    wait_for(lambda: [t.state for t in trials.read(run.folder).trials][2:3] == ["pruned"])
    wait_for(lambda: 3 in _logged(run))
    run.stop()
    wait_for_end(run)
    assert run.state == "stopped", story(run)
    table = run.trials
    assert table["state"].tolist() == ["succeeded", "succeeded", "pruned", "stopped"]
    assert table["reason"][2] == "pruned at step 0: other trials did better by then"
    pruned = jupyter_dist.attach(f"{run.id}-t2")
    assert pruned.state == "stopped"
    assert pruned.status.reason == table["reason"][2]
    assert run.best.job.trial is not None
    assert run.best.job.trial["number"] == 1
    assert f"tuning run {run.id} was stopped" in table["reason"][3]


def _endless_after_two(place: str, lr: int) -> None:
    import time

    import jupyter_dist as dist

    dist.log(score=lr, step=0)
    while lr in (1, 9):
        time.sleep(0.02)


def test_a_scheduler_and_conditions_end_trials() -> None:
    """All trials would log for ever. Their first values arrive together."""
    run = start(
        _endless,
        tune={"lr": [5, 1, 9]},
        strategy="grid",
        scheduler="asha(max_t=3,grace_period=2,reduction_factor=2)",
        stop_when="score>=9",
    )
    wait_for_end(run)
    assert run.trials["state"].tolist() == ["succeeded", "pruned", "succeeded"], story(run)
    first, weak, enough = trials_of(run.folder)
    assert trials.read(run.folder).trials[0].steps == ((0, 5.0), (10, 5.0), (20, 5.0))
    assert reader.status(first).reason == "the trial has reached max_t=3"
    assert "pruned at step " in str(reader.status(weak).reason)
    assert reader.status(enough).reason == "the trial has reached score>=9"
    assert run.trials["value"].tolist()[2] == 9, "not a later value, which is worse"
    assert run.best.id == enough.id


def _endless(lr: int) -> None:
    import itertools
    import time

    import jupyter_dist as dist

    for number in itertools.count():
        dist.log(score=lr - number if lr == 9 else lr, step=10 * number)
        if number > 9:
            time.sleep(0.02)


def test_a_cell_that_always_fails_costs_three_trials() -> None:
    run = start(_fails, tune={"lr": "uniform(0,1)"}, max_jobs=50)
    wait_for_end(run)
    assert run.state == "failed", story(run)
    assert run.trials["state"].tolist() == ["failed"] * 3
    assert "trial 0: rank 0 failed: ValueError: no such layer" in str(run.status.reason)
    with pytest.raises(DistError, match=r"no trial of run .* has succeeded; trial 0: .*no such layer"):
        _ = run.best


def _fails(lr: float) -> None:
    raise ValueError("no such layer")


def test_a_cell_prunes_its_own_trial_as_with_optuna() -> None:
    run = start(_prunes, tune={"kind": ["good", "bad", "worse"]}, strategy="grid", np=2, max_restarts=1)
    wait_for_end(run)
    table = run.trials
    assert table["state"].tolist() == ["succeeded", "pruned", "pruned"], story(run)
    assert table["reason"].tolist()[1:] == [
        "rank 1 raised TrialPruned: too slow",
        "rank 1 raised _prunes.<locals>._Worse",
    ]
    assert run.state == "succeeded"
    assert [reader.status(trial).restarts for trial in trials_of(run.folder)] == [0, 0, 0]


def _prunes(kind: str) -> None:
    import optuna

    import jupyter_dist as dist

    class _Worse(optuna.TrialPruned):  # type: ignore[misc]
        pass

    dist.log(score=1.0)
    if kind != "good" and dist.rank() == 1:
        raise optuna.TrialPruned("too slow") if kind == "bad" else _Worse


def test_a_trial_that_asks_gets_an_error_at_once() -> None:
    run = start(_asks, tune={"lr": [1, 2]}, strategy="grid", pdb=True)
    wait_for_end(run)
    table = run.trials
    assert table["state"].tolist() == ["failed"] * 2, story(run)
    why = "Nobody can answer this rank, because it belongs to a trial of a tuning run."
    assert f"EOFError: {why}" in table["reason"][0]
    assert f"RuntimeError: {why}" in table["reason"][1]


def _asks(lr: int) -> None:
    if lr == 1:
        input("Name: ")
    breakpoint()


def test_begins_with_what_a_parent_knows() -> None:
    parent = start(
        _decades, tune={"lr": "loguniform(1e-5,1e-1)"}, max_jobs=3, objective="min:loss", parallel=3
    )
    wait_for_end(parent)
    assert parent.state == "succeeded", story(parent)
    wider = {"lr": "loguniform(1e-6,1)", "batch": [1, 2]}
    more: dict[str, Any] = {"max_jobs": 1, "objective": "min:loss"}
    with pytest.raises(
        InputError, match=f"'batch' was not tuned in run .* Write --warm-start {parent.id}:transfer"
    ):
        start(_decades, tune=wider, warm_start=parent.id, **more)
    with pytest.raises(InputError, match="was min:loss, but here it is max:loss"):
        start(_decades, tune=wider, warm_start=parent.id, **{**more, "objective": "max:loss"})
    same = start(
        _decades, tune={"lr": "loguniform(1e-5,1e-1)"}, warm_start=f"{parent.id}:identical", seed=1, **more
    )
    child = start(_decades, tune=wider, warm_start=f"{parent.id}:transfer", **more)
    wait_for_end(same)
    assert same.trials["state"].tolist() == ["succeeded"], story(same)
    wait_for_end(child)
    assert child.state == "succeeded", story(child)
    assert child.trials["batch"][0] in (1, 2)


def _decades(lr: float, batch: int = 1) -> None:
    import math

    import jupyter_dist as dist

    dist.log(loss=abs(math.log10(lr) + 3))


def test_a_dry_run_shows_how_it_would_search() -> None:
    """All that was chosen, and nothing else."""

    def request(flags: str) -> dict[str, Any]:
        line = f"-np 1 --tune lr=choice(1,2) --objective max:score {flags}"
        plan = make_plan(read_command_line(line.split()).given)
        return dict(describe("lr", {}, plan, Origin("In[1]", Path.cwd()))["request"])

    plain = request("--max-jobs 4")
    assert list(plain) == ["tune", "objective", "max_jobs", "parallel", "strategy", "trial"]
    assert (
        request("--max-jobs 4 --seed 0 --early-stopping").items()
        >= {
            "seed": 0,
            "early_stopping": True,
        }.items()
    )
    chosen = request("--max-jobs 4 --scheduler pbt(perturbation_interval=5,max_t=20) --stop-when score>=1")
    assert (chosen["population"], chosen["max_jobs"]) == (4, 16)
    assert (chosen["scheduler"], chosen["stop_when"]) == ("pbt(perturbation_interval=5,max_t=20)", "score>=1")


def test_a_cell_reads_what_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    """The names of --tune win over the notebook's, also in functions that the cell calls, and are shown."""
    namespace: dict[str, Any] = {}
    exec("def rate():\n    return lr * scale\nlr, scale = 100, 10", namespace)
    flags = "-np 2 --tune lr=choice(1,2) --objective max:score --strategy grid --parallel 2"
    given = read_command_line(flags).given
    source = "import jupyter_dist as dist\ndist.log(score=rate() + dist.rank())\nrate()"
    origin = Origin("In[1]", Path.cwd())
    run = start_cell(source, namespace, make_plan(given), origin)
    live.follow(run)
    assert run.state == "succeeded", story(run)
    assert run.trials["value"].tolist() == [10, 20]  # of rank 0
    assert list(run.best.results) == [20, 20]
    shown = capsys.readouterr().out
    assert "trial 1 succeeded in" in shown
    assert ": score 20 (lr=2)" in shown
    told = run._repr_mimebundle_()["text/plain"]
    assert "tuning with 2 ranks a trial on local" in told
    assert "2 of 2 trials; best score 20: lr=2 (trial 1)" in told
    with pytest.raises(InputError, match="--tune rl: neither the cell nor the code that it calls uses rl"):
        start_cell(source, namespace, make_plan({**given, "tune": {"rl": "choice(1,2)"}}), origin)
    with pytest.raises(InputError, match="--tune lr: line 2 of the cell sets lr itself, so every trial"):
        start_cell("scale = lr\nlr = 3\nlr = lr * scale", namespace, make_plan(given), origin)


def test_a_trial_that_logs_no_objective_says_what_it_logs() -> None:
    run = start(_decades, tune={"lr": [1, 2]}, max_jobs=1)
    wait_for_end(run)
    assert run.state == "failed"
    assert run.status.reason is not None
    assert (
        "no rank logged 'score'. The ranks logged loss. Add dist.log(score=…) to the cell"
        in run.status.reason
    )


def test_views_are_told_of_trials() -> None:
    run = start(
        _decades, tune={"lr": "loguniform(1e-5,1e-1)", "batch": [1, 2]}, objective="min:loss", max_jobs=5
    )
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    told = queries.run(run.id)
    assert (told["backend"], told["world_size"], told["ranks"]) == ("local", 0, [])
    tuning = told["tuning"]
    assert [one["name"] for one in tuning["parameters"]] == ["lr", "batch"]
    assert [trial["state"] for trial in tuning["trials"]] == ["succeeded"] * 5
    values = [trial["value"] for trial in tuning["trials"]]
    assert tuning["best"] == values.index(min(value for value in values if value is not None))
    assert tuning["importance"].keys() == {"lr", "batch"}
    trial = queries.run(tuning["trials"][3]["id"])
    assert trial["trial"] == {"of": run.id, "number": 3, "parameters": tuning["trials"][3]["parameters"]}
    assert "tuning" not in trial
    assert [row["id"] for row in queries.runs()["runs"]] == [run.id]
    snapshot(run.id, lines=10, points=10, each=10, final=True)


def test_a_bad_trial_costs_nothing_but_itself() -> None:
    kinds = ["fine", "nan", "silent", "raises", "exits"]
    run = start(_of_a_kind, tune={"kind": kinds}, strategy="grid", parallel=5)
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    assert run.trials["state"].tolist() == ["succeeded", *["failed"] * 4]
    reasons = run.trials["reason"].tolist()
    assert reasons[1] == "its last score is nan"
    assert reasons[2] == (
        "no rank logged 'score'. The ranks logged other. Add dist.log(score=…) to the cell or function"
    )
    assert "ValueError: no such layer" in reasons[3]
    assert "3" in reasons[4]
    assert run.best.results[0] == max(1, cores() // 5)  # the trials share the cores


def _of_a_kind(kind: str) -> int:
    import os
    import sys

    import jupyter_dist as dist

    if kind == "raises":
        raise ValueError("no such layer")
    if kind == "exits":
        sys.exit(3)
    dist.log(other=1.0)
    if kind != "silent":
        dist.log(score=float("nan") if kind == "nan" else 1.0)
    return int(os.environ["OMP_NUM_THREADS"])


def test_hyperband_gives_the_promising_ones_more_steps() -> None:
    run = start(
        _learns,
        tune={"lr": "uniform(0,1)"},
        strategy="hyperband",
        max_jobs=16,  # Hyperband shares them out by chance, and does not compare those in different brackets
        parallel=2,
        objective="min:loss",
    )
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    table = run.trials
    assert set(table["state"]) == {"succeeded", "pruned"}, story(run)
    assert table["value"].min() == table["value"][run.best.job.trial["number"]]  # type: ignore[index]


def _learns(lr: float) -> None:
    """The later it begins the worse it is, or chance would say whether any is worse than one before."""
    import time

    import jupyter_dist as dist

    began = time.time()
    for step in range(9):
        dist.log(loss=began + 1 / (step + 1), step=step)
        time.sleep(0.1)


def test_values_of_env_are_not_known_to_another_supervisor(
    tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    go = tmp_path / "go"
    run = start(slow, go=str(go), tune={"lr": [1, 2]}, strategy="grid", env={"TOKEN": "secret"})
    wait_for(lambda: _logged(run) == {0}, "a trial that runs")
    assert run.status.supervisor is not None
    os.kill(run.status.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: run.state == "unwatched")
    go.touch()
    wait_for_end(run)
    assert run.state == "failed"
    assert (
        "no more trials can start, because a new supervisor does not have the values of --env TOKEN"
        in str(run.status.reason)
    )
    assert run.trials["value"].tolist() == [1]  # what was begun came to its end


def tuning_of(root: Path, *known: trials.Trial, max_jobs: int = 9, early_stopping: bool = False) -> Tuning:
    """The loop of a tuning run whose ledger has these trials. No supervisor turns it."""
    search = Search(
        {"lr": Whole(1, 9)}, "max", "score", max_jobs, 1, "random", early_stopping=early_stopping, seed=1
    )
    made = RunMaker(root, 1, run_id=JOB.id, tuning={"search": search.to_json(), "trial": JOB.to_json()})
    ledger = Ledger(made.folder)
    for one in known:
        ledger.begun(one)
        if one.state != RUNNING:
            ledger.ended(one)
    ledger.close()
    return Tuning(made.folder, made.job)


def known(number: int, *values: float, state: str = SUCCEEDED) -> trials.Trial:
    return trials.Trial(
        number,
        trial_id(JOB.id, number),
        {"lr": number + 1},
        state=state,
        value=values[-1] if state == SUCCEEDED else None,
        steps=tuple((10 * index, value) for index, value in enumerate(values)),
        reason=f"its last score is {values[-1]}" if state == FAILED else None,
    )


def test_trials_that_diverge_do_not_end_the_search(tmp_path: Path) -> None:
    """The parameters were wrong, and not the cell."""
    diverged = [known(number, 1.0, math.nan, state=FAILED) for number in range(3)]
    tuning = tuning_of(tmp_path / "diverged", *diverged)
    assert (tuning.hindered, tuning.over) == (None, False)
    failed = [known(number, 1.0, state=FAILED) for number in range(3)]
    tuning = tuning_of(tmp_path / "failed", *failed)
    assert (tuning.hindered, tuning.over) == ("trial 0: its last score is 1.0", True)


def test_a_tuning_whose_trials_were_all_stopped_says_so(tmp_path: Path) -> None:
    tuning = tuning_of(tmp_path, known(0, 5.0, state=STOPPED), max_jobs=1)
    assert tuning.over
    assert not tuning.succeeded
    assert tuning.why_none() == "every trial was stopped or pruned before its end"


def test_a_trial_that_was_given_up_before_it_began_ends_if_it_begins(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_runs, "start", lambda *more: None)
    monkeypatch.setattr(tuning_loop, "_START_LIMIT_S", 0.0)
    trial = RunMaker(own_folders, 1, run_id=trial_id(JOB.id, 0)).folder
    trial.state.unlink()
    os.utime(trial.job, (1, 1))
    tuning = tuning_of(own_folders, known(0, state=RUNNING))
    tuning.turn(begin=False)
    tuning.turn(begin=False)
    assert tuning.idle
    assert (trial.requests / "kill").read_text() == "it was given up before it began"


def test_the_reason_of_a_pruned_trial_names_the_step_that_was_worse(own_folders: Path) -> None:
    trial = RunMaker(own_folders, 1, run_id=trial_id(JOB.id, 2))
    standard = [known(number, 5.0, 9.0) for number in range(2)]
    tuning = tuning_of(own_folders, *standard, known(2, state=RUNNING), early_stopping=True)
    for step in (0, 10):  # better than the others at first
        assert not (trial.folder.requests / "stop").exists()
        trial.metric(0, step, {"score": 6})
        tuning.turn(begin=False)
    reason = (trial.folder.requests / "stop").read_text()
    assert reason == "pruned at step 10: other trials did better by then"


def test_of_values_that_arrive_at_once_the_reason_names_the_one_that_was_worse(own_folders: Path) -> None:
    trial = RunMaker(own_folders, 1, run_id=trial_id(JOB.id, 2))
    standard = [known(number, 5.0, 9.0, 9.0) for number in range(2)]
    tuning = tuning_of(own_folders, *standard, known(2, state=RUNNING), early_stopping=True)
    for step, score in ((0, 1), (10, 20), (20, 30)):
        trial.metric(0, step, {"score": score})
    tuning.turn(begin=False)
    reason = (trial.folder.requests / "stop").read_text()
    assert reason == "pruned at step 0: other trials did better by then"


def test_the_importance_counts_the_last_trial_however_soon_it_ends(own_folders: Path) -> None:
    trial = RunMaker(own_folders, 1, run_id=trial_id(JOB.id, 3))
    ended = [known(number, float(number)) for number in range(3)]
    tuning = tuning_of(own_folders, *ended, known(3, state=RUNNING), max_jobs=4)
    tuning.turn()
    trial.metric(0, 0, {"score": 9})
    trial.end()
    tuning.turn()
    tuning.close()
    assert tuning.over
    assert trials.read(RunFolder(own_folders / JOB.id)).importance == {"lr": 1.0}


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("torchrun", marks=pytest.mark.needs("torch")),
        pytest.param("mpi", marks=pytest.mark.needs("mpi4py")),
    ],
)
def test_trials_have_ranks_on_other_backends(backend: str) -> None:
    run = start(_sums, backend=backend, np=2, tune={"lr": [1, 2]}, strategy="grid")
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    assert run.trials["value"].tolist() == [11, 21]  # of rank 0, which all ranks log here
    assert list(run.best.results) == [(2, 0), (2, 1)]
    assert run.best.job.backend == backend


def _sums(lr: int) -> tuple[int, int]:
    import jupyter_dist as dist

    dist.log(score=10 * lr + dist.world_size() - 1 + dist.rank())
    return dist.world_size(), dist.rank()
