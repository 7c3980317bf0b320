"""The notebooks do what they say, run as `make demo` runs them."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.azureml import AzurePlane
from tests.rigs.databricks.workspace import DatabricksWorkspace
from tests.rigs.hosts import Hosts
from tests.rigs.kubernetes import control_plane as kube_plane
from tests.rigs.ray.nodes import IN_SHARED, shared_ray
from tests.rigs.sagemaker import SageMakerPlane

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SHOW_ALL = """
import json
points = json.loads(my_run.metrics.to_json(orient="records"))
print("shown:", json.dumps({"state": str(my_run.state), "results": list(my_run.results), "metrics": points}))
"""
PATIENT = f"""
import sys
import time

sys.path.append({str(ROOT)!r})
from jupyter_dist.conformance.ports import take_port
from ray import _raylet
from ray._private import node, services

# Ray gives a node 30 s to start, and its helpers 15 s to say at which ports they listen, or ends it. A busy
# machine takes longer: the ports are said beforehand, and the node is waited for.
def start_raylet(self, *given, **named):
    for which in ("dashboard_agent_listen", "metrics_agent", "metrics_export", "runtime_env_agent"):
        name, port = which + "_port", take_port()
        setattr(self._ray_params, name, port)
        _raylet.persist_port(self._session_dir, self._node_id, name, port)
    return start(self, *given, **named)

def get_node(*given):
    deadline = time.monotonic() + 120
    while True:
        try:
            return ask(*given)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)

start, node.Node.start_raylet = node.Node.start_raylet, start_raylet
ask, services.get_node = services.get_node, get_node
"""


def code_cell(source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "added",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    return {**cell, "source": source}


def execute(notebook: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "run_notebook.py"), str(notebook)],
        capture_output=True,
        text=True,
    )


def run_and_show(name: str, folder: Path, changed: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Execute a copy of the notebook with one more cell, which prints all of its run as JSON.

    `changed`: what is written otherwise in the copy."""
    notebook = json.loads((ROOT / "notebooks" / name).read_text().replace(*changed))
    notebook["cells"].append(code_cell(SHOW_ALL))
    copy = folder / name
    copy.write_text(json.dumps(notebook))
    done = execute(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line for line in done.stdout.splitlines() if line.startswith("shown: ")]
    assert len(shown) == 1, done.stdout
    for rank in (0, 1):
        assert re.search(rf"rank {rank}: .*9\d\.\d%", done.stdout), "each rank's accuracy is printed"
    return dict(json.loads(shown[0].removeprefix("shown: ")))


def check(shown: dict[str, Any], epochs: int) -> None:
    assert shown["state"] == "succeeded"
    assert [result["accuracy"] >= 0.95 for result in shown["results"]] == [True, True]
    assert len({result["weights"] for result in shown["results"]}) == 1
    for rank in (0, 1):
        losses = [p["value"] for p in shown["metrics"] if (p["rank"], p["name"]) == (rank, "loss")]
        assert len(losses) >= epochs
        assert all(math.isfinite(loss) for loss in losses)
        assert losses[-1] < losses[0] / 2
    accuracies = [p["value"] for p in shown["metrics"] if p["name"] == "accuracy"]
    assert max(accuracies) <= 1, "an average over the ranks, not their sum"


@pytest.mark.needs("torch", "sklearn")
def test_quickstart(tmp_path: Path) -> None:
    check(run_and_show("quickstart.ipynb", tmp_path), epochs=15)


@pytest.mark.needs("tensorflow", "sklearn")
def test_tensorflow(tmp_path: Path) -> None:
    check(run_and_show("tensorflow.ipynb", tmp_path), epochs=10)


@pytest.mark.needs("torch", "sklearn")
def test_torchrun_elastic(tmp_path: Path) -> None:
    shown = run_and_show("torchrun-elastic.ipynb", tmp_path)
    check(shown, epochs=12)
    assert [result["began"] for result in shown["results"]] == [4, 4]


@pytest.mark.xdist_group(IN_SHARED)
@pytest.mark.needs("ray", "torch", "sklearn", "matplotlib")
def test_ray(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two nodes, whose Ray says that they have GPUs."""
    with shared_ray(tmp_path_factory) as ray:
        monkeypatch.setenv("RAY_ADDRESS", ray.address)
        on_its_cpus = ("--backend ray -np 2", "--backend ray -np 2 --gpus-per-worker 0")
        check(run_and_show("ray.ipynb", tmp_path, on_its_cpus), epochs=12)


@pytest.mark.xdist_group(kube_plane.IN_SHARED)
@pytest.mark.needs("kubernetes", "torch", "sklearn")
def test_kubernetes(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two pods, on two nodes; the user may do what the Role in the documents says."""
    with kube_plane.shared_plane(tmp_path_factory) as plane, plane.as_user():
        check(run_and_show("kubernetes.ipynb", tmp_path), epochs=15)


@pytest.mark.needs("optuna", "sklearn")
def test_tuning() -> None:
    done = execute(ROOT / "notebooks" / "tuning.ipynb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"'width': \d+\} reads 9\d% of the unseen digits", done.stdout)


@pytest.mark.needs("torch", "transformers")
def test_session() -> None:
    done = execute(ROOT / "notebooks" / "session.ipynb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 1: (tensor(nan, grad_fn=<DivBackward0>), tensor([0]))" in done.stdout, "the planted bug"
    assert re.search(r"last losses: \[0\.\d+, 0\.\d+\]", done.stdout)
    assert "continued: [20, 21, 22, 23, 24, 25, 26, 27]" in done.stdout


@pytest.mark.needs("pandas", "matplotlib", "tqdm")
def test_results_as_a_page(tmp_path: Path) -> None:
    """As HTML, with nobody to ask: tables, pictures, displays, media and bars are there."""
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", "--output-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(ROOT / "notebooks" / "results.ipynb")], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "results.html").read_text()
    text = re.sub(r"<[^>]*>", " ", page)
    for shown in ("mean", "0.915", "part-3", "ndarray 96 × 96 × 3 float32, 0 to 1", "rank 1 says at step 11"):
        assert shown in text, shown
    assert len(re.findall(r"epochs: 100%", text)) == 3, (
        "one line of each rank in the log, and what is printed"
    )
    assert "20/20" not in text, "of bars within others nothing is left"
    assert page.count("data:image/png;base64,") >= 2 + 2 + 1 + 2 * 6
    assert page.count("<path d=") >= 2 * 6, "histograms"


@pytest.mark.needs("tensorflow", "sklearn")
def test_tf_parameter_server() -> None:
    done = execute(ROOT / "notebooks" / "tf-parameter-server.ipynb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this rank serves it as ps 0" in done.stdout
    assert "chief: 9" in done.stdout, "its accuracy is printed"


@pytest.mark.needs("torch", "tensorflow", "sklearn")
def test_ssh_cluster(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On hosts with real sshd, which only their own configuration of ssh knows."""
    text = (ROOT / "notebooks" / "ssh-cluster.ipynb").read_text()
    copy = tmp_path / "ssh-cluster.ipynb"
    copy.write_text(text.replace("--backend ssh -", f"--backend ssh --ssh-config {hosts.ssh_config} -"))
    monkeypatch.setenv("JUPYTER_DIST_DEMO_HOSTS", "h1:1,h2:2,h3:1")
    done = execute(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    places = re.findall(r"^rank (\d): (.*)$", done.stdout, re.MULTILINE)
    assert places == [
        ("0", "h1, local rank 0 of 1"),
        ("1", "h2, local rank 0 of 2"),
        ("2", "h2, local rank 1 of 2"),
        ("3", "h3, local rank 0 of 1"),
    ]
    assert "TensorFlow: 9" in done.stdout, "its accuracy is printed"


@pytest.mark.needs("horovod", "torch", "sklearn")
def test_horovod_pytorch(tmp_path: Path) -> None:
    check(run_and_show("horovod-pytorch.ipynb", tmp_path), epochs=12)


@pytest.mark.needs("horovod", "torch", "sklearn", "pandas")
def test_compare_distributions() -> None:
    done = execute(ROOT / "notebooks" / "compare-distributions.ipynb")
    assert done.returncode == 0, done.stdout + done.stderr
    profile = r"^DDP +0 +\d+( +0\.\d+){4} +\d+\.\d+\n +1 .*\nHorovod +0 +\d+( +0\.\d+){4} +\d+\.\d+\n +1 "
    assert re.search(profile, done.stdout, re.MULTILINE), done.stdout
    scaling = (
        r"^DDP +1 +\d+\.\d+ +samples/s +1\.00 .*\n +2 .*\nHorovod +1 +\d+\.\d+ +samples/s +1\.00 .*\n +2 "
    )
    assert re.search(scaling, done.stdout, re.MULTILINE), done.stdout


@pytest.mark.needs("ray", "horovod", "torch", "sklearn")
def test_ray_horovod_elastic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else all that other tests do comes first
    notebook = json.loads((ROOT / "notebooks" / "ray-horovod-elastic.ipynb").read_text())
    notebook["cells"].insert(0, code_cell(PATIENT))
    copy = tmp_path / "ray-horovod-elastic.ipynb"
    copy.write_text(json.dumps(notebook))
    done = execute(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^from epoch \d+ on: (\d) ranks$", done.stdout, re.MULTILINE) == ["3", "2", "3"]
    assert re.search(r"^9\d\.\d% of the test digits right", done.stdout, re.MULTILINE)


@pytest.mark.needs("horovod", "tensorflow", "sklearn")
def test_horovod_keras(tmp_path: Path) -> None:
    check(run_and_show("horovod-keras.ipynb", tmp_path), epochs=12)


@pytest.mark.xdist_group("databricks")  # which has a Spark that runs
@pytest.mark.needs("databricks.sdk", "pyspark", "torch", "sklearn")
def test_databricks(
    databricks_workspace: DatabricksWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an emulated workspace, whose cluster is a real Spark."""
    profiles = tmp_path / "databrickscfg"
    profiles.write_text(f"[ada]\nhost = {databricks_workspace.url}\ntoken = {databricks_workspace.token}\n")
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(profiles))
    monkeypatch.setenv("JUPYTER_DIST_DEMO_PROFILE", "ada")
    monkeypatch.setenv("JUPYTER_DIST_DEMO_CLUSTER", "c1")
    monkeypatch.setenv("JUPYTER_DIST_DEMO_VOLUME", "/Volumes/main/default/jd")
    before = len(databricks_workspace.runs)
    done = execute(ROOT / "notebooks" / "databricks.ipynb")
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(4):
        assert re.search(rf"rank {rank}: 9\d\.\d% of the test's digits right", done.stdout)
    assert len(databricks_workspace.runs) == before + 1
    assert not databricks_workspace.active()


@pytest.mark.xdist_group("sagemaker")
@pytest.mark.needs("boto3", "moto", "torch", "sklearn", "matplotlib")
def test_sagemaker(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an account whose training jobs run on this machine: nothing differs but who signs in."""
    with SageMakerPlane(tmp_path_factory.mktemp("sagemaker")) as plane:
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, str(tmp_path / name))
        for name, value in {**plane.environment, "AWS_DEFAULT_REGION": plane.region}.items():
            monkeypatch.setenv(name, value)
        plane.make_role()
        done = execute(ROOT / "notebooks" / "sagemaker.ipynb")
        assert done.returncode == 0, done.stdout + done.stderr
        for rank in (0, 1):
            assert re.search(rf"rank {rank} on algo-{rank + 1}: 9\d\.\d% of the test's", done.stdout)
        assert re.search(r"the model that was fetched reads 9\d\.\d%", done.stdout)
        [job] = plane.jobs.values()
        assert job.status == "Completed"
        assert job.request["ExperimentConfig"]["ExperimentName"] == "digits"


@pytest.mark.xdist_group("azureml")
@pytest.mark.needs(
    "azure.identity", "azure.storage.blob", "horovod with MPI", "torch", "sklearn", "matplotlib"
)
def test_azureml(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a workspace whose jobs run on this machine: nothing differs but who signs in."""
    with AzurePlane(tmp_path_factory.mktemp("azureml")) as plane:
        for name, value in plane.environment(os.environ["PATH"]).items():
            monkeypatch.setenv(name, value)
        (tmp_path / "config.json").write_text(json.dumps(plane.config))
        copy = tmp_path / "azureml.ipynb"
        copy.write_bytes((ROOT / "notebooks" / copy.name).read_bytes())
        done = execute(copy)
        assert done.returncode == 0, done.stdout + done.stderr
        for rank, node in enumerate("ab"):
            assert re.search(
                rf"rank {rank} of 2 on node-{node}, met by MPI: 9\d\.\d% of the test's", done.stdout
            )
        assert re.search(r"the model that came home reads 9\d\.\d%", done.stdout)
        [job] = plane.jobs.values()
        assert job.status == "Completed"
        assert job.body["experimentName"] == "digits"


@pytest.mark.needs("horovod", "torch", "sklearn", "pyspark", "matplotlib")
def test_spark_horovodrunner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # On two cores the compilers' and collectors' threads of a JVM cost more than they save.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    check(run_and_show("spark-horovodrunner.ipynb", tmp_path), epochs=12)


def test_a_failing_cell_fails_the_notebook(tmp_path: Path) -> None:
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [code_cell("print('so far')"), code_cell("1 / 0"), code_cell("print('never')")]
    for place, cell in enumerate(cells):
        cell["id"] = f"added-{place}"
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path = tmp_path / "failing.ipynb"
    path.write_text(json.dumps(notebook))
    done = execute(path)
    assert done.returncode == 1
    assert "so far" in done.stdout
    assert "ZeroDivisionError: division by zero" in done.stdout
    assert "never" not in done.stdout


NEEDS = {
    "azureml": ("azure.identity", "azure.storage.blob", "torch", "sklearn", "matplotlib"),
    "compare-distributions": ("horovod", "torch", "sklearn", "pandas"),
    "databricks": ("databricks.sdk", "torch", "sklearn"),
    "horovod-keras": ("horovod", "tensorflow", "sklearn"),
    "horovod-pytorch": ("horovod", "torch", "sklearn"),
    "kubernetes": ("kubernetes", "websockets", "torch", "sklearn"),
    "quickstart": ("torch", "sklearn"),
    "ray": ("ray", "torch", "sklearn", "matplotlib"),
    "ray-horovod-elastic": ("ray", "horovod", "torch", "sklearn"),
    "results": ("pandas", "matplotlib", "tqdm"),
    "session": ("torch", "transformers"),
    "sagemaker": ("boto3", "torch", "sklearn", "matplotlib"),
    "spark-horovodrunner": ("horovod", "torch", "sklearn", "pyspark", "matplotlib"),
    "ssh-cluster": ("torch", "tensorflow", "sklearn"),
    "tensorflow": ("tensorflow", "sklearn"),
    "tf-parameter-server": ("tensorflow", "sklearn"),
    "torchrun-elastic": ("torch", "sklearn"),
    "tuning": ("optuna", "sklearn"),
}


def checker() -> Any:
    spec = importlib.util.spec_from_file_location("run_notebook", ROOT / "tools" / "run_notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name, marks=pytest.mark.needs(*NEEDS[path.stem])) for path in NOTEBOOKS],
)
def test_each_cell_could_run(path: Path) -> None:
    """Nothing runs: names, imports, lines of magics and the dry runs of distributed cells."""
    assert checker().check(path) == []


def test_what_the_check_of_a_notebook_finds(tmp_path: Path) -> None:
    cells = {
        "%load_ext jupyter_dist\nimport nothing, jupyter_dist as dist": "nothing is not installed",
        "def train(): return dist.rnak()": "jupyter_dist has no rnak",
        "%dist rnus": "%dist has no command 'rnus'",
        "%%distribute -np 2 --no-such-flag\ntrain()": "--no-such-flag",
        "%%distribute -np two\ntrain()": "two",
        "%%distribute -np 2 --out done\ntrian()": "trian is used, and no cell has made it",
        "done.results; late; x = (": "SyntaxError",
        "print([i for i in done.results if late])": "late is used, and no cell has made it",
        "%%bash\nls": "%%bash is no magic of jupyter_dist",
        "late = [dist.rank(), train, done]": "",
    }
    path = tmp_path / "wrong.ipynb"
    path.write_text(json.dumps({"cells": [code_cell(source) for source in cells]}))
    here, environ = Path.cwd(), dict(os.environ)
    found = checker().check(path)
    assert (Path.cwd(), dict(os.environ)) == (here, environ)
    expected = [(number, text) for number, text in enumerate(cells.values(), 1) if text]
    assert len(found) == len(expected), found
    for problem, (number, text) in zip(found, expected, strict=True):
        assert problem.startswith(f"wrong.ipynb, code cell {number}: ")
        assert text in problem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_no_outputs_are_committed(path: Path) -> None:
    """Diffs stay readable, and nothing of the machine it ran on is in it."""
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
        assert cell["metadata"] == {}


@pytest.mark.parametrize("path", [*NOTEBOOKS, ROOT / "README.md"], ids=lambda path: path.name)
def test_no_run_has_the_name_of_a_magic(path: Path) -> None:
    """In a new kernel, where the variable is not yet, `run` alone in a cell would be IPython's `%run`."""
    from IPython.core import magics as theirs

    classes = [getattr(theirs, name) for name in dir(theirs) if name.endswith("Magics")]
    known = {name for each in classes for name in getattr(each, "magics", {}).get("line", ())}
    assert "run" in known
    names = re.findall(r"--out (\w+)", path.read_text())
    assert [name for name in names if name in known] == []
