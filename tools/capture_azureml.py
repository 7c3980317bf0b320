"""Write down what Azure's own SDK sends for a job: tests/golden/azureml_requests.json.

    python -m venv /tmp/sdk && /tmp/sdk/bin/pip install azure-ai-ml
    /tmp/sdk/bin/python tools/capture_azureml.py

The SDK is not among what the tests need: it brings forty packages. Nothing is sent to Azure.
"""

from __future__ import annotations

import base64
import io
import json
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
_ENVIRONMENT = "azureml://registries/azureml/environments/acpt-pytorch-2.2-cuda12.1/versions/1"


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, arguments of `azure.ai.ml.command`, and our options for the same."""
    from azure.ai.ml import Input, MpiDistribution, PyTorchDistribution, TensorFlowDistribution
    from azure.ai.ml.entities import (
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
    told = {"azure-ai-ml": metadata.version("azure-ai-ml"), "workspace": _WORKSPACE, "cases": found}
    _TARGET.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
