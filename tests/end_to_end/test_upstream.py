"""Public examples, by their launcher as a script, and by `%%distribute` from a notebook's cells.

The same numbers have to come out. `examples` says what an example is; docs/examples.md lists them. The
launchers' numbers are committed: `plain_launchers` tells what they hang on, and writes them anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.queries import run_info
from tests.conftest import OF_A_RANK, Kernel
from tests.rigs.examples import EXAMPLES, Example, differences, table
from tests.rigs.plain_launchers import (
    NEEDS,
    by_launcher,
    environments,
    golden,
    hangs_on,
    known_by_launcher,
    packed,
    program_of,
    unpacked,
)
from tests.tiers.groups import group_of

ROOT = Path(__file__).parents[2]
FOLDERS = ("JUPYTER_DIST_RUNS", "JUPYTER_DIST_GPU_LOCKS", "JUPYTER_DATA_DIR", "IPYTHONDIR")
ANEW = "write them anew: .venv/bin/python tests/rigs/plain_launchers.py"


@pytest.fixture(scope="module")
def environ_of() -> Iterator[Callable[[str], dict[str, str]]]:
    """`plain_launchers.environments`, open for as long as this module's tests run."""
    with environments() as environ_of:
        yield environ_of


@pytest.fixture(scope="module")
def kernel_of(
    tmp_path_factory: pytest.TempPathFactory, environ_of: Callable[[str], dict[str, str]]
) -> Iterator[Callable[[str], Kernel]]:
    """One kernel for the examples of a group, as a notebook's user has it: what one has imported is warm.

    The kernel of one group ends when the next group asks for its own.
    """
    kernels: dict[str, Kernel] = {}

    def close() -> None:
        while kernels:
            kernels.popitem()[1].close()

    def kernel_of(group: str) -> Kernel:
        if group not in kernels:
            close()
            folder = tmp_path_factory.mktemp(group)
            with pytest.MonkeyPatch.context() as patch:
                for name in OF_A_RANK:
                    patch.delenv(name, raising=False)
                for name, value in environ_of(group).items():
                    patch.setenv(name, value)
                for name in FOLDERS:
                    patch.setenv(name, str(folder / name))
                kernels[group] = Kernel(folder)
            kernels[group].run("%load_ext jupyter_dist")
        return kernels[group]

    yield kernel_of
    close()


def by_distribute(example: Example, kernel: Kernel, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """What each rank of the example's last cell found, and the hints on mistakes, of which it has none."""
    kernel.run(f"%reset -f\n%cd -q {folder}")
    *earlier, last = example.cells
    for cell in earlier:
        kernel.run(cell)
    kernel.run(f"%%distribute {example.notebook} --out run\n{last}")
    shown = kernel.run(
        "import json, os\nprint(json.dumps([list(run.results), os.environ['JUPYTER_DIST_RUNS'], run.id]))"
    ).stdout
    results, runs, run = json.loads(shown)
    notes = run_info.full(RunFolder(Path(runs, run)))["notes"]
    hints = [note for note in notes if "--no-hint" in note]
    return [found for found in results if found is not None], hints


def cases() -> Iterator[Any]:
    for name, example in sorted(EXAMPLES.items(), key=lambda item: item[1].group):
        marks = [
            pytest.mark.xdist_group(f"upstream {example.group}"),
            pytest.mark.needs(*NEEDS[example.group]),
        ]
        if example.group.startswith("horovod") and "--gloo" not in example.plain:
            marks.append(pytest.mark.needs("horovod with MPI"))
        if name == "ray_horovod_pytorch":
            marks.append(pytest.mark.needs("horovod", "sklearn"))
        yield pytest.param(example, id=name, marks=marks)


@pytest.mark.parametrize("example", list(cases()))
def test_same_numbers(
    example: Example,
    kernel_of: Callable[[str], Kernel],
    environ_of: Callable[[str], dict[str, str]],
    tmp_path: Path,
) -> None:
    folders = [tmp_path / name for name in ("notebook", "plain")]
    for folder in folders:
        folder.mkdir()
    ours, hints = by_distribute(example, kernel_of(example.group), folders[0])
    assert hints == []
    plain = known_by_launcher(example, folders[1], environ_of(example.group))
    assert len(ours) > 0
    assert not differences(ours, plain, exactly=example.exactly)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", list(cases()))
def test_the_launchers_numbers_are_still_these(
    example: Example, environ_of: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    """On another kind of processor they differ in their last digits: there only their shape is the same."""
    committed = golden()[example.name]
    now = hangs_on(example)
    assert committed["versions"] == now["versions"], f"{ANEW} {example.name}"
    found = by_launcher(example, tmp_path, environ_of(example.group))
    if committed["processor"] == now["processor"]:
        assert not differences(found, committed["found"], exactly=example.exactly)
    else:
        assert shape(found) == shape(committed["found"])


def shape(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: shape(value) for key, value in found.items()}
    if isinstance(found, list):
        return [shape(value) for value in found]
    return type(found).__name__


def test_numbers_that_are_packed_are_the_same_afterwards() -> None:
    found = [{"rank": 0, "weights": [value / 8 for value in range(100)], "losses": [0.1] * 100, "few": [1.0]}]
    short = packed(found)
    assert {key: type(value) for key, value in short[0].items()} == {
        "rank": int,
        "weights": dict,
        "losses": list,
        "few": list,
    }
    assert unpacked(json.loads(json.dumps(short))) == found


def test_numbers_of_each_example_are_committed() -> None:
    committed = {name: entry["program"] for name, entry in golden().items()}
    assert committed == {name: program_of(example) for name, example in EXAMPLES.items()}, ANEW
    in_core = [
        name
        for name in EXAMPLES
        if group_of(f"end_to_end/test_upstream.py::test_same_numbers[{name}]") is None
    ]
    groups = {EXAMPLES[name].group for name in in_core}
    assert groups == {"horovod-torch", "keras-torch", "tensorflow", "torch"}


def test_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    assert page.endswith("\n\n" + table()), "write it anew: .venv/bin/python tests/rigs/examples.py"
    assert len(EXAMPLES) >= 30
    assert sum(example.changed == "nothing" for example in EXAMPLES.values()) >= len(EXAMPLES) - 2


@pytest.mark.parametrize(
    ("ours", "exactly", "found"),
    [
        ([{"rank": 0, "losses": [0.5, 2.0]}], True, []),
        ([{"rank": 0, "losses": [0.5, 2.0000001]}], False, []),
        (
            [{"rank": 0, "losses": [0.5, 2.0000001]}],
            True,
            ["[0]['losses'][1]: 2.0000001 by %%distribute, 2.0 plainly"],
        ),
        ([{"rank": 0, "losses": [0.5, 2.1]}], False, ["[0]['losses'][1]: 2.1 by %%distribute, 2.0 plainly"]),
        (
            [{"rank": 0, "losses": [0.5]}],
            False,
            ["[0]['losses']: [0.5] by %%distribute, [0.5, 2.0] plainly"],
        ),
        ([], False, ["[]"]),
    ],
)
def test_differences_are_found(ours: list[Any], exactly: bool, found: list[str]) -> None:
    told = differences(ours, [{"rank": 0, "losses": [0.5, 2.0]}], exactly=exactly)
    assert len(told) == len(found)
    assert all(part in text for part, text in zip(found, told, strict=True))
