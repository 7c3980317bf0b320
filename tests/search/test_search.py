"""What `--tune` and its flags are read as, and one clear message for each that cannot be used."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jupyter_dist
from jupyter_dist import folder as folders
from jupyter_dist.errors import DistError, InputError, MissingEngine
from jupyter_dist.folder import RunFolder
from jupyter_dist.options import OF_TUNING
from jupyter_dist.plan import search_plan
from jupyter_dist.plan.run_plan import Plan, make_plan, read_command_line
from jupyter_dist.record import trials
from jupyter_dist.record.trials import Trial
from jupyter_dist.search.dimensions import Choice, Dimension, Real, Whole, from_json
from jupyter_dist.search.notation import as_text, read_dimension
from jupyter_dist.search.schedulers import read_scheduler
from jupyter_dist.search.spec import KnownBest, Search, WarmStart, read_parents
from jupyter_dist.showing import trials as shown_trials
from jupyter_dist.start import function
from tests.tuning.test_engines import JOB

TUNED = "--tune x=int(1,3) --objective max:a"
PBT = f"{TUNED} --scheduler pbt(perturbation_interval=3,max_t=10)"
REVERSE = Real(0.1, 0.9, scaling="ReverseLogarithmic")


@pytest.fixture(autouse=True)
def optuna_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("uniform(0,1)", Real(0, 1)),
        ("loguniform(1e-5, 1e-1)", Real(1e-5, 1e-1, log=True)),
        ("float(1e-5,1e-1,log=True)", Real(1e-5, 1e-1, log=True)),
        ("continuous(1, 10, scaling='Logarithmic')", Real(1, 10, log=True)),
        ("continuous(1, 10)", Real(1, 10, scaling="Auto")),
        ("ContinuousParameter(0.1, 0.9, scaling_type=ReverseLogarithmic)", REVERSE),
        ("ContinuousParameter(1, 10, scaling_type='Linear')", Real(1, 10)),
        ("IntegerParameter(1, 8, scaling_type=Auto)", Whole(1, 8, scaling="Auto")),
        ("quniform(0,1,.3)", Real(0, 0.9, step=0.3)),
        ("quniform(0.1,0.7,0.1)", Real(0.1, 0.7, step=0.1)),
        ("int(1,8)", Whole(1, 8)),
        ("Integer(1,8,step=2)", Whole(1, 7, step=2)),
        ("randint(1,9)", Whole(1, 8)),
        ("lograndint(1,1e3)", Whole(1, 999, log=True)),
        ("qrandint(32,256,32)", Whole(32, 256, step=32)),
        ("choice(32, 64)", Choice((32, 64))),
        ("categorical(adam, 'a, b', None, True, 1, 1.5, resnet-50)", None),
    ],
)
def test_ranges_of_every_peer(text: str, meant: Dimension | None) -> None:
    found = read_dimension(text)
    assert found == (meant or Choice(("adam", "a, b", None, True, 1, 1.5, "resnet-50")))
    assert from_json(found.to_json()) == found
    assert read_dimension(str(found)).to_json()["kind"] == found.to_json()["kind"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unifrom(0,1)", "unknown range 'unifrom'; did you mean uniform?"),
        ("normal(0,1)", "unknown range 'normal'; "),
        ("32,64", "write a list of values as choice(32,64)"),
        ("0.1", "needs a range such as loguniform(1e-5,1e-1)"),
        ("uniform(1,0)", "the lower end must be smaller"),
        ("uniform(0)", "needs 2 numbers, got 1. Write uniform(low,high)"),
        ("uniform(0,inf)", "needs a finite number in place of 'inf'"),
        ("uniform(0,x)", "needs a number in place of 'x'"),
        ("loguniform(0,1)", "a logarithmic range must begin above 0, not at 0"),
        ("int(1,2.5)", "needs a whole number in place of '2.5'"),
        ("int(1,8,lg=2)", "int has no parameter 'lg'. Its parameters are log, scaling, scaling_type, step"),
        ("float(1,2,log=True,step=.1)", "accepts log or step, but not both"),
        ("quniform(0,1,2)", "the step must be above 0 and fit between 0 and 1, got 2"),
        ("quniform(0,1,1e-320)", "the step must be above 0 and fit between 0 and 1, got"),
        ("choice()", "needs values to choose from"),
        ("choice(1,,2)", "a value is missing between two commas"),
        ("choice(1,2,1)", "lists 1 twice. Write each value once"),
        ("choice(true,false)", "write True, or 'true' if you mean the text"),
        ("choice(1.0,inf)", "needs a finite number in place of 'inf'. Put it in quotes if you mean the text"),
        ("choice(-NaN)", "needs a finite number in place of '-NaN'"),
        ("choice((1,2),(3,4))", "'(1' is neither a number nor a word"),
        ("choice(b'x')", "is a bytes"),
        ("choice(mode=fast)", "a text with '=' needs quotes: choice('mode=fast')"),
        (
            "continuous(0,.5,scaling=reversed)",
            "must be Linear, Logarithmic, ReverseLogarithmic, Auto, not",
        ),
        ("continuous(0,1,scaling=ReverseLogarithmic)", "must lie between 0 and 1, without the 1"),
        ("integer(1,2,scaling=ReverseLogarithmic)", "ReverseLogarithmic needs continuous(low,high)"),
    ],
)
def test_what_is_wrong_with_a_range(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        read_dimension(text)
    assert "\n" not in str(caught.value)


def test_the_points_of_a_range_with_steps() -> None:
    assert read_dimension("quniform(0.1,0.7,0.1)").points() == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    stepped = read_dimension("quniform(0,1,0.1)"), read_dimension("int(1,9,step=2)")
    assert [one.holds(0.1 + 0.2) for one in stepped] == [True, False]
    assert [one.holds(value) for one in stepped for value in (0.25, 1e308)] == [False] * 4
    assert not read_dimension("quniform(0,1,1e-9)").holds(1e308)
    assert [one.holds(value) for one in stepped for value in (1, 4, 9.0)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


@given(
    st.lists(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=6),
        min_size=1,
        unique_by=lambda v: (type(v), v),
    )
)
def test_a_list_in_python_is_a_choice_of_the_same_values(values: list[Any]) -> None:
    text = as_text(values)
    assert isinstance(text, str)
    found = read_dimension(text)
    assert isinstance(found, Choice)
    assert [(type(one), one) for one in found.values] == [(type(one), one) for one in values]


def test_numbers_that_are_not_pythons() -> None:
    numbers = [numpy.float64(0.1), numpy.int64(3), numpy.bool_(True), numpy.str_("a")]
    assert read_dimension(str(as_text(numbers))) == Choice((0.1, 3, True, "a"))
    with pytest.raises(ValueError, match="needs a finite number in place of 'inf'"):
        read_dimension(str(as_text([1.0, float("inf")])))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (numpy.array([0.001, 0.01]), (0.001, 0.01)),
        (numpy.logspace(-3, -1, 3), (0.001, 0.01, 0.1)),
        (numpy.array([16, 32], dtype="int32"), (16, 32)),
        (numpy.array(["adam", "sgd"]), ("adam", "sgd")),
        (range(8), (0, 1, 2, 3, 4, 5, 6, 7)),
        (range(32, 128, 32), (32, 64, 96)),
        ((32, "auto"), (32, "auto")),
        (tuple(numpy.arange(3)), (0, 1, 2)),
    ],
)
def test_an_array_a_range_and_a_tuple_are_choices_of_pythons_values(values: Any, expected: Any) -> None:
    plan = make_plan({"tune": {"x": values}, "objective": "max:a", "strategy": "grid"})
    assert plan.search is not None
    chosen = plan.search.space["x"]
    assert isinstance(chosen, Choice)
    assert [(type(one), one) for one in chosen.values] == [(type(one), one) for one in expected]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (numpy.zeros((2, 3)), "tune 'x' needs an array of one dimension, got 2. Write array.ravel()"),
        (numpy.array([]), "needs values to choose from: choice(32,64)"),
        (numpy.array([0.1, numpy.nan]), "needs a finite number in place of 'nan'"),
        (numpy.array([1, 1]), "lists 1 twice"),
        (
            range(10**12),
            "tune 'x' has 1,000,000,000,000 values, but at most 10,000 are possible. Write 'int(0,",
        ),
    ],
)
def test_arrays_and_ranges_that_cannot_be_choices(values: Any, expected: str) -> None:
    with pytest.raises(InputError, match=re.escape(expected)):
        make_plan({"tune": {"x": values}, "objective": "max:a"}, spelled_as_flags=False)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        read_dimension(text)


def plan(line: str) -> Plan:
    return make_plan(read_command_line(line).given)


def refused(line: str) -> str:
    with pytest.raises(InputError) as caught:
        plan(line)
    return str(caught.value)


def test_flags_become_a_search() -> None:
    assert plan("-np 1").search is None
    found = plan(
        "-np 1 --tune lr=loguniform(1e-5,1e-1) --tune 'batch=choice(32,64)' --objective min:loss "
        "--max-jobs 20 --parallel 4 --strategy hyperband --warm-start 3f2a:transfer"
    ).search
    assert found == Search(
        {"lr": Real(1e-5, 1e-1, log=True), "batch": Choice((32, 64))},
        "min",
        "loss",
        20,
        4,
        "hyperband",
        parents=("3f2a",),
        transfer=True,
    )
    assert found.prunes
    assert Search.from_json(found.to_json()) == found
    usual = plan("--tune x=int(1,3) --objective max:a").search
    assert usual is not None
    assert (usual.strategy, usual.max_jobs, usual.parallel, usual.prunes) == ("bayesian", 10, 1, False)
    grid = plan("--tune x=int(1,3) --tune y=choice(a,b) --objective max:a --strategy grid").search
    assert grid is not None
    assert grid.max_jobs == 6
    assert [grid.grid_point(n) for n in (0, 1, 5)] == [
        {"x": 1, "y": "a"},
        {"x": 1, "y": "b"},
        {"x": 3, "y": "b"},
    ]


def test_a_large_grid_needs_no_list_of_its_points() -> None:
    line = "--tune x=int(1,1e15) --tune y=quniform(0,1,1e-12) --objective max:a --strategy grid"
    assert refused(line).startswith("The grid has 1,000,000,000,001,")
    found = plan(f"{line} --max-jobs 3").search
    assert found is not None
    assert found.max_jobs == 3
    assert [found.grid_point(n) for n in (0, 2)] == [{"x": 1, "y": 0.0}, {"x": 1, "y": 2e-12}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--tune x=int(1,3)", "--tune needs --objective: max:METRIC or min:METRIC"),
        ("--objective max:a", "--objective works only with --tune. Add the values to try, as in --tune 'lr="),
        ("--parallel 2", "--parallel works only with --tune"),
        ("--tune x=int(1,3) --objective a", "--objective needs max:METRIC or min:METRIC"),
        ("--tune x=int(3,1) --objective max:a", "--tune 'x=int(3,1)': the lower end must be smaller"),
        ("--tune class=int(1,3) --objective max:a", "--tune needs NAME=RANGE with the name of a variable"),
        ("--tune x --objective max:a", "--tune needs NAME=RANGE, got 'x'"),
        (
            "--tune x=uniform(0,1) --objective max:a --strategy grid",
            "A grid search needs a finite list of values, and x=uniform(0, 1) is",
        ),
        ("--tune x=int(1,3) --objective max:a --strategy best", "--strategy needs one of random, bayesian"),
        (f"{TUNED} --scheduler sha", "--scheduler needs asha, hyperband, median, pbt, bohb, as in"),
        (f"{TUNED} --scheduler bohb(max_t=2)", "--scheduler bohb has a max_t of 2 and a reduction_factor"),
        (
            f"{TUNED} --scheduler bohb --strategy random",
            "--scheduler bohb cannot be combined with",
        ),
        (f"{TUNED} --scheduler bohb --max-restarts 1", "--scheduler bohb cannot be combined with --max"),
        (f"{TUNED} --scheduler pbt", "--scheduler pbt needs a perturbation_interval and a larger max_t"),
        (
            f"{TUNED} --scheduler pbt(perturbation_interval=4,max_t=4)",
            "--scheduler pbt needs a perturbation_interval and a larger max_t",
        ),
        (
            f"{TUNED} --scheduler pbt(perturbation_interval=1,max_t=4,quantile_fraction=0.6)",
            "--scheduler quantile_fraction must be a number from 0 to 0.5, got '0.6'",
        ),
        (
            f"{TUNED} --scheduler pbt(perturbation_interval=1,max_t=4,resample_probability=nan)",
            "--scheduler resample_probability must be a number from 0 to 1, got 'nan'",
        ),
        (f"{PBT} --strategy grid", "--scheduler pbt cannot be combined with --strategy grid"),
        (f"{PBT} --warm-start ab12", "--scheduler pbt cannot use --warm-start"),
        (f"{PBT} --max-restarts 1", "--scheduler pbt cannot be combined with --max-restarts"),
        (f"{PBT} --max-jobs 1", "--scheduler pbt needs a population of at least 2 trials"),
        (f"{PBT} --backend azureml", "--scheduler does not work with this backend"),
        (
            f"{TUNED} --scheduler asha(max=1)",
            "--scheduler asha has no parameter 'max'. Its parameters are",
        ),
        (f"{TUNED} --scheduler asha(max_t=0)", "--scheduler max_t must be a whole number"),
        (
            f"{TUNED} --scheduler asha(reduction_factor=1)",
            "--scheduler reduction_factor must be a whole number",
        ),
        (
            f"{TUNED} --scheduler asha(max_t=2,grace_period=3)",
            "--scheduler asha has a max_t of 2",
        ),
        (
            f"{TUNED} --scheduler median --early-stopping",
            "--scheduler cannot be combined with",
        ),
        (f"{TUNED} --scheduler asha --strategy hyperband", "--strategy hyperband has a scheduler of its own"),
        ("--scheduler asha", "--scheduler works only with --tune"),
        (f"{TUNED} --stop-when a=3", "--stop-when needs METRIC>=NUMBER or METRIC<=NUMBER"),
        (f"{TUNED} --stop-when a>=inf", "--stop-when needs METRIC>=NUMBER or METRIC<=NUMBER"),
        (f"{TUNED} --stop-when training_iteration<=3", "--stop-when training_iteration only grows. Write"),
        (f"{TUNED} --stop-when a>=b", "--stop-when needs METRIC>=NUMBER or METRIC<=NUMBER"),
        (f"{TUNED} --backend azureml --scheduler asha", "--scheduler does not work with this backend"),
        ("--tune x=int(1,3) --objective max:a --warm-start a:b", "--warm-start needs the id of a tuning run"),
        (
            "--tune x=int(1,3) --objective max:a --strategy random --warm-start ab12",
            "--strategy random cannot use --warm-start",
        ),
    ],
)
def test_flags_that_do_not_fit(line: str, said: str) -> None:
    assert refused(line).startswith(said)


def test_schedulers_and_conditions() -> None:
    line = (
        f"{TUNED} --scheduler 'median( grace_period = 2 )' --stop-when 'a:b<=1e-3, training_iteration >= 4'"
    )
    found = plan(line).search
    assert found is not None
    assert found.prunes
    assert Search.from_json(found.to_json()) == found
    assert found.schedule is not None
    assert found.schedule.own == {"max_t": 0, "grace_period": 2, "min_samples_required": 3}
    assert found.most_values == 4
    limited = plan(f"{TUNED} --scheduler asha(max_t=3) --stop-when training_iteration>=4").search
    assert limited is not None
    assert limited.most_values == 3
    assert dataclasses.replace(limited, stop_when="training_iteration>=0.5").most_values == 1
    assert [str(one) for one in found.conditions] == ["a:b<=0.001", "training_iteration>=4"]
    assert [one.holds(0.002) for one in found.conditions] == [False, False]
    sizes = {"max_t=1": 1, "max_t=8": 2, "max_t=81": 5, "max_t=80": 4, "max_t=125,reduction_factor=5": 4}
    assert {own: read_scheduler(f"hyperband({own})").brackets for own in sizes} == sizes


def test_a_population_needs_no_engine_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "find_spec", lambda name: None)
    found = plan(f"{PBT} --max-jobs 5").search
    assert found is not None
    assert (found.strategy, found.population, found.max_jobs) == ("random", 5, 20)
    assert Search.from_json(found.to_json()) == found
    shorter = plan(f"{PBT} --stop-when training_iteration>=6").search
    assert shorter is not None
    assert (shorter.population, shorter.max_jobs) == (10, 20)
    with pytest.raises(MissingEngine, match="--tune needs Optuna"):
        plan(f"{TUNED} --scheduler bohb")


def test_brackets_of_a_number_of_trials() -> None:
    asked = f"{TUNED} --scheduler bohb(max_t=9) --max-jobs"
    # 9 trials until 1 value, 3 until 3, 1 until 9; then 5 until 3, 2 until 9; then 3 until 9.
    sizes = {2: 2 + 2 + 1, 9: 13, 10: 13 + 2, 14: 13 + 7, 17: 23, 26: 23 + 13}
    found = {size: plan(f"{asked} {size}").search for size in sizes}
    assert {size: one and one.max_jobs for size, one in found.items()} == sizes
    shorter = plan(f"{asked} 9 --stop-when training_iteration>=3").search
    assert shorter is not None
    assert shorter.max_jobs == 12


def test_optuna_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "find_spec", lambda name: None)
    with pytest.raises(MissingEngine, match=r'--tune needs Optuna: pip install "jupyter-dist\[tune\]"'):
        plan("--tune x=int(1,3) --objective max:a")


def test_the_best_is_the_first_of_equals() -> None:
    search = Search({"x": Whole(1, 3)}, "min", "loss", 3, 1, "random")
    values = [(0, "failed", None), (1, "succeeded", 2.0), (2, "succeeded", 1.0), (3, "succeeded", 1.0)]
    found = [Trial(number, f"r-t{number}", {}, state, value) for number, state, value in values]
    best = trials.best(found, search)
    assert best is not None
    assert best.number == 2
    assert trials.best(found[:1], search) is None


def test_what_is_named_like_an_option_of_tuning_goes_to_the_function() -> None:
    """Unless something is tuned: then it is tuning's, or refused where the function has such an argument."""

    def train(lr: float, parallel: int = 1) -> None: ...

    def anything(**more: Any) -> None: ...

    def split(fn: Callable[..., Any], **given: Any) -> tuple[dict[str, Any], Any]:
        none = dict.fromkeys((*OF_TUNING, "tune", "scaling", "steps"))
        found = function._for_function(fn, {**none, "kwargs": {"lr": 1}, **given})
        return found["kwargs"], found["parallel"]

    assert split(train, parallel=4) == ({"lr": 1, "parallel": 4}, None)
    assert split(anything, parallel=1) == ({"lr": 1, "parallel": 1}, None)
    assert split(lambda lr: lr, parallel=4) == ({"lr": 1}, 4)  # and the plan says what it is for
    assert split(anything, parallel=4, tune={"lr": [1]}) == ({"lr": 1}, 4)
    assert split(functools.partial(train, parallel=2), parallel=4, tune={"lr": [1]}) == ({"lr": 1}, 4)
    with pytest.raises(
        InputError, match=r"'parallel' is an option of tuning, but train\(\) has .*functools.partial"
    ):
        split(train, parallel=4, tune={"lr": [1]})

    def curve(steps: int = 1, scaling: str = "") -> None: ...

    assert split(curve, steps=4, scaling="log")[0] == {"lr": 1, "steps": 4, "scaling": "log"}
    with pytest.raises(InputError, match=r"'steps' is an option of scaling, but <lambda>\(\) has"):
        split(lambda steps: steps, steps=4, scaling=[1, 2])
    with pytest.raises(InputError, match=r"early_stopping works only with tune\. Add the values to try"):
        jupyter_dist.run(lambda: None, np=1, early_stopping=True)


def test_parents_of_a_search() -> None:
    assert read_parents("ab12") == (("ab12",), False)
    assert read_parents("ab12:identical") == (("ab12",), False)
    assert read_parents("ab12, cd34,sagemaker:theirs:transfer") == (
        ("ab12", "cd34", "sagemaker:theirs"),
        True,
    )
    for wrong in ("", "a,", "a:b", "azureml:job", "sagemaker:", "sagemaker:a_b", ":transfer"):
        with pytest.raises(ValueError, match="needs the id of a tuning run, or sagemaker:JOB"):
            read_parents(wrong)
    with pytest.raises(ValueError, match="names ab12 twice"):
        read_parents("ab12,ab12")
    search = Search({"x": Whole(1, 3)}, "min", "loss", 3, 1, "bayesian", parents=("ab12",))
    old = {**search.to_json(), "parent": "ab12"}
    del old["parents"], old["warm"]
    assert Search.from_json(old) == search, "of a run of an earlier version"


def test_the_best_of_a_parent_counts_unless_the_parent_had_other_data(tmp_path: Path) -> None:
    (tmp_path / "ab12").mkdir()
    parents = RunFolder(tmp_path / "ab12")
    begun = {"number": 0, "parameters": {"x": 2}, "time": 1.0}
    ended = {"number": 0, "state": "succeeded", "value": 0.5, "steps": [], "time": 2.0}
    parents.trials.write_text(f"{json.dumps(begun)}\n{json.dumps(ended)}\n")
    search = Search({"x": Whole(1, 3)}, "min", "loss", 3, 1, "bayesian", parents=("ab12", "gone"))
    own = [Trial(0, "r-t0", {"x": 1}, "succeeded", 0.75)]

    def best(search: Search) -> str:
        found = trials.overall_best(tmp_path, own, search)
        assert found is not None
        return found.run_id

    assert best(search) == "ab12-t0"
    assert best(dataclasses.replace(search, transfer=True)) == "r-t0"
    known = WarmStart(("a", "b"), {}, KnownBest("sagemaker:b-001", 0.25, {"x": "3"}))
    assert best(dataclasses.replace(search, warm=known)) == "sagemaker:b-001"


def test_the_best_of_a_parent_is_named_with_its_job(tmp_path: Path) -> None:
    known = WarmStart(("theirs",), {}, KnownBest("sagemaker:theirs-007", 0.1, {"x": "0.1", "y": "2"}))
    search = Search(
        {"x": Real(0, 1)}, "min", "loss", 1, 1, "random", parents=("sagemaker:theirs",), warm=known
    )
    folder = folders.create(tmp_path, "20260101-120000-abcd", 1)
    job = dataclasses.replace(JOB, tuning={"search": search.to_json()})
    folders.write_json(folder.job, job.to_json())
    begun = {"number": 0, "parameters": {"x": 0.75}, "time": 1.0}
    ended = {"number": 0, "state": "succeeded", "value": 0.75, "steps": [], "time": 2.0}
    folder.trials.write_text(f"{json.dumps(begun)}\n{json.dumps(ended)}\n")
    with pytest.raises(DistError, match=r"sagemaker:theirs-007 of a parent, with loss 0\.1: x=0\.1, y=2\. "):
        shown_trials.best(folder)
    told = shown_trials.headline(job, folder)
    assert "; better in a parent, loss 0.1: x=0.1, y=2 (sagemaker:theirs-007)" in told
