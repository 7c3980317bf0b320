"""Which tests the tiers have, what is written down of a run, and which failures may be looked at again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import groups, last_green, second_look
from tests.tiers.pytest_plugin import DEAD_PATTERNS, Ending, endings

TESTS = Path(__file__).parents[1]
FAILING = """
import pytest

def wait(what):
    pytest.fail(f"waited 120 s for {what}; last value: None")

def test_passes():
    pass

def test_a_wait():
    wait("a line")

def test_a_value():
    assert 1 == 2

@pytest.mark.race
def test_a_race():
    wait("a line")

@pytest.fixture
def leaving():
    yield
    pytest.fail("a process of this test was still alive")

def test_a_wait_that_leaves_something(leaving):
    wait("a line")

@pytest.mark.timeout(0.2, func_only=True)
def test_that_hangs():
    import time
    time.sleep(600)

@pytest.mark.skipif(True, reason="so")
def test_skipped():
    pass
"""


def test_no_pattern_of_the_table_is_dead(request: pytest.FixtureRequest) -> None:
    """Known where a whole tier is run: a pattern that matches no test says that one has another name now."""
    assert request.config.stash.get(DEAD_PATTERNS, []) == []


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("backends/ray/test_ray.py::test_options", None),
        ("backends/ray/test_ray.py::test_what_ranks_find", "ray"),
        ("end_to_end/test_upstream.py::test_same_numbers[tensorflow_multi_worker_with_ctl]", None),
        ("end_to_end/test_upstream.py::test_same_numbers[lightning_autoencoder]", "upstream"),
        ("conformance/test_horovod.py::TestHorovod::test_a_timeout_fails_the_run[gloo]", None),
        ("conformance/test_horovod.py::TestHorovod::test_a_timeout_fails_the_run[mpi]", "mpi"),
        ("conformance/test_ssh.py::TestSsh::test_a_timeout_fails_the_run", None),
        ("conformance/test_kubernetes.py::TestKubernetes::test_a_timeout_fails_the_run[job]", "kubernetes"),
        ("conformance/test_kubernetes.py::TestKubernetes::test_a_timeout_fails_the_run[mpijob]", "variants"),
        ("test_a_file_that_is_new.py::test_it", None),
    ],
)
def test_each_test_is_core_or_of_one_group(test: str, group: str | None) -> None:
    found = groups.group_of(test)
    assert (found.name if found else None) == group


def test_the_core_has_one_hosted_backend_at_a_time() -> None:
    good = "conformance/test_ray.py::TestRay::test_unicode_arrives[two nodes]"
    turns = range(len(groups.TURNS))
    assert [groups.in_turn(good, {"target", "good"}, number) for number in turns].count(True) == 1
    assert not any(groups.in_turn(good, {"target", "heavy"}, number) for number in turns)


EVERY = {group.name for group in groups.GROUPS}
OF_OTHERS = EVERY - {"pythons"}


@pytest.mark.parametrize(
    ("changed", "touched", "left_alone"),
    [
        ("jupyter_dist/worker/rank/cell.py", EVERY, set()),
        ("pyproject.toml", EVERY, set()),
        ("tests/rigs/ray/nodes.py", {"ray", "notebooks"}, {"kubernetes", "mpi", "browser"}),
        (
            "jupyter_dist/backends/kubernetes/backend.py",
            {"kubernetes", "variants"},
            OF_OTHERS - {"kubernetes", "variants"},
        ),
        ("labextension/src/run/view.ts", {"browser"}, EVERY - {"browser"}),
        ("notebooks/ssh-cluster.ipynb", {"notebooks"}, EVERY - {"notebooks"}),
        ("docs/view.md", set(), EVERY),
    ],
)
def test_a_change_touches_the_groups_that_depend_on_it(
    changed: str, touched: set[str], left_alone: set[str]
) -> None:
    found = {group.name for group in groups.GROUPS if last_green.touched_by(group, [changed])}
    assert touched <= found
    assert found & left_alone == set()


def test_a_group_is_planned_by_the_speed_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(last_green, "_COMMITTED", tmp_path / "committed.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    last_green.note_green("a" * 12, {"core": 18.0})
    last_green.note_green("a" * 12, {"ray": 6.0})
    assert last_green.read_green()["ray"].minutes_beside(18.0) == 6.0
    # On a machine half as fast.
    last_green.note_green("b" * 12, {"core": 36.0})
    assert last_green.read_green()["ray"].minutes_beside(36.0) == 12.0


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ending]:
    """How the tests above end, in a pytest of their own with two workers."""
    tmp_path = tmp_path_factory.mktemp("ended")
    (tmp_path / "test_failing.py").write_text(FAILING)
    (tmp_path / "conftest.py").write_text(
        "from tests.tiers.pytest_plugin import TierPlugin\n\ndef pytest_configure(config):\n"
        '    config.addinivalue_line("markers", "race: x")\n'
        "    config.pluginmanager.register(TierPlugin(config))\n"
    )
    record = tmp_path / "record"
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER_", "PYTEST_"))
    }
    environ |= {"JUPYTER_DIST_RECORD": str(record), "PYTHONPATH": str(TESTS.parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    # A folder of its own: pytest removes the folders of earlier runs at its end, which can last minutes.
    command += ["--basetemp", str(tmp_path / "folders")]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return {ending.test.partition("::")[2]: ending for ending in endings(record)}


def test_what_is_written_down_of_each_test(ended: dict[str, Ending]) -> None:
    outcomes = {name: ending.outcome for name, ending in ended.items()}
    failed = ["a_wait", "a_value", "a_race", "a_wait_that_leaves_something", "that_hangs"]
    assert outcomes == {"test_passes": "passed", "test_skipped": "skipped"} | {
        f"test_{name}": "failed" for name in failed
    }
    assert "waited 120 s for a line" in ended["test_a_wait"].text
    assert ended["test_a_wait_that_leaves_something"].failed_in == ("call", "teardown")
    assert not ended["test_a_wait_that_leaves_something"].out_of_time


def test_only_waits_that_were_given_up_are_looked_at_again(ended: dict[str, Ending]) -> None:
    chosen = [ended[f"test_{name}"] for name in ("a_wait", "a_value", "that_hangs")]
    assert [ending.test.partition("::")[2] for ending in second_look.suspects(chosen)] == [
        "test_a_wait",
        "test_that_hangs",
    ]
    never = [ended[f"test_{name}"] for name in ("a_race", "a_wait_that_leaves_something", "a_value")]
    assert second_look.suspects(never) == []
    assert second_look.suspects([*chosen, *never]) == [], "so many failures are no chance"


def test_a_second_look_is_four_runs_that_have_to_pass(tmp_path: Path) -> None:
    test = tmp_path / "test_counted.py"
    counted = "from pathlib import Path\n\ndef test_it():\n    count = Path({path!r})\n"
    counted += "    count.write_text(count.read_text() + 'x')\n    assert count.read_text() != {bad!r}\n"
    count = tmp_path / "count"
    for bad, runs, passes in (("never", 4, True), ("xxxx", 4, False)):
        count.write_text("")
        test.write_text(counted.format(path=str(count), bad=bad))
        assert second_look.passes_again(str(test)) is passes
        assert count.read_text() == "x" * runs


def test_what_ci_enters_is_kept_until_somebody_takes_it_from_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "flaky.toml"
    monkeypatch.setattr(second_look, "_LISTED", listed)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert second_look.read_flaky() == {}
    second_look.write_flaky({"tests/test_a.py::test_it[a-b]": 0})
    listed.unlink()  # CI's clone is thrown away
    assert second_look.read_flaky() == {"tests/test_a.py::test_it[a-b]": 0}
    second_look.write_flaky({"tests/test_a.py::test_it[a-b]": 1})
    second_look.write_flaky(second_look.read_flaky())
    listed.write_text("")  # mended
    assert second_look.read_flaky() == {}
