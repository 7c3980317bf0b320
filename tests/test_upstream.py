"""Public examples, run twice: by their launcher as a script, and by `%%distribute` from a notebook's cells.

The same numbers have to come out. `examples` says what an example is; docs/examples.md lists them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import examples
import pytest
from conftest import OF_A_RANK, Kernel
from examples import EXAMPLES, Example, differences, table
from ports import take_port

from benchmarks._engines import ray_head
from jupyter_dist.folder import write_json

ROOT = Path(__file__).parents[1]
TAKES_S = 240.0
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-dist" / "upstream"
NEEDS = {
    "horovod-torch": ("torch", "horovod"),
    "horovod-tensorflow": ("tensorflow", "horovod", "tf_keras"),
    "torch": ("torch",),
    "trainers": ("torch", "lightning", "transformers", "accelerate"),
    "tensorflow": ("tensorflow", "tf_keras"),
    "keras-torch": ("torch", "keras"),
    "ray": ("torch", "ray"),
}
ENVIRON = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
FOLDERS = ("JUPYTER_DIST_RUNS", "JUPYTER_DIST_GPU_LOCKS", "JUPYTER_DATA_DIR", "IPYTHONDIR")
LEGACY_KERAS = """
import os as _os, sys as _sys
_os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tf_keras as _legacy
for _name in [name for name in _sys.modules if name.split(".")[0] == "tf_keras"]:
    _sys.modules["keras" + _name[8:]] = _sys.modules[_name]
"""
"""What a plain script needs where Horovod 0.28.1 or TensorFlow's strategies do not train with Keras 3."""


@pytest.fixture(scope="module")
def environ_of() -> Iterator[Callable[[str], dict[str, str]]]:
    """The variables of an example, for both ways; those of group `ray` name a Ray that is started first."""
    with contextlib.ExitStack() as stack:
        known: dict[str, dict[str, str]] = {}

        def environ_of(group: str) -> dict[str, str]:
            if group != "ray":
                return ENVIRON
            if group not in known:
                address = stack.enter_context(ray_head(cpus=4))
                known[group] = {**ENVIRON, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}
            return known[group]

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


def by_distribute(example: Example, kernel: Kernel, folder: Path) -> list[dict[str, Any]]:
    """What each rank of the example's last cell found."""
    kernel.run(f"%reset -f\n%cd -q {folder}")
    *earlier, last = example.cells
    for cell in earlier:
        kernel.run(cell, TAKES_S)
    kernel.run(f"%%distribute {example.notebook} --out run\n{last}", TAKES_S)
    shown = kernel.run("import json\nprint(json.dumps(list(run.results)))").stdout
    return [found for found in json.loads(shown) if found is not None]


def by_launcher(example: Example, folder: Path, environ: dict[str, str]) -> list[dict[str, Any]]:
    """What each process of the example's plain launcher found."""
    found = folder / "found"
    found.mkdir()
    names = ("SCRIPT", "LEGACY_SCRIPT", "TORCH_TRAINER", "HOROVOD_TRAINER", "SLOTS")
    files = {name: folder / name.lower() for name in names}
    for name in ("SCRIPT", "TORCH_TRAINER", "HOROVOD_TRAINER"):
        files[name].write_text(example.script())
    files["LEGACY_SCRIPT"].write_text(LEGACY_KERAS + example.script())
    files["SLOTS"].write_text("#!/bin/sh\necho localhost:2\n")
    files["SLOTS"].chmod(0o700)
    env = {name: value for name, value in os.environ.items() if name not in OF_A_RANK}
    bin_folder = str(Path(sys.executable).parent)
    env |= {**environ, "RESULTS": str(found), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    words = [str(files.get(word, word)) for word in shlex.split(example.plain)]
    with (folder / "log").open("wb") as log:
        processes = [
            subprocess.Popen(
                argv,
                env={**env, **more},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for argv, more in commands(words)
        ]
        try:
            code = processes[0].wait(TAKES_S)
            wait_for_the_others(processes[1:], found, example)
        finally:
            end(processes)
    assert code == 0, (folder / "log").read_text(errors="replace")[-5000:]
    return sorted((json.loads(path.read_text()) for path in found.iterdir()), key=lambda one: one["rank"])


def known_by_launcher(example: Example, folder: Path, environ: dict[str, str]) -> list[dict[str, Any]]:
    """As `by_launcher`, which runs again only where something that its numbers may hang on has changed.

    What it found is kept under ~/.cache/jupyter-dist/upstream; without that folder every launcher runs anew.
    """
    with open("/proc/cpuinfo") as file:
        cpu = {line for line in file if line.startswith("flags")}
    packages = importlib.metadata.packages_distributions()
    named = {name for module in ("numpy", *NEEDS[example.group]) for name in packages.get(module, ())}
    hangs_on = [
        *(Path(path).read_text() for path in (__file__, examples.__file__)),
        example.script(),
        example.plain,
        platform.python_version(),
        os.cpu_count(),
        *sorted(cpu),
        *sorted(f"{name} {importlib.metadata.version(name)}" for name in named),
    ]
    name = hashlib.sha256(json.dumps(hangs_on).encode()).hexdigest()[:24]
    kept = KEPT / f"{name}.json"
    if kept.exists():
        found: list[dict[str, Any]] = json.loads(kept.read_text())
        return found
    found = by_launcher(example, folder, environ)
    KEPT.mkdir(parents=True, exist_ok=True)
    write_json(kept, found)
    return found


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what still runs; a launcher is asked first, because its ranks are no members of its group."""
    for process in processes:
        process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(40)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def commands(words: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """The command lines to start, each with its variables.

    `TF_CONFIG=chief:1,worker:1,ps:1 python SCRIPT` is one process for each task, as TensorFlow's tutorials
    have it, and any other line is itself. The first one's end is the end of the run.
    """
    name, _, value = words[0].partition("=")
    if name != "TF_CONFIG":
        return [(words, {})]
    counts = [(kind, int(count)) for kind, count in (part.split(":") for part in value.split(","))]
    cluster = {kind: [f"127.0.0.1:{take_port()}" for _ in range(count)] for kind, count in counts}
    return [
        (words[1:], {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})})
        for kind, count in counts
        for index in range(count)
    ]


def wait_for_the_others(processes: list[subprocess.Popen[bytes]], found: Path, example: Example) -> None:
    """Workers that train end by themselves; servers of a parameter server strategy never do."""
    if "ps:" in example.plain:
        return
    deadline = time.monotonic() + TAKES_S
    for process in processes:
        assert process.wait(deadline - time.monotonic()) == 0


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


@pytest.mark.timeout(600)
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
    ours = by_distribute(example, kernel_of(example.group), folders[0])
    plain = known_by_launcher(example, folders[1], environ_of(example.group))
    assert len(ours) > 0
    assert not differences(ours, plain, exactly=example.exactly)


def test_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    assert page.endswith("\n\n" + table()), "write it anew: .venv/bin/python tests/examples.py"
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
