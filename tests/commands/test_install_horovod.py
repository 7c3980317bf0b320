"""`jupyter dist install-horovod`: what it asks for, what it changes, what it keeps, what it says."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from jupyter_dist.commands import horovod_build, horovod_recipe, main
from jupyter_dist.commands.horovod_recipe import Recipe, find_recipe, missing_tools
from jupyter_dist.errors import DistError, InputError
from jupyter_dist.worker.launchers import fast_horovodrun

ROOT = Path(__file__).parents[2]
RECIPE = Recipe(torch="2.13.0", tensorflow="2.21.0", mpi="Open MPI 4.1.4")
CMAKE = "set(CMAKE_CXX_STANDARD 14)\nset(CMAKE_CXX_STANDARD_REQUIRED ON)\n"
XLA = 'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n'
GLOO = "void GlooContext::InitializeForProcessSet() {{\n  attr device_attr;\n  device_attr.{} = {};\n}}\n"
SETUP = """
import os, setuptools
print("[  3%] Building CXX object third_party/gloo/transport/pair.cc.o", flush=True)
print("[ 80%] Linking CXX shared library ../../mpi_lib.so", flush=True)
{then}
setuptools.setup(name="horovod", version="0.28.1", packages=["horovod"])
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jupyter-dist" / "horovod"


def fake_source(folder: Path, then: str = "") -> Path:
    """The files of Horovod's source that are changed, around a package that builds in a second."""
    files = {
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.13)\n" + CMAKE,
        "horovod/torch/CMakeLists.txt": f"if(TRUE)\n    {CMAKE}endif()\n",
        "horovod/tensorflow/CMakeLists.txt": f'list(APPEND TF_SOURCES "mpi_ops.cc")\n{XLA}message("end")\n',
        "horovod/common/gloo/gloo_context.cc": GLOO.format("iface", "gloo_iface_"),
        "horovod/__init__.py": "",
        "setup.py": SETUP.format(then=then),
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "setuptools.build_meta"\n',
    }
    root = folder / "horovod-0.28.1"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def as_archive(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a source where the real one is kept, with a digest that says it is the real one."""
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / "horovod-0.28.1.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(source, source.name)
    monkeypatch.setattr(horovod_build, "SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    monkeypatch.setattr(horovod_build, "_BUILD", ())
    real = horovod_build._pip
    monkeypatch.setattr(horovod_build, "_pip", lambda a, *o, **k: a[0] == "install" or real(a, *o, **k))


def test_a_wheel_is_named_by_all_that_it_depends_on() -> None:
    assert RECIPE.key == Recipe(torch="2.13.0", tensorflow="2.21.0", mpi="Open MPI 4.1.4").key
    for change in (
        {"torch": "2.13.0+cpu"},
        {"torch": None},
        {"tensorflow": "2.22.0"},
        {"mpi": None},
        {"mpi": "MPICH 4.0.2"},
        {"python": "cpython-312"},
        {"machine": "linux-aarch64"},
        {"settings": (("HOROVOD_GPU_OPERATIONS", "NCCL"),)},
        {"patch": RECIPE.patch + 1},
    ):
        assert dataclasses.replace(RECIPE, **change).key != RECIPE.key, change


def test_it_builds_for_what_is_there() -> None:
    only_torch = dataclasses.replace(RECIPE, tensorflow=None, mpi=None)
    assert str(only_torch) == "Horovod 0.28.1 for torch 2.13.0, with Gloo, without MPI"
    assert only_torch.environment() == {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
    }
    assert str(RECIPE).endswith("for torch 2.13.0 and TensorFlow 2.21.0, with Gloo and Open MPI 4.1.4")
    gpu = dataclasses.replace(RECIPE, settings=(("HOROVOD_GPU_OPERATIONS", "NCCL"),))
    assert gpu.environment()["HOROVOD_GPU_OPERATIONS"] == "NCCL"


@pytest.mark.needs("torch")
def test_missing_tools_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    assert main(["install-horovod"]) == 2
    said = capsys.readouterr().err
    assert "this machine lacks a C++ compiler, make, CMake 3.13 or newer and MPI" in said
    assert "apt-get install g++ make cmake openmpi-bin libopenmpi-dev" in said
    assert "conda install -c conda-forge gxx make cmake openmpi-mpicxx" in said


@pytest.mark.needs("torch")
def test_without_mpi_it_offers_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_recipe, "_mpi_version", lambda: None)
    with pytest.raises(InputError, match=r"lacks MPI\. Install it first(.|\n)*--without-mpi"):
        find_recipe(mpi=True)
    assert "MPI" not in missing_tools(mpi=False)
    assert find_recipe(mpi=False).mpi is None


def test_without_torch_and_tensorflow_there_is_nothing_to_build_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="Neither torch nor TensorFlow is installed"):
        find_recipe(mpi=True)


def test_four_lines_are_changed(tmp_path: Path) -> None:
    source = fake_source(tmp_path)
    horovod_build.patch(source)
    assert "CXX_STANDARD 17)\nset(CMAKE_CXX_STANDARD_REQUIRED ON)" in (source / "CMakeLists.txt").read_text()
    assert "    set(CMAKE_CXX_STANDARD 17)\n" in (source / "horovod/torch/CMakeLists.txt").read_text()
    tensorflow = (source / "horovod/tensorflow/CMakeLists.txt").read_text()
    assert tensorflow == 'list(APPEND TF_SOURCES "mpi_ops.cc")\nmessage("end")\n'
    gloo = (source / "horovod/common/gloo/gloo_context.cc").read_text()
    assert gloo == GLOO.format("iface", "global_context.gloo_iface_")


def test_another_source_is_left_alone(tmp_path: Path) -> None:
    source = fake_source(tmp_path)
    other = source / "horovod/tensorflow/CMakeLists.txt"
    other.write_text("message('a later Horovod')\n")
    before = (source / "CMakeLists.txt").read_text()
    with pytest.raises(
        DistError, match=r"horovod/tensorflow/CMakeLists.txt .* differs from version 0\.28\.1"
    ):
        horovod_build.patch(source)
    assert (source / "CMakeLists.txt").read_text() == before


def test_a_wheel_is_built_once(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_archive(fake_source(tmp_path), own_cache, monkeypatch)
    seen: list[tuple[float | None, str]] = []
    assert horovod_build.cached(RECIPE) is None
    wheel = horovod_build.build(RECIPE, 1, lambda share, what: seen.append((share, what)))
    assert wheel.parent == own_cache / RECIPE.key
    assert horovod_build.cached(RECIPE) == wheel
    assert horovod_build.cached(dataclasses.replace(RECIPE, torch="2.14.0")) is None
    assert (0.03, "Building pair.cc.o") in seen
    assert (0.8, "Linking mpi_lib.so") in seen
    assert not list(own_cache.glob("build-*.log"))
    assert [path.name for path in wheel.parent.iterdir()] == [wheel.name]


def test_a_failed_build_names_the_log_and_the_errors(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = "raise SystemExit('ops.cc:12:3: error: no type named atomic in namespace std')"
    as_archive(fake_source(tmp_path, then), own_cache, monkeypatch)
    with pytest.raises(DistError) as raised:
        horovod_build.build(RECIPE, 1, lambda share, what: None)
    log = own_cache / f"build-{RECIPE.key}.log"
    assert str(log) in str(raised.value)
    assert "ops.cc:12:3: error: no type named atomic in namespace std" in str(raised.value)
    assert "[ 80%] Linking" in log.read_text()
    assert horovod_build.cached(RECIPE) is None


def test_an_archive_that_is_not_horovods_is_refused(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(arguments: list[str], *_: object, **__: object) -> None:
        if arguments[0] == "download":
            target = Path(arguments[arguments.index("--dest") + 1])
            target.mkdir()
            (target / "horovod-0.28.1.tar.gz").write_bytes(b"something else")

    monkeypatch.setattr(horovod_build, "_pip", download)
    with pytest.raises(DistError, match="is not the one that Horovod's authors published"):
        horovod_build.build(RECIPE, 1, lambda share, what: None)
    assert not list(own_cache.glob("*.tar.gz"))


@pytest.mark.needs("torch")
def test_the_next_call_takes_the_kept_wheel(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where nothing could be built, as long as it is known what for."""
    monkeypatch.setattr(horovod_recipe, "_mpi_version", lambda: "Open MPI 4.1.4")
    monkeypatch.setattr(horovod_recipe, "missing_tools", lambda *, mpi: ["a C++ compiler"])
    recipe = find_recipe(mpi=True)
    wheel = own_cache / recipe.key / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
    wheel.parent.mkdir(parents=True)
    (wheel.parent / f".{wheel.name}.{os.getpid()}").write_bytes(b"half")  # another build is about to end
    assert horovod_build.cached(recipe) is None
    wheel.write_bytes(b"")
    assert main(["install-horovod", "--wheel-only"]) == 0
    assert capsys.readouterr().out.strip() == str(wheel)
    assert main(["install-horovod", "--wheel-only", "--without-mpi"]) == 2, "that wheel is another one"
    assert "lacks a C++ compiler" in capsys.readouterr().err


def test_what_horovod_says_of_itself_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make` asks the real one, for which torch and TensorFlow are imported."""
    asked: list[str] = []
    done = subprocess.CompletedProcess([], 0, "Gloo MPI\n", "")

    def ask(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(argv[-1])
        return done

    monkeypatch.setattr(subprocess, "run", ask)
    assert horovod_build.check(RECIPE) == f"{RECIPE}: installed, and each can be imported"
    assert [code.split()[1] for code in asked] == ["horovod.torch", "horovod.tensorflow"]
    done.stdout = "Gloo\n"
    with pytest.raises(DistError, match="lacks MPI for torch"):
        horovod_build.check(RECIPE)
    assert "without MPI" in horovod_build.check(dataclasses.replace(RECIPE, mpi=None))
    done.returncode, done.stderr = 1, "ImportError: no such symbol"
    with pytest.raises(DistError, match=r"lacks torch:(.|\n)*no such symbol"):
        horovod_build.check(RECIPE)


@pytest.mark.needs("horovod", "torch")
def test_the_installed_one_is_asked() -> None:
    mpi = "Open MPI" if "mpi" in fast_horovodrun.built_with() else None
    assert "can be imported" in horovod_build.check(dataclasses.replace(RECIPE, tensorflow=None, mpi=mpi))
    if mpi is None:
        with pytest.raises(DistError, match="lacks MPI for torch"):
            horovod_build.check(dataclasses.replace(RECIPE, tensorflow=None))
