"""clusters.toml: comments stay, bad contents are named, nobody else can read it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from jupyter_dist import clusters
from jupyter_dist.clusters import Cluster
from jupyter_dist.errors import InputError, UnknownBackend
from jupyter_dist.options import RunOptions


def write(text: str) -> Path:
    path = clusters.path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clusters.path() == tmp_path / "config" / "jupyter-dist" / "clusters.toml"
    monkeypatch.setenv("JUPYTER_DIST_CLUSTERS", str(tmp_path / "mine.toml"))
    assert clusters.path() == tmp_path / "mine.toml"


def test_there_is_none() -> None:
    assert clusters.load() == {}
    with pytest.raises(InputError, match=r"no cluster 'x'\. None is saved"):
        clusters.get("x")
    assert not clusters.path().exists()


def test_add_get_remove() -> None:
    first = Cluster("gpu-box", "local", {"np": 4, "gpus_per_worker": 1, "env": {"A": 'it\'s "so"\n'}})
    old = os.umask(0)
    try:
        clusters.add(first)
    finally:
        os.umask(old)
    clusters.add(Cluster("Großer.1", "local", {"timeout": 90.0}))
    assert clusters.load() == {"gpu-box": first, "Großer.1": Cluster("Großer.1", "local", {"timeout": 90.0})}
    assert clusters.get("gpu-box") == first
    _, run, options = clusters.validate(first)
    assert isinstance(run, RunOptions)
    assert (run.np, options.model_dump(exclude_defaults=True)) == (4, {"gpus_per_worker": 1})
    assert stat.S_IMODE(clusters.path().stat().st_mode) == 0o600
    assert stat.S_IMODE(clusters.path().parent.stat().st_mode) == 0o700
    clusters.remove("gpu-box")
    assert list(clusters.load()) == ["Großer.1"]
    with pytest.raises(InputError, match="no cluster 'gpu-box'"):
        clusters.remove("gpu-box")


def test_comments_and_order_stay() -> None:
    path = write(
        '# mine\n[clusters.b]\nbackend = "local"  # here\nnp = 2\n\n[clusters.a]\nbackend = "local"\n'
    )
    clusters.add(Cluster("c", "local", {"np": 3}))
    text = path.read_text()
    assert text.startswith('# mine\n[clusters.b]\nbackend = "local"  # here\nnp = 2\n')
    assert list(clusters.load()) == ["b", "a", "c"]
    clusters.remove("c")
    clusters.add(Cluster("b", "local", {"np": 7}), replace=True)
    assert path.read_text().startswith("# mine\n")
    assert clusters.get("b").options == {"np": 7}


@pytest.mark.parametrize(
    "text",
    [
        '[clusters.a]\nbackend = "local"\nformerly = ["z"]\n[other]\nx = 1\n[clusters.b]\nbackend="local"\n',
        'clusters = {a = {backend = "local", formerly = ["z"]}, b = {backend = "local"}}\n',
        '[clusters]\na = {backend = "local", formerly = ["z"]}\nb = {backend = "local"}\n',
        'clusters.a.backend = "local"\nclusters.a.formerly = ["z"]\nclusters.b.backend = "local"\n',
    ],
)
def test_other_forms_of_the_tables_lose_nothing(text: str) -> None:
    a, b = Cluster("a", "local", formerly=("z",)), Cluster("b", "local")
    path = write(text)
    assert clusters.load() == {"a": a, "b": b}
    clusters.add(Cluster("c", "local", {"np": 3}))
    assert clusters.load() == {"a": a, "b": b, "c": Cluster("c", "local", {"np": 3})}
    assert ("[other]\nx = 1\n" in path.read_text()) == ("[other]" in text)
    for change in ({"replace": True}, {"old_name": "a"}):
        path.write_text(text)
        name = "d" if "old_name" in change else "a"
        clusters.add(Cluster(name, "local", {"np": 3}), **change)
        formerly = ("z", "a") if "old_name" in change else ("z",)
        assert clusters.load() == {name: Cluster(name, "local", {"np": 3}, formerly=formerly), "b": b}
    path.write_text(text)
    clusters.remove("a")
    assert clusters.load() == {"b": b}


def test_an_existing_one_is_kept() -> None:
    clusters.add(Cluster("a", "local", {"np": 1}))
    with pytest.raises(InputError, match=r"A cluster 'a' already exists\. Add --replace"):
        clusters.add(Cluster("a", "local", {"np": 2}))
    assert clusters.get("a").options == {"np": 1}


@pytest.mark.parametrize(
    "name",
    ["", "../x", "a/b", "a\nb", 'a"b', "it's", " a", "-a", ".a", "a" * 65, "a\0b", "a]b", "\x1b[31m", "a b"],
)
def test_names_that_cannot_be(name: str) -> None:
    for action in (lambda: clusters.add(Cluster(name, "local")), lambda: clusters.get(name)):
        with pytest.raises(InputError, match="cannot be the name of a cluster") as caught:
            action()
        assert "\n" not in str(caught.value)
        assert "\x1b" not in str(caught.value)
    assert not clusters.path().exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[clusters.a\n", "cannot read the clusters in '{path}': "),
        ("clusters = 3\n", "'{path}': `clusters` must contain tables"),
        ("[clusters.a]\nnp = 2\n", "cluster 'a' in '{path}': needs a line such as backend"),
        ("[clusters]\na = 2\n", "cluster 'a' in '{path}': needs a line such as backend"),
        ('[clusters."../a"]\nbackend = "local"\n', "'{path}': '../a' cannot be the name of a cluster"),
        (
            '[clusters.a]\nbackend = "local"\nformerly = 3\n',
            "cluster 'a' in '{path}': formerly needs a list of names",
        ),
        (
            '[clusters.a]\nbackend = "local"\nnp = "x"\n',
            "cluster 'a' in '{path}': np needs a whole number of at least 1, got 'x'",
        ),
        (
            '[clusters.a]\nbackend = "local"\nnp = 0\n',
            "cluster 'a' in '{path}': np needs a whole number of at least 1, got 0",
        ),
        (
            '[clusters.a]\nbackend = "local"\ngpu_per_worker = 0\n',
            "cluster 'a' in '{path}': 'gpu_per_worker' is not an option here; did you mean 'gpus_per_worker'",
        ),
        (
            '[clusters.a]\nbackend = "local"\nmax_restart = 0\n',
            "cluster 'a' in '{path}': 'max_restart' is not an option here; did you mean 'max_restarts'?",
        ),
        (
            '[clusters.a]\nbackend = "local"\nout = "x"\n',
            "cluster 'a' in '{path}': 'out' belongs to one cell and cannot be saved",
        ),
        (
            '[clusters.a]\nbackend = "local"\nhosts = "a:b"\n',
            "cluster 'a' in '{path}': hosts needs hosts such as",
        ),
    ],
)
def test_bad_contents_are_named_with_the_file(text: str, expected: str) -> None:
    path = write(text)
    with pytest.raises(InputError) as caught:
        clusters.get("a")
    assert str(caught.value).startswith(expected.format(path=path))
    assert path.read_text() == text


def test_an_unknown_backend_in_the_file() -> None:
    write('[clusters.a]\nbackend = "locl"\n')
    with pytest.raises(UnknownBackend, match=r"cluster 'a' in .*no backend 'locl'"):
        clusters.get("a")


def test_a_file_that_is_no_text() -> None:
    path = write("")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read the clusters in"):
        clusters.load()
    with pytest.raises(InputError, match="cannot read the clusters in"):
        clusters.add(Cluster("a", "local"))
    assert path.read_bytes() == b"\xff\xfe\x00"


def test_a_wrong_cluster_is_not_saved() -> None:
    with pytest.raises(InputError, match="np needs a whole number"):
        clusters.add(Cluster("a", "local", {"np": -1}))
    assert clusters.load() == {}


def test_the_nearest_name() -> None:
    clusters.add(Cluster("gpu-box", "local"))
    with pytest.raises(
        InputError, match=r"no cluster 'gpubox'\. Did you mean 'gpu-box'\? There are: gpu-box."
    ):
        clusters.get("gpubox")


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTER_DIST_CLUSTERS", str(tmp_path / "file" / "clusters.toml"))
    with pytest.raises(InputError, match=r"the clusters (to|in) '.*clusters.toml': Not a directory"):
        clusters.add(Cluster("a", "local"))


def test_a_linked_file_is_changed_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "dotfiles" / "clusters.toml"
    real.parent.mkdir()
    real.write_text("# kept\n")
    link = tmp_path / "link.toml"
    link.symlink_to(real)
    monkeypatch.setenv("JUPYTER_DIST_CLUSTERS", str(link))
    clusters.add(Cluster("a", "local"))
    assert link.is_symlink()
    assert real.read_text().startswith("# kept\n")
    assert list(clusters.load()) == ["a"]


@pytest.mark.race
def test_two_at_once_lose_nothing() -> None:
    names = [f"c{i}" for i in range(8)]
    threads = [threading.Thread(target=clusters.add, args=(Cluster(name, "local"),)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(clusters.load()) == names


def test_use() -> None:
    clusters.add(Cluster("a", "local", {"np": 1}))
    assert clusters.used() is None
    with pytest.raises(InputError, match="no cluster 'b'"):
        clusters.use("b")
    clusters.use("a")
    assert clusters.used() == "a"
    clusters.remove("a")
    assert clusters.used() is None


def test_a_backend_is_a_cluster_of_its_own_name() -> None:
    assert clusters.get("local") == Cluster("local", "local")
    clusters.use("local")
    assert clusters.used() == "local"
    assert clusters.load() == {}, "nothing is saved by that"
    clusters.add(Cluster("local", "local", {"np": 3}))
    assert clusters.get("local").options == {"np": 3}
