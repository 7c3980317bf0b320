"""Flags from models, and one clear message for each that cannot be used."""

from __future__ import annotations

import contextlib
import enum
import inspect
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

import jupyter_dist
from jupyter_dist import backends, clusters
from jupyter_dist import flags as _flags
from jupyter_dist.backends import Capabilities
from jupyter_dist.errors import InputError, MissingEngine, UnknownBackend
from jupyter_dist.flags import build, flags_of, problems_of, scan, split_line
from jupyter_dist.host_list import Host, parse_hosts, read_hostfile
from jupyter_dist.job import Job
from jupyter_dist.launch import submission
from jupyter_dist.magics import _expander
from jupyter_dist.options import OF_SESSION, RunOptions
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.search.dimensions import Real
from jupyter_dist.search.spec import Search
from jupyter_dist.start import function


class Colour(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


class Every(BaseModel):
    """A field of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpus_per_worker: int | None = Field(None, ge=0, description="GPUs")
    ratio: float = Field(0.5, gt=0, le=1)
    name: str = "x"
    fast: bool = True
    slow: bool | None = None
    queue: Literal["long", "short"] = "long"
    colour: Colour = Colour.RED
    tags: list[str] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict)
    node_count: int = Field(1, ge=1, json_schema_extra={"flags": ["-N", "--nodes"]})


def parse(line: str, model: type[BaseModel] = RunOptions) -> Any:
    flags = flags_of(model)
    names = {flag.field: flag.names[0] for flag in flags}
    return build(model, scan(split_line(line), flags).values, names.__getitem__)


def message(line: str, model: type[BaseModel] = RunOptions) -> str:
    with pytest.raises(InputError) as caught:
        parse(line, model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestFlagsOfAModel:
    def test_every_kind_of_field(self) -> None:
        found = parse(
            "--gpus-per-worker 2 --ratio .25 --name 'a b' --no-fast --slow --queue short --colour blue "
            "--tags a --tags=b --labels k=v --labels w=x=y -N 3",
            Every,
        )
        assert found == Every(
            gpus_per_worker=2,
            ratio=0.25,
            name="a b",
            fast=False,
            slow=True,
            queue="short",
            colour=Colour.BLUE,
            tags=["a", "b"],
            labels={"k": "v", "w": "x=y"},
            node_count=3,
        )
        assert parse("", Every) == Every()
        assert parse("--nodes 3", Every).node_count == 3

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("--gpus-per-worker x", "--gpus-per-worker needs a whole number of at least 0, got 'x'"),
            ("--gpus-per-worker 1.5", "--gpus-per-worker needs a whole number of at least 0, got '1.5'"),
            ("--ratio 2", "--ratio can be at most 1, got '2'"),
            ("--ratio 0", "--ratio needs a number"),
            ("--queue middle", "--queue needs one of long, short, got 'middle'"),
            ("--colour green", "--colour needs one of red, blue, got 'green'"),
            ("--fast=yes", "--fast accepts no value, got 'yes'. Write --fast alone"),
            ("--labels k", "--labels needs NAME=VALUE, got 'k'"),
            ("--labels k=v --labels w=x --labels k=y", "--labels sets k twice. Write it once"),
            ("--no-name x", "unknown flag '--no-name'; did you mean --name?"),
            ("--nodes 0", "-N needs a whole number of at least 1, got '0'"),
        ],
    )
    def test_what_each_kind_needs(self, line: str, expected: str) -> None:
        assert message(line, Every).startswith(expected)

    @pytest.mark.parametrize("values", [{"tags": ["a", 1]}, {"labels": {"k": 1}}])
    def test_an_item_is_an_error_of_its_option(self, values: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=f"^{next(iter(values))} needs .*, got 1$"):
            build(Every, values, str)
        assert problems_of(Every, values).keys() == values.keys()

    def test_a_value_may_hold_flags_of_something_else(self) -> None:
        for words in (["--name", "--bind-to core"], ["--name=--bind-to core"]):
            assert scan(words, flags_of(Every)).values == {"name": "--bind-to core"}
        assert scan(["--name=--oversubscribe"], flags_of(Every)).values == {"name": "--oversubscribe"}
        assert scan(["--name", "-x a=1"], flags_of(Every)).values == {"name": "-x a=1"}
        assert scan(["--name", "--nodes=2 --mpi=pmix"], flags_of(Every)).values == {
            "name": "--nodes=2 --mpi=pmix"
        }
        with pytest.raises(InputError, match="begins with a dash as '--name=--oversubscribe'"):
            scan(["--name", "--oversubscribe"], flags_of(Every))

    def test_a_word_is_no_flag(self) -> None:
        found = scan(["-np", "2", "a", "--", "--cold"], flags_of(RunOptions))
        assert found.values == {"np": "2"}
        assert found.rest == ("a", "--cold")

    def test_the_first_word_can_end_the_flags(self) -> None:
        found = scan(["-np", "2", "a.py", "--cold"], flags_of(RunOptions), first_word_ends=True)
        assert found.values == {"np": "2"}
        assert found.rest == ("a.py", "--cold")

    @pytest.mark.parametrize(
        ("before", "backend"),
        [
            ("-np 2", "local"),
            ("--backend torchrun", "torchrun"),
            ("--backend=spark --on-driver", "spark"),
            ("--master local[2] --backend spark", "spark"),
            ("--rdzv_endpoint a:29500 --backend torchrun", "torchrun"),
            ("--blacklist-cooldown-range 1 30 --backend horovod", "horovod"),
            ("--backend horovod --blacklist-cooldown-range 1,30", "horovod"),
            ("--hierarchical-allreduce --backend horovod", "horovod"),
            ("-np 2 --", "local"),
        ],
    )
    @pytest.mark.parametrize("own", ["--backend nccl", "--cluster gpu-farm", "--backend=gloo -np 7"])
    def test_a_scripts_own_flags_choose_no_backend(self, before: str, backend: str, own: str) -> None:
        found = read_command_line(shlex.split(f"{before} train.py {own}"), first_word_ends=True)
        assert found.backend.name == backend
        assert found.rest == ("train.py", *own.split())
        assert found.given.get("cluster") is None

    @pytest.mark.parametrize("own", ["--backend nccl", "--cluster gpu-farm"])
    def test_what_follows_two_dashes_chooses_no_backend(self, own: str) -> None:
        found = read_command_line(f"-np 2 -- {own}")
        assert found.backend.name == "local"
        assert found.rest == tuple(own.split())

    @given(st.lists(st.text(max_size=8), max_size=8))
    def test_any_words_give_values_or_an_input_error(self, words: list[str]) -> None:
        with contextlib.suppress(InputError):
            build(RunOptions, scan(words, flags_of(RunOptions)).values, str)

    @given(st.text(max_size=30))
    def test_any_line_gives_words_or_an_input_error(self, line: str) -> None:
        with contextlib.suppress(InputError):
            assert all(isinstance(word, str) for word in split_line(line))

    @pytest.mark.parametrize("name", ["-np", "--np", "-n"])
    def test_np_by_its_names(self, name: str) -> None:
        assert parse(f"{name} 4").np == 4
        assert parse(f"{name}=4").np == 4


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-np abc", "-np needs a whole number of at least 1, got 'abc'"),
        ("-np 0", "-np needs a whole number of at least 1, got '0'"),
        ("-np -1", "-np needs a whole number of at least 1, got '-1'"),
        ("-np 1.5", "-np needs a whole number of at least 1, got '1.5'"),
        ("-np 99999999", "-np can be at most 65536, got '99999999'"),
        ("-np", "-np needs a value: a whole number of at least 1"),
        ("-np --cold", "-np needs a value: a whole number of at least 1"),
        ("-np 2 --np 3", "-np appears twice. Write it once"),
        ("-np2", "unknown flag '-np2'; did you mean -np?"),
        ("--max-restart 1", "unknown flag '--max-restart'; did you mean --max-restarts?"),
        ("--frobnicate", "unknown flag '--frobnicate'; valid flags: "),
        ("--max-restarts -1", "--max-restarts needs a whole number of at least 0, got '-1'"),
        ("--timeout soon", "--timeout needs a time such as 90, 90s, 10m or 2h, got 'soon'"),
        ("--timeout -5", "--timeout needs a time such as 90, 90s, 10m or 2h, got '-5'"),
        ("--timeout nan", "--timeout needs a time such as 90, 90s, 10m or 2h, got 'nan'"),
        ("--timeout 0", "--timeout needs a time above 0"),
        ("--env K", "--env needs NAME=VALUE, got 'K'"),
        ("--env =v", "--env needs NAME=VALUE, got something else"),
        ("--env 2K=v", "--env needs NAME=VALUE with a name of letters, digits and _, got the name '2K'"),
        ("--env 'A\"B=v'", "--env needs NAME=VALUE with a name of letters, digits and _"),
        ("--env '../x=v'", "--env needs NAME=VALUE with a name of letters, digits and _"),
        ("--env RANK=1", "--env cannot set RANK: jupyter-dist sets it on every rank. Use another name"),
        ("--env JUPYTER_DIST_RUN=x", "--env cannot set JUPYTER_DIST_RUN"),
        ("--out a.b", "--out needs the name of a variable, got 'a.b'"),
        ("--out class", "--out needs the name of a variable, got 'class'"),
        ("--out ../x", "--out needs the name of a variable, got '../x'"),
        ("""--out "it's" """, """--out needs the name of a variable, got "it's\""""),
        ("--metric loss", "--metric needs NAME=REGEX, got 'loss'"),
        ("--metric 'loss=(a'", "--metric 'loss': '(a' is not a regular expression (missing )"),
        ("--metric loss=a", "--metric 'loss': 'a' has 0 groups. Put exactly one"),
        ("--metric 'loss=(a)(b)'", "--metric 'loss': '(a)(b)' has 2 groups. Put exactly one"),
        ("--metric '../x=(a)'", "--metric needs NAME=REGEX with a name that begins with a letter"),
        ("-H a:b", "-H needs hosts such as node1:4,node2:4, got 'a:b'"),
        ("-H a:0", "-H needs hosts such as"),
        ("-H a,,b", "-H needs hosts such as"),
        ("-H a,a:2", "-H names the host 'a' twice"),
        ("-H '-oProxyCommand=x'", "-H needs"),
        ("-H=-oProxyCommand=x", "-H needs hosts such as"),
        ("--ship-modules ../x", "--ship-modules needs auto, none or names of modules such as"),
        ("-np 'abc", 'cannot read "-np \'abc": a quote is not closed'),
        ("-np abc\\", "cannot read '-np abc\\\\': it ends in a lone backslash"),
    ],
)
def test_each_bad_flag_has_one_clear_message(line: str, expected: str) -> None:
    assert message(line).startswith(expected)


def test_a_value_without_a_name_is_not_repeated() -> None:
    """Who forgets the name of a variable must not find its secret in the notebook."""
    assert "s3cr3t-!" not in message("--env s3cr3t-!")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (".5", 0.5)]
)
def test_times(text: str, seconds: float) -> None:
    assert parse(f"--timeout {text}").timeout == seconds


def test_values_as_given() -> None:
    found = parse("--env A=1 --env B='x y=z' --env C= --metric 'loss=loss: ([0-9.]+)' --stall-timeout 0")
    assert found.env == {"A": "1", "B": "x y=z", "C": ""}
    assert found.metric == {"loss": "loss: ([0-9.]+)"}
    assert found.stall_timeout == 0
    assert parse("--metric 'train:loss=loss: ([0-9.]+)'").metric == {"train:loss": "loss: ([0-9.]+)"}
    assert parse("--metric 'acc=(?P<step>[0-9]+) (?P<value>[0-9.]+)'").metric
    assert parse("--no-cold").cold is False


def test_names_of_variables_are_those_of_the_code() -> None:
    micro = "\N{MICRO SIGN}"  # Python stores it as the Greek letter
    code: dict[str, Any] = {}
    exec(f"{micro} = 3", code)
    assert parse(f"--out {micro}").out in code
    found = parse(f"--tune {micro}=int(1,3) --objective max:a")
    assert [name in code for name in found.tune] == [True]
    assert _expander(code)(f"{{{micro}}} ${micro}") == "3 3"


def test_attributes_of_variables() -> None:
    expand = _expander({"r": SimpleNamespace(id="7f", best=SimpleNamespace(id="7f-t1")), "stem": "net"})
    assert expand("{r.id} $r.id $r.id-t0 {r.best.id}:transfer") == "7f 7f 7f-t0 7f-t1:transfer"
    assert expand("$stem.pt $stem.format {stem}.pt") == "net.pt net.format net.pt"
    assert expand("{r.none} {stem.format} $none.id {0.id}") == "{r.none} {stem.format} $none.id {0.id}"


def test_hosts(tmp_path: Path) -> None:
    assert parse_hosts("a:4,b") == (Host("a", 4), Host("b", 1))
    assert parse_hosts("10.0.0.1:2,[fe80::1]:3") == (Host("10.0.0.1", 2), Host("[fe80::1]", 3))
    assert parse_hosts("me@a:2,Me.Too@[fd00::1]") == (Host("me@a", 2), Host("Me.Too@[fd00::1]", 1))
    file = tmp_path / "hosts"
    file.write_text("# ours\n\nnode1 slots=4 max_slots=8\nnode2:2\nnode3\n")
    assert read_hostfile(str(file)) == (Host("node1", 4), Host("node2", 2), Host("node3", 1))
    file.write_text("a\nb slots = 2\na\nme@[fd00::1] slots=3\n")
    assert read_hostfile(str(file)) == (Host("a", 2), Host("b", 2), Host("me@[fd00::1]", 3))
    for line in ("no/de", "node slot=4", "node 4", "node slots=0", "a:2 slots=3", "a,b"):
        file.write_text(f"node1 slots=4\n{line}\n")
        with pytest.raises(ValueError, match=f"line 2: expected `NAME slots=N`, got '{line}'"):
            read_hostfile(str(file))
    file.write_text("\n")
    with pytest.raises(ValueError, match="names no host"):
        read_hostfile(str(file))
    with pytest.raises(ValueError, match="cannot read '/nowhere': No such file"):
        read_hostfile("/nowhere")
    with pytest.raises(ValueError, match="cannot read '~nobody-here/hosts': this machine has no such user"):
        read_hostfile("~nobody-here/hosts")


@pytest.mark.needs("horovod", "torch")
def test_every_flag_is_explained_and_none_means_two_things() -> None:
    common = flags_of(RunOptions)
    for name in backends.names():
        every = [*common, *flags_of(backends.load(name).options)]
        names = [n for flag in every for n in flag.names]
        assert len(names) == len(set(names))
        fields = [flag.field for flag in every]
        assert len(fields) == len(set(fields))
        assert [flag.names for flag in every if not flag.help.strip()] == []


class OtherOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    queue: str = Field("short", description="A queue")
    hosts: list[dict[str, Any]] = Field(default_factory=list, json_schema_extra={"flags": []})


class Other:
    """A backend that takes hosts and has a flag of its own."""

    name: ClassVar[str] = "other"
    options = OtherOptions
    capabilities = Capabilities(hosts=True, restarts=False)

    def default_np(self) -> int:
        return 3

    def check(self, world_size: int, options: dict[str, Any]) -> list[str]:
        return [f"checked {world_size} {options['queue']}"]


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = backends.load

    def load(name: str) -> Any:
        if name == "absent":
            raise MissingEngine("backend 'absent' needs Absent: pip install absent")
        return Other() if name == "other" else real(name)

    monkeypatch.setattr(backends, "load", load)
    classes = backends.declared
    monkeypatch.setattr(backends, "declared", lambda name: Other if name == "other" else classes(name))
    monkeypatch.setattr(backends, "names", lambda: ["absent", "local", "other"])


def plan_of(line: str) -> Any:
    return make_plan(read_command_line(line).given)


@pytest.mark.usefixtures("other")
class TestPlan:
    def test_defaults(self) -> None:
        plan = plan_of("")
        assert (plan.backend.name, plan.world_size) == ("local", plan.backend.default_np())
        assert plan_of("--backend other").world_size == 3

    def test_a_backends_own_flag(self) -> None:
        plan = plan_of("--queue long --backend other")
        assert plan.options.queue == "long"
        assert plan.warnings == ("checked 3 long",)

    def test_another_backends_flag(self) -> None:
        with pytest.raises(
            InputError,
            match=r"^--queue is a flag of the backend 'other', but the backend here is 'local'\. "
            r"Remove the flag, or write --backend other$",
        ):
            plan_of("--queue long")

    def test_unknown_backend_lists_the_known(self) -> None:
        with pytest.raises(UnknownBackend, match=r"no backend 'locl'.* Did you mean 'local'"):
            plan_of("--backend locl")

    def test_missing_engine(self) -> None:
        with pytest.raises(MissingEngine, match="pip install absent"):
            plan_of("--backend absent -np 2")

    def test_hosts_where_there_is_only_this_machine(self) -> None:
        with pytest.raises(
            InputError,
            match=r"^-H cannot be used with the backend 'local', which runs on this machine only\. "
            r"Backends with hosts: other$",
        ):
            plan_of("-H a:4,b:4")

    def test_hosts(self, tmp_path: Path) -> None:
        plan = plan_of("--backend other -H a:4,b:2")
        assert plan.world_size == 6
        assert plan.options.hosts == [{"name": "a", "slots": 4}, {"name": "b", "slots": 2}]
        assert plan_of("--backend other -H a:4 -np 2").world_size == 2
        with pytest.raises(InputError, match="-np 9 needs more slots than the 4 of the hosts"):
            plan_of("--backend other -H a:4 -np 9")
        file = tmp_path / "hosts"
        file.write_text("c slots=2\n")
        assert plan_of(f"--backend other --hostfile {file}").world_size == 2
        with pytest.raises(InputError, match=r"-H and --hostfile both name the hosts\. Use only one"):
            plan_of(f"--backend other -H a --hostfile {file}")
        with pytest.raises(InputError, match=r"^--hostfile cannot read '/nowhere'"):
            plan_of("--backend other --hostfile /nowhere")

    def test_restarts_only_where_the_backend_can(self) -> None:
        with pytest.raises(InputError, match="--max-restarts: the backend 'other' cannot restart"):
            plan_of("--backend other --max-restarts 1")

    def test_from_python_errors_name_the_parameter(self) -> None:
        with pytest.raises(InputError, match=r"^np needs a whole number of at least 1, got 'abc'$"):
            make_plan({"np": "abc"}, spelled_as_flags=False)
        with pytest.raises(InputError, match="'queu' is not an option here; did you mean 'queue'"):
            make_plan({"backend": "other", "queu": "x"}, spelled_as_flags=False)

    def test_flags_beat_the_cluster_which_beats_the_default(self) -> None:
        clusters.add(
            clusters.Cluster("big", "other", {"np": 4, "queue": "long", "env": {"A": "1", "B": "1"}})
        )
        clusters.add(clusters.Cluster("small", "other", {"np": 1}))
        plan = plan_of("--cluster big")
        assert (plan.backend.name, plan.world_size, plan.options.queue) == ("other", 4, "long")
        plan = plan_of("--cluster big -np 2 --queue short --env B=2")
        assert (plan.world_size, plan.options.queue, plan.run.env) == (2, "short", {"A": "1", "B": "2"})
        try:
            clusters.use("small")
            assert plan_of("").world_size == 1
            assert plan_of("-np 5").world_size == 5
            assert plan_of("--cluster big").world_size == 4
            scaled = plan_of("--scaling 1,3")
            assert (scaled.run.np, scaled.search and scaled.search.sizes) == (None, (1, 3))
            # A cluster of another backend has nothing to say.
            assert plan_of("--backend local").backend.name == "local"
        finally:
            clusters.use(None)

    def test_a_cluster_and_another_backend(self) -> None:
        clusters.add(clusters.Cluster("big", "other", {}))
        with pytest.raises(
            InputError, match=r"cluster 'big' uses the backend 'other', not 'local'\. Name only"
        ):
            plan_of("--cluster big --backend local")

    def test_notebook_variables_but_not_in_a_regex(self) -> None:
        line = read_command_line(
            "--backend $b -np {n} --metric 'x={n}([0-9]{2})'",
            expand=lambda text: text.replace("{n}", "5").replace("$b", "other"),
        )
        assert line.backend.name == "other"
        assert line.given == {"backend": "other", "np": "5", "metric": {"x": "{n}([0-9]{2})"}}


def test_messages_are_one_line_and_short() -> None:
    assert len(_flags.shown("x" * 1000)) < 80
    assert "\n" not in _flags.shown("a\nb")


NOT_FROM_PYTHON = {"out", "dry_run", "hostfile", *OF_SESSION}
"""Flags that are nothing to say in a call: its value is the run, and `hosts` may be any string.

A call in a session is `jupyter_dist.session().run`.
"""


def test_each_option_of_a_run_is_a_keyword_of_run() -> None:
    """With the model's default. A new one stands in the model and in the signature of `jupyter_dist.run`."""
    known = inspect.signature(jupyter_dist.run).parameters
    keywords = {
        name: known[name].default for name in known if name not in ("fn", "args", "options", "kwargs")
    }
    fields = {
        "metrics" if name == "metric" else name: field.get_default(call_default_factory=True) or None
        for name, field in RunOptions.model_fields.items()
        if name not in NOT_FROM_PYTHON
    }
    assert {name: default or None for name, default in keywords.items()} == fields


def test_what_a_call_asks_for_arrives_in_the_options() -> None:
    asked = {
        "np": 3,
        "metrics": {"loss": "loss: (.*)"},
        "stall_timeout": "90s",
        "max_restarts": 0,
        "detach": False,
    }
    assert function._run_options({**asked, "fn": None, "kwargs": {"cold": True}}) == {
        "np": 3,
        "metric": {"loss": "loss: (.*)"},
        "stall_timeout": "90s",
    }


def test_a_supervisor_learns_of_every_option_that_it_needs() -> None:
    """What is kept in a job: each option of a run is there, or is done with before a supervisor starts."""
    run = RunOptions(
        env={"A": "b"},
        metric={"loss": "loss: (.*)"},
        max_restarts=2,
        timeout=60,
        stall_timeout=0,
        np=1,
        kept_displays="all",
        stop_grace="2m",
    )
    job = submission._job(submission.Request("local", 1, "1", run=run), "id", None)
    assert (job.env_names, job.metrics, job.max_restarts) == (("A",), {"loss": "loss: (.*)"}, 2)
    assert (job.timeout_s, job.stall_timeout_s, job.kept_displays) == (60.0, None, "all")
    assert job.stop_grace_s == 120.0
    before = {
        "backend",
        "cluster",
        "np",
        "hosts",
        "hostfile",
        "out",
        "detach",
        "dry_run",
        "ship_modules",
        "no_hint",  # in the payload: only ranks need it
        "pdb",
        "debugpy",
        "cold",
    }
    kept = {"env", "metric", "max_restarts", "timeout", "stop_grace", "stall_timeout", "kept_displays"}
    # Together they are a search, which stands in the job of a tuning run.
    tuning = {"tune", "objective", "max_jobs", "parallel", "strategy", "early_stopping", "warm_start", "seed"}
    tuning |= {"scaling", "steps", "scheduler", "stop_when"}
    names = {"name", "run_tags", "note"}  # in a file of their own, which anybody may change
    assert RunOptions.model_fields.keys() == before | kept | tuning | names | {*OF_SESSION}


def test_the_job_of_a_tuning_run_holds_the_search_and_what_each_trial_is() -> None:
    run = RunOptions(env={"A": "b"}, metric={"loss": "loss: (.*)"}, max_restarts=2, timeout=60)
    search = Search({"lr": Real(0.1, 1.0)}, "min", "loss", 5, 2, "random")
    job = submission._job(submission.Request("local", 3, "1", run=run, search=search), "id", None)
    assert (job.backend, job.where, job.world_size, job.max_restarts) == ("trials", "local", 0, 0)
    # --timeout is for all of it; the values of --env are nowhere.
    assert (job.timeout_s, job.stall_timeout_s, job.env_names) == (60.0, None, ("A",))
    assert job.tuning is not None
    assert Search.from_json(job.tuning["search"]) == search
    trial = Job.from_json(job.tuning["trial"])
    assert (trial.backend, trial.world_size, trial.max_restarts, trial.timeout_s) == ("local", 3, 2, None)
    assert (trial.metrics, trial.stall_timeout_s) == ({"loss": "loss: (.*)"}, 300.0)
    assert Job.from_json(job.to_json()) == job
