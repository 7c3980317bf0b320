"""The form of a cluster: what stands open, what it means as a line, what is wrong, what is never saved."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from jupyter_dist import backends, clusters
from jupyter_dist.backends import Form, Options
from jupyter_dist.cluster_form import MOST_OPEN, arranged
from jupyter_dist.clusters import Cluster
from jupyter_dist.errors import InputError
from jupyter_dist.flags import flags_of
from jupyter_dist.manage import cluster_edits
from jupyter_dist.options import NOT_SAVED, RunOptions
from jupyter_dist.plan.form_preview import as_line, meaning
from jupyter_dist.plan.run_plan import read_command_line

HIDDEN = set(NOT_SAVED)


@pytest.mark.parametrize("name", backends.built_in())
def test_a_form_has_each_field_once_and_few_stand_open(name: str) -> None:
    model = backends.declared(name).options
    form = arranged(model, RunOptions, HIDDEN)
    fields = [*form.first, *(field for _, fields in form.sections for field in fields)]
    assert len(fields) == len(set(fields))
    assert set(fields) == {flag.field for flag in (*flags_of(model), *flags_of(RunOptions))} - HIDDEN
    assert len(form.first) == MOST_OPEN, "five fields matter to the backend's users"
    assert "More options" not in dict(form.sections), "each field belongs to a section with a name"


@pytest.mark.parametrize("name", backends.built_in())
def test_a_form_names_no_field_that_is_not_there(name: str) -> None:
    model = backends.declared(name).options
    known = {flag.field for flag in (*flags_of(model), *flags_of(RunOptions))}
    for part in model.__mro__:
        form = vars(part).get("form")
        if isinstance(form, Form):
            said = {
                *form.first,
                *form.places,
                *(field for fields in form.sections.values() for field in fields.split()),
            }
            # A base class may speak of hosts, which a backend below it does not take.
            assert said - known == set()


class Far(Options):
    form: ClassVar[Form] = Form(first=("b", "np"), sections={"Far": "a"})
    a: int = Field(1, title="A")
    b: int = Field(1, title="B")
    c: int = Field(1, title="C")


def test_a_form_of_another_package() -> None:
    assert arranged(Far, RunOptions, HIDDEN).first == ("b", "np")
    assert arranged(Far, RunOptions, HIDDEN).sections[0] == ("Far", ("a",))
    assert arranged(Far, RunOptions, HIDDEN).sections[-1] == ("More options", ("c",))
    assert arranged(Options, RunOptions, {*HIDDEN, "hosts"}).first == ("np",)


@pytest.mark.parametrize(
    ("backend", "options", "line"),
    [
        ("local", {}, "--backend local"),
        ("local", {"np": 3, "timeout": "10m", "share_gpus": True}, "-np 3 --share-gpus --timeout 10m"),
        ("local", {"gpus_per_worker": 0.5, "stall_timeout": 1234567.0}, "--stall-timeout 1234567"),
        (
            "horovod",
            {
                "np": 8,
                "hosts": "a:4,b:4",
                "mpi_args": "--bind-to core",
                "network_interfaces": ["eth0", "ib0"],
            },
            "--backend horovod -np 8 -H a:4,b:4 --mpi-args '--bind-to core' --network-interfaces eth0",
        ),
        ("horovod", {"mpi_args": "--oversubscribe"}, "--mpi-args=--oversubscribe"),
        ("horovod", {"blacklist_cooldown_range": "1 30", "host_discovery_script": "./h"}, "'1 30'"),
        ("torchrun", {"nproc_per_node": "2", "env": {"A": "it's"}}, """--env 'A=it'"'"'s'"""),
        ("spark", {"master": "local[2]", "conf": {"spark.a": "b"}}, "--master 'local[2]' --conf spark.a=b"),
    ],
)
def test_the_line_means_what_the_form_says(backend: str, options: dict[str, Any], line: str) -> None:
    found = meaning(backend, options)
    assert line in str(found["line"])
    read = dict(read_command_line(str(found["line"]).removeprefix("%%distribute ")).given)
    assert read.pop("backend") == backend
    assert _built(backend, read) == _built(backend, options)


def _built(backend: str, options: dict[str, Any]) -> Any:
    _, run, own = clusters.validate(Cluster("x", backend, options))
    return run, own


@settings(max_examples=12)
@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), st.text(max_size=12), max_size=3))
def test_any_text_is_quoted_or_has_no_line(env: dict[str, str]) -> None:
    backend = backends.load("local")
    try:
        _built("local", {"env": env})
    except InputError:
        return
    line = as_line(backend, {"env": env})
    if line is None:
        assert any("\n" in text or "\r" in text for text in env.values())
    else:
        assert "\n" not in line
        assert read_command_line(line.removeprefix("%%distribute ")).given.get("env", {}) == env


def test_every_field_says_what_is_wrong_with_it() -> None:
    found = meaning("horovod", {"np": 0, "min_np": "x", "timeout": "soon", "nonsense": 1})
    assert found["line"] is None
    said = {one["field"]: one["text"] for one in found["problems"]}
    assert said["np"] == "Needs a whole number of at least 1, got 0"
    assert said["min_np"] == "Needs a whole number of at least 1, got 'x'"
    assert said["timeout"].startswith("Needs a time such as 90, 90s, 10m or 2h")
    assert "is not an option here" in said["nonsense"]
    # Of several fields together, beside the one that is named first. The line is there all the same.
    found = meaning("horovod", {"np": 9, "hosts": "a:4,b:4"})
    assert [one["field"] for one in found["problems"]] == ["np"]
    assert found["line"] == "%%distribute --backend horovod -np 9 -H a:4,b:4"
    [needs] = meaning("sagemaker", {})["problems"]
    assert needs["field"] == "role"
    [belongs] = meaning("local", {"detach": True})["problems"]
    assert "belongs to one cell" in belongs["text"]
    [unknown] = meaning("lokal", {})["problems"]
    assert unknown["field"] == "backend"


def test_what_a_cell_would_replace_is_said() -> None:
    found = meaning("local", {"env": {"PLACE": "$HOME/data"}, "metric": {"loss": r"\{loss\} ([0-9.]+)$"}})
    assert str(found["note"]).startswith("A cell replaces $name and {name} in --env with variables")
    assert "replaces" in str(meaning("local", {"env": {"PLACE": "{config.place}"}})["note"])
    assert meaning("local", {"env": {"COST": "5 $"}})["note"] is None


@pytest.mark.parametrize(
    ("backend", "options", "said"),
    [
        ("local", {"env": {"HF_TOKEN": "abc"}}, "--env HF_TOKEN=$variable"),
        ("local", {"env": {"A": "1", "WHATEVER": "AKIAIOSFODNN7EXAMPLE"}}, "WHATEVER looks like a secret"),
        ("sagemaker", {"hyperparameters": {"api_key": "abc"}}, "--hyperparameters api_key=$variable"),
        ("local", {"env": {"DB": "postgres://me:pass@host/db"}}, "DB looks like a secret"),
        ("ssh", {"hosts": "a", "python": "ghp_abcdefghijklmnopqrstuvwxyz0123456789"}, "--python $variable"),
    ],
)
def test_secrets_are_never_saved(backend: str, options: dict[str, Any], said: str) -> None:
    [problem] = meaning(backend, options)["problems"]
    assert said in problem["text"]
    assert meaning(backend, options)["line"] is None
    with pytest.raises(InputError, match="stored as plain text"):
        clusters.add(Cluster("mine", backend, options))
    with pytest.raises(InputError):
        cluster_edits.save("mine", {"backend": backend, "options": options})
    assert not clusters.path().exists()


@pytest.mark.parametrize(
    "env",
    [
        {"TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "512", "OMP_NUM_THREADS": "4"},
        {"GOOGLE_APPLICATION_CREDENTIALS": "~/key.json", "TOKEN_FILE": "/run/token", "USE_AUTH": "false"},
        {"NCCL_SOCKET_IFNAME": "eth0,ib0", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"},
        {"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu:/opt/amazon/openmpi/lib", "HF_HOME": "/data/hf"},
    ],
)
def test_what_is_no_secret_is_saved(env: dict[str, str]) -> None:
    clusters.add(Cluster("mine", "local", {"env": env}))
    assert clusters.load()["mine"].options == {"env": env}


def test_what_installs_an_engine_is_a_cell_where_a_cell_can() -> None:
    assert backends.install_cell("ray") == '%pip install "jupyter-dist[ray]"'
    assert backends.install_cell("horovod") == "%dist install-horovod"
    assert backends.install_cell("mpi") is None
