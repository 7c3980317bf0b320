"""What the backend `azureml` would send, and what it refuses before anything costs."""

from __future__ import annotations

import dataclasses
import datetime
import json
import urllib.parse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.backends.azureml import environments
from jupyter_dist.backends.azureml.backend import AzureMl
from jupyter_dist.backends.azureml.environments import anonymous, environment_of
from jupyter_dist.backends.azureml.jobs import read
from jupyter_dist.backends.azureml.mailbox_access import MailboxAccess, life_of
from jupyter_dist.backends.azureml.options import AzureMlOptions
from jupyter_dist.backends.azureml.request import command_job
from jupyter_dist.backends.azureml.sweep_request import check_search, parameters_of, sweep_job
from jupyter_dist.backends.azureml.workspace import MlWorkspace, WorkspaceId
from jupyter_dist.backends.platform_entrypoint import place_of
from jupyter_dist.errors import InputError
from jupyter_dist.flags import flags_of, written
from jupyter_dist.options import RunOptions
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.search.notation import read_dimension
from jupyter_dist.search.spec import Search
from tests.rigs.run_maker import RunMaker

pytestmark = pytest.mark.needs("azure.identity", "azure.storage.blob")

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "azureml_requests.json").read_text())
WORKSPACE = GOLDEN["workspace"]
PLACE = "--backend azureml --subscription 1 --resource-group rg --workspace ws"
LINE = f"{PLACE} --compute cpu-cluster --environment train:3"
TUNED = f"{LINE} --tune x=uniform(0,1) --objective min:loss"


@pytest.fixture(autouse=True)
def no_workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The developer's own is none of the tests'."""
    for name in ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME"):
        monkeypatch.delenv(f"AZUREML_ARM_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", sorted(GOLDEN["cases"]))
def test_a_job_is_asked_for_as_azure_s_own_sdk_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "sys", SimpleNamespace(version_info=(3, 11)))  # as in that file
    case = GOLDEN["cases"][name]
    asked, code = AzureMlOptions(**case["options"]), f"{WORKSPACE}/codes/GUID/versions/1"
    ours = command_job(asked, "name", int(asked.ranks or 1), WORKSPACE, code, longest_s=case.get("longest_s"))
    theirs: dict[str, Any] = case["requests"][-1]["body"]["properties"]
    assert ours["properties"].pop("command").startswith("python jupyter_dist_host.py")
    del theirs["command"], theirs["properties"], theirs["resources"]["properties"]
    assert ours["properties"] == theirs
    made = anonymous(asked)
    if made is not None:
        (put,) = [each for each in case["requests"] if "/environments/" in each["path"]]
        assert put["path"] == environment_of(asked, WORKSPACE)
        assert put["body"] == made[1]


@pytest.mark.parametrize(
    ("identity", "timeout_s", "limit"),
    [
        (None, None, "PT168H"),
        (None, 3600.0, "PT1H10M"),
        ("managed", None, None),
        ("managed", 1e6, "PT277H56M40S"),
    ],
)
def test_no_job_outlasts_the_signature_that_its_hosts_write_by(
    tmp_path: Path, identity: str | None, timeout_s: float | None, limit: str | None
) -> None:
    """An identity has no end. A sweep's limit is that of all of its trials."""
    where = {"subscription": "1", "resource_group": "rg", "workspace": "ws"}
    asked = AzureMlOptions(**where, compute="c", environment="e:1", identity=identity)
    run = RunMaker(tmp_path, 1, options=asked.model_dump(mode="json"))
    trial = dataclasses.replace(run.job, max_restarts=1)
    search = Search(
        space={"x": read_dimension("uniform(0,1)")},
        metric="loss",
        goal="min",
        max_jobs=2,
        parallel=1,
        strategy="random",
    )
    platform = AzureMl.extensions.search
    assert platform is not None
    assert platform.request is not None
    sweep = platform.request(search, trial, timeout_s)
    job = AzureMl().request(dataclasses.replace(run.job, timeout_s=timeout_s))
    for told in (sweep, job):
        assert told["body"]["properties"].get("limits", {}).get("timeout") == limit


@pytest.mark.parametrize("name", sorted(GOLDEN["sweeps"]))
def test_a_sweep_is_asked_for_as_azure_s_own_sdk_does(name: str) -> None:
    case = GOLDEN["sweeps"][name]
    asked, code = AzureMlOptions(**case["options"]), f"{WORKSPACE}/codes/GUID/versions/1"
    about = {"goal": "min", "metric": "loss", **case["search"]}
    policy = about.pop("policy", None)
    space = {key: read_dimension(text) for key, text in about.pop("tune").items()}
    search = Search(space=space, early_stopping=policy is not None, policy=policy, **about)
    check_search(search)
    longest_s = case.get("longest_s")
    ours = sweep_job(search, asked, "name", int(asked.ranks or 1), WORKSPACE, code, longest_s=longest_s)
    theirs: dict[str, Any] = case["request"]["body"]["properties"]
    command = theirs["trial"].pop("command")
    # Where ours begins, in place of the script, and where the values begin differs by design.
    mine = ours["properties"]["trial"].pop("command").replace("jupyter_dist_host.py", "run.py")
    assert sorted(mine.replace(" -- ", " ").split()) == sorted(command.split())
    for told in (theirs, theirs["resources"], theirs["trial"]["resources"]):
        del told["properties"]
    assert ours["properties"] == theirs


@pytest.mark.parametrize(
    ("line", "given", "rest"),
    [
        ("--early-stopping", "on", ()),
        ("--early-stopping --np 2", "on", ()),
        ("--early-stopping train.py", "on", ("train.py",)),
        ("--early-stopping median train.py", "median", ("train.py",)),
        ("--early-stopping 'bandit(slack_amount=2)'", "bandit(slack_amount=2)", ()),
        ("--early-stopping=truncation", "truncation", ()),
    ],
)
def test_a_policy_may_stand_behind_early_stopping(line: str, given: str, rest: tuple[str, ...]) -> None:
    found = read_command_line(line)
    assert (found.given["early_stopping"], found.rest) == (given, rest)
    assert written(flags_of(RunOptions), {"early_stopping": given})[1:] == ([] if given == "on" else [given])


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("worst", "needs bandit(slack_factor=0.1), median, truncation(truncation_percentage=20)"),
        ("bandit(slack_factor=1", "needs bandit(slack_factor=0.1)"),
        ("bandit(slack_factor=1,slack_amount=1)", "bandit needs slack_factor or slack_amount"),
        ("bandit(slack_factor=0)", "slack_factor must be a number above 0, got '0'"),
        (
            "median(slack_factor=1)",
            "median has no parameter 'slack_factor'. "
            "Its parameters are evaluation_interval, delay_evaluation",
        ),
        ("median(evaluation_interval=0)", "a whole number of at least 1"),
        ("median(delay_evaluation=1,delay_evaluation=2)", "twice"),
        ("truncation(truncation_percentage=100)", "a whole number from 1 to 99"),
    ],
)
def test_what_is_no_policy(policy: str, told: str) -> None:
    given = {"np": 1, "tune": {"x": "choice(1,2)"}, "objective": "min:loss", "early_stopping": policy}
    with pytest.raises(InputError) as refused:
        make_plan(given)
    assert told in str(refused.value)


@pytest.mark.needs("optuna")
def test_other_backends_have_one_rule() -> None:
    line = "-np 1 --tune x=uniform(0,1) --objective min:loss --early-stopping median"
    with pytest.raises(
        InputError, match=r"median works only with the backend 'azureml'\. Other backends have one"
    ):
        make_plan(read_command_line(line).given)


@pytest.mark.parametrize(
    ("tune", "strategy", "told", "value"),
    [
        ("loguniform(1e-5,1e-1)", "bayesian", -3.0, 1e-3),
        ("loguniform(1e-5,1e-1)", "random", "0.001", 1e-3),
        ("uniform(0,1)", "random", 1.0000001, 1.0),
        ("int(8,512,log=True)", "bayesian", 1.5, 32),
        ("int(1,8)", "bayesian", 3.0, 3),
        ("qrandint(32,256,32)", "random", 64.0, 64),
        ("quniform(0,1,0.1)", "random", 0.1 + 0.2, 0.30000000000000004),
        ("choice(32,64)", "random", "64", 64),
        ("choice(32,64)", "random", 64.0, 64),
        ("choice(True,None,sgd)", "grid", "None", None),
    ],
)
def test_what_a_sweep_has_chosen(tune: str, strategy: Any, told: Any, value: Any) -> None:
    search = Search({"x": read_dimension(tune)}, "min", "loss", 4, 2, strategy)
    (sent,) = sweep_job(search, AzureMlOptions(compute="c", environment="e:1"), "n", 1, WORKSPACE, "c")[
        "properties"
    ]["searchSpace"]
    found = parameters_of(search, {sent: told})["x"]
    assert found == pytest.approx(value) if isinstance(value, float) else found == value
    assert type(found) is type(value)


def test_the_inputs_are_handed_to_the_program() -> None:
    asked = AzureMlOptions(**GOLDEN["cases"]["inputs"]["options"])
    command = command_job(asked, "n", 2, WORKSPACE, "c")["properties"]["command"]
    names = ("asset", "labels", "train")
    assert command == "python jupyter_dist_host.py" + "".join(f" '{n}=${{{{inputs.{n}}}}}'" for n in names)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{PLACE} --environment train:1", "needs --compute"),
        (f"{PLACE} --compute c", "needs --environment"),
        (
            "--backend azureml --workspace ws --compute c",
            "--subscription --resource-group. Or download config.json",
        ),
        (
            f"{LINE} --instance-type Standard_NC6",
            "works only with serverless compute, but --compute is 'cpu-cluster'",
        ),
        (f"{LINE} --spot", "--spot works only with serverless"),
        (f"{LINE} --distribution mpi --instance-count 2 -np 3", "not a multiple of 2. Use -np 4"),
        (f"{LINE} --distribution smddp", "pytorch, mpi"),
        (f"{LINE} --instance-count 2 --processes-per-host 3 -np 4", "is 2 ranks on each"),
        (f"{LINE} --ps 1 -np 1", "leaves no rank for a worker"),
        (f"{LINE} --input train=s3://bucket", "azureml:NAME:VERSION"),
        (f"{LINE} --input train=azureml:a:1,mode=copy", "mode is one of ro_mount"),
        (f"{LINE} --input my-data=azureml:a:1", "letters, digits and '_'"),
        (f"{PLACE} --compute c --environment a/b", "NAME:VERSION or azureml://"),
        (f"{LINE} --shm-size lots", "such as 16g"),
        (f"{LINE} --account-key abc", "would be readable in the notebook by everybody"),
        (f"{LINE} --vm-size x", "is called --instance-type here"),
        (f"{TUNED} --strategy hyperband", "does not support --strategy hyperband. Use random"),
        (f"{TUNED} --early-stopping", "cannot end trials early with --strategy bayesian"),
        (f"{TUNED} --seed 3", "supports --seed only with --strategy random"),
        (f"{TUNED} --warm-start R", "Remove --warm-start"),
        (f"{TUNED} --max-jobs 2000", "a sweep job has at most 1,000 trials"),
        (f"""{TUNED} --tune "y=choice(1,'1')" """, "two of these values are the same text"),
        (f"{TUNED} --strategy random --early-stopping bandit", "slack_factor or slack_amount"),
    ],
)
def test_what_is_refused(line: str, told: str) -> None:
    with pytest.raises(InputError) as refused:
        make_plan(read_command_line(line).given)
    assert told in str(refused.value)


def test_the_workspace_is_that_of_config_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the notebook's folder, as the studio gives it out."""
    told = {"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}
    (tmp_path / ".azureml").mkdir()
    (tmp_path / ".azureml" / "config.json").write_text(json.dumps(told))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    plan = make_plan(read_command_line("--backend azureml --compute c --environment train:1").given)
    assert plan.warnings == ()
    monkeypatch.setenv("AZUREML_ARM_SUBSCRIPTION", "s")
    (tmp_path / ".azureml" / "config.json").write_text("{")
    with pytest.raises(InputError, match="needs a workspace"):
        make_plan(read_command_line("--backend azureml --compute c --environment train:1").given)


def test_no_machine_is_idle() -> None:
    asked = AzureMlOptions(compute="c", environment="e:1", instance_count=3)
    assert asked.host_list(2) == [{"name": "node-0", "slots": 1}, {"name": "node-1", "slots": 1}]
    assert asked.host_list(7) == [{"name": f"node-{node}", "slots": 3} for node in range(3)]
    assert command_job(asked, "n", 2, WORKSPACE, "c")["properties"]["resources"]["instanceCount"] == 2


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"NODE_RANK": "1", "RANK": "1", "LOCAL_RANK": "0"}, (1, 0)),
        ({"TF_CONFIG": '{"cluster": {}, "task": {"type": "worker", "index": 1}}'}, (1, 0)),
        (
            {"TF_CONFIG": '{"cluster": {"worker": ["a", "b"]}, "task": {"type": "ps", "index": 0}}'},
            (2, 0),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "NODE_RANK": "0",
            },
            (1, 1),
        ),
    ],
)
def test_a_process_knows_its_place(environ: dict[str, str], place: tuple[int, int]) -> None:
    assert place_of(environ) == place


@pytest.mark.parametrize(
    ("status", "ended", "stopped"),
    [("Queued", False, False), ("Running", False, False), ("Canceled", True, True), ("Failed", True, False)],
)
def test_how_a_job_stands(status: str, ended: bool, stopped: bool) -> None:
    about = {"status": status, "resources": {"instanceCount": 2}, "computeId": "/x/computes/big"}
    seen = read({"name": "j", "properties": about}, "https://page")
    assert (seen.ended is not None, seen.stopped) == (ended, stopped)
    assert seen.machines == "2 × big"
    assert seen.page == "https://page"


def test_an_environment_from_a_conda_file(tmp_path: Path) -> None:
    file = tmp_path / "env.yml"
    given = {"compute": "c", "conda_file": str(file), "image": "mine:1"}
    with pytest.raises(InputError, match=r"--conda-file: .* cannot be read"):
        anonymous(AzureMlOptions(**given))
    file.write_text("name: x\n")
    with pytest.raises(InputError, match="has no dependencies"):
        anonymous(AzureMlOptions(**given))
    file.write_text("dependencies:\n- python=3.11\n")
    made = anonymous(AzureMlOptions(**given))
    assert made is not None
    assert made[1]["properties"]["condaFile"] == file.read_text()
    assert made[1]["properties"]["image"] == "mine:1"
    file.write_text("dependencies:\n- python=3.12\n")
    assert anonymous(AzureMlOptions(**given)) != made, "another version"
    odd = anonymous(AzureMlOptions(compute="c", pip=["a[b]>=2", "x @ git+https://h/r#egg=x: y"]))
    assert odd is not None
    packages = odd[1]["properties"]["condaFile"].partition("pip:\n")[2].splitlines()[:2]
    assert packages == ["  - a[b]>=2", '  - "x @ git+https://h/r#egg=x: y"']
    with pytest.raises(InputError, match=r"password or a token.*write --conda-file FILE") as refused:
        make_plan(read_command_line("--backend azureml --pip git+https://ada:s3cr3t@host/repository").given)
    assert "s3cr3t" not in str(refused.value)
    with pytest.raises(InputError, match="--environment cannot be combined with --pip"):
        make_plan(read_command_line(f"{LINE} --pip torch").given)


def test_a_machine_without_a_workspace_is_not_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME"):
        monkeypatch.delenv(f"AZUREML_ARM_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    found = AzureMl().detect()
    # What somebody writes as options is not denied.
    assert found["no_site"].startswith(f"The folder {str(tmp_path)!r} and its parents have no config.json")
    assert "workspace" not in found
    told = {"subscription_id": "s", "resource_group": "g", "workspace_name": "mine"}
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = AzureMl().detect()
    assert found["workspace"] == "mine"
    assert "no_site" not in found


def test_a_datastore_without_a_key_has_hosts_sign_by_the_user_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the client library's own method. The key is valid by a clock that differs by some minutes."""
    from azure.storage.blob._generated.operations import ServiceOperations

    asked: list[datetime.datetime] = []

    def answer(self: Any, key_info: Any, **_: Any) -> SimpleNamespace:
        times = (key_info.start, key_info.expiry)
        asked[:] = [datetime.datetime.fromisoformat(f"{told[:19]}+00:00") for told in times]
        named = dict.fromkeys(("signed_oid", "signed_tid", "signed_service", "signed_version"), "x")
        key = SimpleNamespace(**named, signed_start=asked[0], signed_expiry=asked[1], value="bm9uZQ==")
        key.signed_delegated_user_tid = None
        return key

    about: dict[str, Any] = {"datastoreType": "AzureBlob", "endpoint": "core.windows.net"}
    about |= {"accountName": "acct", "containerName": "c", "credentials": {"credentialsType": "None"}}
    monkeypatch.setattr(ServiceOperations, "get_user_delegation_key", answer)
    monkeypatch.setattr(MlWorkspace, "other", lambda *_: {"properties": about})
    monkeypatch.setattr(MlWorkspace, "credential", lambda _: SimpleNamespace(get_token=None))
    access = MailboxAccess(MlWorkspace(WorkspaceId("1", "rg", "ws")), "workspaceblobstore")
    signature = access.signature()
    now = datetime.datetime.now(datetime.timezone.utc)
    start, expiry = asked
    assert expiry - start <= datetime.timedelta(days=7)
    assert start < now - datetime.timedelta(minutes=5), "a clock that is ahead of Azure's"
    assert expiry < now + datetime.timedelta(days=7, minutes=-5), "likewise"
    life_s = life_of(signature)
    assert life_s == pytest.approx(access.life_s(), abs=60)
    assert urllib.parse.parse_qs(signature)["skoid"] == ["x"]
