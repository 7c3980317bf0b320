"""What the backend `azureml` would send, and what it refuses before anything costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.host_entry import place_of
from jupyter_dist.backends.on_azureml.azureml_options import AzureMlOptions
from jupyter_dist.backends.on_azureml.command_jobs import read
from jupyter_dist.backends.on_azureml.command_request import command_job, host_list
from jupyter_dist.errors import InputError
from jupyter_dist.plan.planning import make_plan, read_command_line

pytestmark = pytest.mark.needs("azure.identity", "azure.storage.blob")

GOLDEN = json.loads((Path(__file__).parent / "golden" / "azureml_requests.json").read_text())
WORKSPACE = GOLDEN["workspace"]
PLACE = "--backend azureml --subscription 1 --resource-group rg --workspace ws"
LINE = f"{PLACE} --compute cpu-cluster --environment train:3"


@pytest.fixture(autouse=True)
def no_workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The developer's own is none of the tests'."""
    for name in ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME"):
        monkeypatch.delenv(f"AZUREML_ARM_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", sorted(GOLDEN["cases"]))
def test_a_job_is_asked_for_as_azure_s_own_sdk_does(name: str) -> None:
    case = GOLDEN["cases"][name]
    asked, code = AzureMlOptions(**case["options"]), f"{WORKSPACE}/codes/GUID/versions/1"
    ours = command_job(asked, "name", int(asked.ranks or 1), WORKSPACE, code, longest_s=case.get("longest_s"))
    theirs: dict[str, Any] = case["requests"][-1]["body"]["properties"]
    assert ours["properties"].pop("command").startswith("python jupyter_dist_host.py")
    del theirs["command"], theirs["properties"], theirs["resources"]["properties"]
    assert ours["properties"] == theirs


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
        ("--backend azureml --workspace ws --compute c", "--subscription --resource-group; or a config.json"),
        (f"{LINE} --instance-type Standard_NC6", "for serverless compute, and the machines of 'cpu-cluster'"),
        (f"{LINE} --spot", "--spot is for serverless"),
        (f"{LINE} --distribution mpi --instance-count 2 -np 3", "not 2 times anything: -np 4"),
        (f"{LINE} --distribution smddp", "pytorch, mpi"),
        (f"{LINE} --instance-count 2 --processes-per-host 3 -np 4", "is 2 ranks on each"),
        (f"{LINE} --ps 1 -np 1", "leaves no rank for a worker"),
        (f"{LINE} --input train=s3://bucket", "azureml:NAME:VERSION"),
        (f"{LINE} --input train=azureml:a:1,mode=copy", "mode is one of ro_mount"),
        (f"{LINE} --input my-data=azureml:a:1", "letters, digits and '_'"),
        (f"{PLACE} --compute c --environment a/b", "NAME:VERSION or azureml://"),
        (f"{LINE} --shm-size lots", "such as 16g"),
        (f"{LINE} --account-key abc", "for everybody to read"),
        (f"{LINE} --vm-size x", "is --instance-type here"),
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
    assert host_list(asked, 2) == [{"name": "node-0", "slots": 1}, {"name": "node-1", "slots": 1}]
    assert host_list(asked, 7) == [{"name": f"node-{node}", "slots": 3} for node in range(3)]
    assert command_job(asked, "n", 2, WORKSPACE, "c")["properties"]["resources"]["instanceCount"] == 2


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"NODE_RANK": "1", "RANK": "1", "LOCAL_RANK": "0"}, (1, 0)),
        ({"TF_CONFIG": '{"cluster": {}, "task": {"type": "worker", "index": 1}}'}, (1, 0)),
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
