"""Write down what Azure's own SDK sends for a job: tests/golden/azureml_requests.json.

    python -m venv /tmp/sdk && /tmp/sdk/bin/pip install azure-ai-ml
    /tmp/sdk/bin/python tools/capture_azureml.py

The SDK is not among what the tests need: it brings forty packages. Nothing is sent to Azure.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

_TARGET = Path(__file__).parents[1] / "tests" / "golden" / "azureml_requests.json"
_WORKSPACE = (
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/"
    "Microsoft.MachineLearningServices/workspaces/ws"
)
_BLOBS = "https://account.blob.core.windows.net"
_BASE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"
_ENVIRONMENT = "azureml://registries/azureml/environments/acpt-pytorch-2.2-cuda12.1/versions/1"


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, arguments of `azure.ai.ml.command`, and our options for the same."""
    from azure.ai.ml import Input, MpiDistribution, PyTorchDistribution, TensorFlowDistribution
    from azure.ai.ml.entities import (
        Environment,
        JobResourceConfiguration,
        ManagedIdentityConfiguration,
        UserIdentityConfiguration,
    )

    two = {"compute": "cpu-cluster", "instance_count": 2, "environment": "train:3"}
    ours = {"compute": "cpu-cluster", "instance_count": 2, "environment": "train:3"}
    pytorch = PyTorchDistribution(process_count_per_instance=1)
    yield "pytorch", {**two, "distribution": pytorch}, ours
    yield (
        "mpi",
        {**two, "distribution": MpiDistribution(process_count_per_instance=2)},
        {**ours, "distribution": "mpi", "processes_per_host": 2},
    )
    yield (
        "tensorflow",
        {**two, "distribution": TensorFlowDistribution(worker_count=2, parameter_server_count=0)},
        {**ours, "distribution": "tensorflow"},
    )
    packages = {
        "name": "project_environment",
        "channels": ["conda-forge"],
        "dependencies": ["python=3.11", "pip", {"pip": ["torch==2.8.0", "pandas"]}],
    }
    yield (
        "packages",
        {
            **two,
            "environment": Environment(image=_BASE, conda_file=packages),
            "distribution": pytorch,
        },
        {"compute": "cpu-cluster", "instance_count": 2, "pip": ["torch==2.8.0", "pandas"]},
    )
    yield (
        "parameter servers",
        {
            **two,
            "instance_count": 3,
            "distribution": TensorFlowDistribution(worker_count=2, parameter_server_count=1),
        },
        {**ours, "instance_count": 3, "distribution": "tensorflow", "ps": 1},
    )
    yield (
        "serverless",
        {
            "environment": _ENVIRONMENT,
            "distribution": pytorch,
            "resources": JobResourceConfiguration(
                instance_count=1, instance_type="Standard_NC24ads_A100_v4", shm_size="16g"
            ),
            "queue_settings": {"job_tier": "Spot"},
            "timeout": 5400,
        },
        {
            "compute": "serverless",
            "instance_type": "Standard_NC24ads_A100_v4",
            "environment": _ENVIRONMENT,
            "shm_size": "16g",
            "spot": True,
        },
    )
    digits = "azureml://datastores/workspaceblobstore/paths/digits/"
    yield (
        "inputs",
        {
            **two,
            "distribution": pytorch,
            "inputs": {
                "train": Input(type="uri_folder", path=digits, mode="ro_mount"),
                "labels": Input(
                    type="uri_file", path="abfss://c@account.dfs.core.windows.net/l.csv", mode="download"
                ),
                "asset": Input(type="uri_folder", path="azureml:mnist:1"),
            },
            "experiment_name": "vision",
            "tags": {"team": "vision"},
            "identity": UserIdentityConfiguration(),
        },
        {
            **ours,
            "input": {
                "train": f"{digits},mode=ro_mount",
                "labels": "abfss://c@account.dfs.core.windows.net/l.csv,mode=download,type=uri_file",
                "asset": "azureml:mnist:1",
            },
            "experiment": "vision",
            "tags": {"team": "vision"},
            "identity": "user",
        },
    )
    yield (
        "managed",
        {**two, "distribution": pytorch, "identity": ManagedIdentityConfiguration()},
        {**ours, "identity": "managed"},
    )


def sweeps() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Name, arguments of `azure.ai.ml.command`, the space and what is said of the sweep beside it, and our
    options and our search for the same."""
    from azure.ai.ml import Input, MpiDistribution, PyTorchDistribution
    from azure.ai.ml.entities import ManagedIdentityConfiguration, QueueSettings
    from azure.ai.ml.sweep import (
        BanditPolicy,
        Choice,
        LogUniform,
        MedianStoppingPolicy,
        QLogUniform,
        QUniform,
        RandomSamplingAlgorithm,
        TruncationSelectionPolicy,
        Uniform,
    )

    pytorch = PyTorchDistribution(process_count_per_instance=1)
    two = {"compute": "cpu-cluster", "instance_count": 2, "environment": "train:3", "distribution": pytorch}
    ours = {"compute": "cpu-cluster", "instance_count": 2, "environment": "train:3"}
    several = {
        "lr": LogUniform(min_value=math.log(1e-5), max_value=math.log(0.1)),
        "momentum": Uniform(min_value=0.0, max_value=0.9),
        "dropout": QUniform(min_value=0.0, max_value=0.5, q=0.25),
        "layers": QUniform(min_value=1, max_value=8, q=1),
        "width": QLogUniform(min_value=math.log(8), max_value=math.log(512), q=1),
        "batch": Choice(values=[32, 64]),
        "name": Choice(values=["sgd", "adam"]),
    }
    tune = {
        "lr": "loguniform(1e-5,0.1)",
        "momentum": "uniform(0,0.9)",
        "dropout": "quniform(0,0.5,0.25)",
        "layers": "int(1,8)",
        "width": "int(8,512,log=True)",
        "batch": "choice(32,64)",
        "name": "choice(sgd,adam)",
    }
    budget = {"max_total_trials": 20, "max_concurrent_trials": 4}
    ours_of_it = {"max_jobs": 20, "parallel": 4, "tune": tune}
    policies = {
        "bandit": (
            BanditPolicy(slack_factor=0.1, evaluation_interval=2, delay_evaluation=5),
            "bandit(slack_factor=0.1,evaluation_interval=2,delay_evaluation=5)",
        ),
        "bandit by an amount": (
            BanditPolicy(slack_amount=0.2, evaluation_interval=1),
            "bandit(slack_amount=0.2)",
        ),
        "median": (
            MedianStoppingPolicy(evaluation_interval=1, delay_evaluation=3),
            "median(delay_evaluation=3)",
        ),
        "truncation": (
            TruncationSelectionPolicy(truncation_percentage=20, evaluation_interval=1),
            "truncation(truncation_percentage=20)",
        ),
    }
    for name, (policy, text) in policies.items():
        said = {**budget, "sampling_algorithm": "random", "early_termination_policy": policy}
        yield (
            name,
            {**two, "space": several},
            said,
            ours,
            {**ours_of_it, "strategy": "random", "policy": text},
        )
    smooth = {
        "log10_lr": Uniform(min_value=-5.0, max_value=-1.0),
        **{name: several[name] for name in ("momentum", "dropout", "layers", "batch")},
    }
    kept = {name: tune[name] for name in ("lr", "momentum", "dropout", "layers", "batch")}
    yield (
        "bayesian",
        {**two, "space": smooth},
        {**budget, "sampling_algorithm": "bayesian", "goal": "Maximize"},
        ours,
        {**ours_of_it, "tune": kept, "strategy": "bayesian", "goal": "max"},
    )
    digits = "azureml://datastores/workspaceblobstore/paths/digits/"
    grid = {"batch": several["batch"], "layers": Choice(values=[1, 2, 3])}
    yield (
        "grid, and what a job has",
        {
            "space": grid,
            "compute": "cpu-cluster",
            "instance_count": 2,
            "environment": _ENVIRONMENT,
            "distribution": MpiDistribution(process_count_per_instance=2),
            "inputs": {"train": Input(type="uri_folder", path=digits, mode="ro_mount")},
            "experiment_name": "vision",
            "tags": {"team": "vision"},
            "identity": ManagedIdentityConfiguration(),
            "shm_size": "16g",
        },
        {"max_total_trials": 6, "max_concurrent_trials": 2, "sampling_algorithm": "grid", "timeout": 5400},
        {
            **ours,
            "environment": _ENVIRONMENT,
            "distribution": "mpi",
            "processes_per_host": 2,
            "input": {"train": f"{digits},mode=ro_mount"},
            "experiment": "vision",
            "tags": {"team": "vision"},
            "identity": "managed",
            "shm_size": "16g",
        },
        {
            "max_jobs": 6,
            "parallel": 2,
            "strategy": "grid",
            "tune": {"batch": "choice(32,64)", "layers": "int(1,3)"},
        },
    )
    one = {"lr": several["lr"]}
    yield (
        "serverless, with a seed",
        {
            "space": one,
            "environment": _ENVIRONMENT,
            "distribution": pytorch,
            "instance_count": 1,
            "instance_type": "Standard_NC24ads_A100_v4",
        },
        {
            **budget,
            "sampling_algorithm": RandomSamplingAlgorithm(seed=7),
            "queue_settings": QueueSettings(job_tier="Spot"),
        },
        {
            "compute": "serverless",
            "instance_type": "Standard_NC24ads_A100_v4",
            "environment": _ENVIRONMENT,
            "spot": True,
        },
        {**ours_of_it, "tune": {"lr": tune["lr"]}, "strategy": "random", "seed": 7},
    )


def sweep(folder: str, arguments: dict[str, Any], said: dict[str, Any]) -> Any:
    """The job of the SDK for a case of `sweeps`."""
    from azure.ai.ml import command

    said = {"goal": "Minimize", **said}
    about = {"experiment_name": "digits", **arguments}
    space, inputs = about.pop("space"), about.pop("inputs", {})
    queue, identity = said.pop("queue_settings", None), about.pop("identity", None)
    timeout = said.pop("timeout", None)
    words = " ".join(f"'{name}=${{{{inputs.{name}}}}}'" for name in (*inputs, *space))
    node = command(
        name="name",
        display_name="name",
        command=f"python run.py {words}",
        code=folder,
        inputs={**inputs, **dict.fromkeys(space, 1)},
        **about,
    )
    made = node(**space).sweep(primary_metric="loss", **said)
    made.name, made.display_name = "name", "name"
    made.experiment_name, made.tags = about["experiment_name"], about.get("tags", {})
    made.queue_settings, made.identity = queue, identity
    if timeout is not None:
        made.limits.timeout = timeout
    return made


class _Credential:
    def get_token(self, *scopes: str, **more: Any) -> Any:
        from azure.core.credentials import AccessToken

        def part(told: dict[str, Any]) -> str:
            return base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")

        until = int(time.time()) + 3600
        claims = {"aud": "https://ml.azure.com", "tid": "t", "oid": "o", "exp": until}
        return AccessToken(f"{part({'alg': 'none'})}.{part(claims)}.eA", until)


def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
    """What a workspace says to a request."""
    if path.endswith("/startPendingUpload"):
        reference = {
            "blobUri": f"{_BLOBS}/code",
            "storageAccountArmId": "/x",
            "credential": {"credentialType": "SAS", "sasUri": f"{_BLOBS}/code?sig=x"},
        }
        return 200, {"blobReferenceForConsumption": reference, "pendingUploadType": "TemporaryBlobReference"}
    if "/codes/" in path and method == "GET":
        return (200, {"value": []}) if path.endswith("/versions") else (404, {"error": {"code": "NotFound"}})
    name = path.rpartition("/")[2]
    properties: dict[str, Any]
    if path.endswith("/workspaces/ws"):
        properties = {
            "workspaceId": "00000000-0000-0000-0000-000000000002",
            "discoveryUrl": "https://westeurope.api.azureml.ms/discovery",
            "storageAccount": "/storageAccounts/account",
        }
        kind = "Microsoft.MachineLearningServices/workspaces"
        told = {"id": path, "name": "ws", "type": kind, "location": "westeurope", "properties": properties}
        return 200, {**told, "identity": {"type": "SystemAssigned"}}
    if "/computes/" in path:
        size: dict[str, Any] = {"vmSize": "STANDARD_D2_V3", "scaleSettings": {"maxNodeCount": 4}}
        return 200, {
            "id": path,
            "name": name,
            "properties": {"computeType": "AmlCompute", "properties": size},
        }
    if method == "PUT":
        properties = {**body["properties"], "status": "NotStarted", "services": {}}
        return 201, {"id": path, "name": name, "properties": properties}
    return 200, {"id": path, "name": name, "properties": {}}


def main() -> None:
    """Ask the SDK for each case, and write what it has sent."""
    from azure.ai.ml import MLClient, command
    from azure.core.pipeline.transport import RequestsTransport
    from requests import Response
    from urllib3 import HTTPResponse

    asked: list[dict[str, Any]] = []

    def send(self: Any, request: Any, **more: Any) -> Any:
        from azure.core.pipeline.transport._requests_basic import RequestsTransportResponse
        from azure.core.rest._requests_basic import RestRequestsTransportResponse

        path, _, query = request.url.partition("?")
        host, path = re.match(r"(https://[^/]+)(.*)", path).groups()  # type: ignore[union-attr]
        text = request.body or getattr(request, "content", None)
        body = None
        if isinstance(text, (str, bytes)) and text[:1] in ("{", b"{"):
            body = json.loads(text)
        if host == _BLOBS:
            made = request.method == "PUT" and "comp=metadata" not in query
            status = 201 if made else 404 if request.method == "HEAD" else 200
            told: Any = {}
        else:
            version = dict(part.split("=") for part in query.split("&") if part).get("api-version", "")
            asked.append({"method": request.method, "path": path, "api_version": version, "body": body})
            status, told = answer(request.method, path, body)
        response = Response()
        response.status_code = status
        response.raw = HTTPResponse(io.BytesIO(json.dumps(told).encode()), preload_content=False)
        response.headers["Content-Type"] = "application/json"
        response.headers.update({"ETag": "x", "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})
        response.reason, response.url = "", request.url
        response.encoding = "utf-8"
        if type(request).__module__.startswith("azure.core.rest"):
            return RestRequestsTransportResponse(request=request, internal_response=response)
        return RequestsTransportResponse(request, response)

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(RequestsTransport, "send", send):
        os.chdir(folder)  # the SDK tells of the repository that it is called in
        (Path(folder) / "run.py").write_text("print(1)\n")
        parts = _WORKSPACE.split("/")
        client = MLClient(_Credential(), parts[2], parts[4], parts[-1])
        for name, arguments, ours in cases():
            asked.clear()
            arguments = {"experiment_name": "digits", **arguments}
            job = command(name="name", display_name="name", command="python run.py", code=folder, **arguments)
            client.jobs.create_or_update(job)
            text = json.dumps(asked).replace(Path(folder).name, "CODE")
            text = re.sub(r"/codes/[0-9a-f-]{36}/", "/codes/GUID/", text)
            text = re.sub(r'"hash_sha256": "[0-9a-f]+"', '"hash_sha256": "HASH"', text)
            found[name] = {"options": {"experiment": "digits", **ours}, "requests": json.loads(text)}
            if "timeout" in arguments:
                found[name]["longest_s"] = arguments["timeout"]
        swept: dict[str, Any] = {}
        for name, arguments, said, ours, search in sweeps():
            asked.clear()
            client.jobs.create_or_update(sweep(folder, arguments, said))
            sent = asked[-1]
            text = re.sub(r"/codes/[0-9a-f-]{36}/", "/codes/GUID/", json.dumps(sent))
            swept[name] = {
                "options": {"experiment": "digits", **ours},
                "search": search,
                "request": json.loads(text),
            }
            if "timeout" in said:
                swept[name]["longest_s"] = said["timeout"]
    told = {
        "azure-ai-ml": metadata.version("azure-ai-ml"),
        "workspace": _WORKSPACE,
        "cases": found,
        "sweeps": swept,
    }
    _TARGET.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
