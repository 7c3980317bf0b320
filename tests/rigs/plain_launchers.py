"""The examples of tests/end_to_end/upstream by their plain launchers, and the numbers that were found so.

The numbers are committed in `tests/golden/upstream.json`, each example's with what they hang on: the script
and its launcher, Python and the packages with their versions, and the instructions of the processor. This
program writes them anew, for all examples or for those that are named:

    .venv/bin/python tests/rigs/plain_launchers.py [EXAMPLE ...]
"""

from __future__ import annotations

import array
import base64
import contextlib
import hashlib
import importlib.metadata
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_dist.conformance.ports import take_port
from tests.conftest import OF_A_RANK
from tests.rigs.examples import EXAMPLES, Example

__all__ = [
    "ENVIRON",
    "GOLDEN",
    "NEEDS",
    "by_launcher",
    "environments",
    "golden",
    "hangs_on",
    "known_by_launcher",
    "packed",
    "program_of",
    "unpacked",
]

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "upstream.json"
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-dist" / "upstream"
TAKES_S = 240.0
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
LEGACY_KERAS = """
import os as _os, sys as _sys
_os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tf_keras as _legacy
for _name in [name for name in _sys.modules if name.split(".")[0] == "tf_keras"]:
    _sys.modules["keras" + _name[8:]] = _sys.modules[_name]
"""
"""What a plain script needs where Horovod 0.28.1 or TensorFlow's strategies do not train with Keras 3."""


@contextlib.contextmanager
def environments() -> Iterator[Callable[[str], dict[str, str]]]:
    """The variables of a group's examples, for both ways. Group `ray` names a Ray, which is started first."""
    from benchmarks._engines import ray_head

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


def hangs_on(example: Example) -> dict[str, Any]:
    """What the launcher's numbers may hang on: they are compared only where all of it is the same."""
    packages = importlib.metadata.packages_distributions()
    named = {name for module in ("numpy", *NEEDS[example.group]) for name in packages.get(module, ())}
    return {
        "program": program_of(example),
        "versions": {
            "python": "{}.{}".format(*sys.version_info),
            **{name: importlib.metadata.version(name) for name in sorted(named)},
        },
        "processor": processor(),
    }


def program_of(example: Example) -> str:
    """A digest of what the launcher starts, and how."""
    program = [example.script(), example.plain, LEGACY_KERAS, ENVIRON]
    return hashlib.sha256(json.dumps(program).encode()).hexdigest()[:24]


def processor() -> str:
    """What libraries choose their kernels by: the maker, and the instructions for many numbers at once."""
    told = dict[str, str]()
    with open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            told.setdefault(name.strip(), value.strip())
    vectors = ("avx", "amx", "fma", "sse4", "asimd", "sve")
    flags = told.get("flags", told.get("Features", "")).split()
    return " ".join([told.get("vendor_id", "?"), *sorted(flag for flag in flags if flag.startswith(vectors))])


def golden() -> dict[str, Any]:
    """By the name of an example: what its committed numbers hang on, and what each process `found`."""
    return dict(unpacked(json.loads(GOLDEN.read_text())))


def packed(found: Any) -> Any:
    """Weights as they are in memory: a list of many numbers that are 32 bits long is a quarter as long so."""
    if isinstance(found, dict):
        return {key: packed(value) for key, value in found.items()}
    if not isinstance(found, list):
        return found
    if len(found) > 32 and all(isinstance(value, float) for value in found):
        numbers = array.array("f", found)
        if numbers.tolist() == found:
            return {"float32": base64.b64encode(numbers.tobytes()).decode()}
    return [packed(value) for value in found]


def unpacked(kept: Any) -> Any:
    """What `packed` was given."""
    if isinstance(kept, dict):
        if kept.keys() == {"float32"}:
            return array.array("f", base64.b64decode(kept["float32"])).tolist()
        return {key: unpacked(value) for key, value in kept.items()}
    return [unpacked(value) for value in kept] if isinstance(kept, list) else kept


def known_by_launcher(example: Example, folder: Path, environ: dict[str, str]) -> list[dict[str, Any]]:
    """The committed numbers, or what `by_launcher` finds where they were made with other versions.

    What it found is kept under ~/.cache/jupyter-dist/upstream, so that it runs again only where something
    that its numbers may hang on has changed.
    """
    now = hangs_on(example)
    committed = golden().get(example.name, {})
    found: list[dict[str, Any]] = committed.pop("found", [])
    if committed == now:
        return found
    print(f"the launcher runs anew: its committed numbers are of {committed}, and here is {now}")
    name = hashlib.sha256(json.dumps([now, os.cpu_count()], sort_keys=True).encode()).hexdigest()[:24]
    kept = KEPT / f"{name}.json"
    if kept.exists():
        return list(json.loads(kept.read_text()))
    found = by_launcher(example, folder, environ)
    KEPT.mkdir(parents=True, exist_ok=True)
    replace(kept, json.dumps(found))
    return found


def replace(path: Path, text: str) -> None:
    """Readers see the whole file or the one before."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    beside.replace(path)


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


def main(names: list[str]) -> None:
    """Write the numbers of these examples, after each so that what is done is kept."""
    with environments() as environ_of:
        for name in names or sorted(EXAMPLES, key=lambda name: EXAMPLES[name].group):
            example = EXAMPLES[name]
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                found = by_launcher(example, Path(folder), environ_of(example.group))
            entries = golden() if GOLDEN.exists() else {}
            entries[name] = {**hangs_on(example), "found": found}
            known = {name: entries[name] for name in sorted(entries) if name in EXAMPLES}
            lines = [f"{json.dumps(name)}: {json.dumps(packed(entry))}" for name, entry in known.items()]
            replace(GOLDEN, "{\n" + ",\n".join(lines) + "\n}\n")
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.path.append(str(ROOT))
    main(sys.argv[1:])
