"""The sign-in to Azure."""

from __future__ import annotations

import pytest

from jupyter_dist.backends.azureml.workspace import MlWorkspace, WorkspaceId

pytestmark = pytest.mark.needs("azure.identity")


@pytest.mark.parametrize(
    ("cloud", "named", "host"),
    [
        (None, None, "login.microsoftonline.com"),
        ("AzureUSGovernment", None, "login.microsoftonline.us"),
        ("AzureChinaCloud", None, "login.chinacloudapi.cn"),
        ("AzureChinaCloud", "login.example.com", "login.example.com"),
    ],
)
def test_the_sign_in_is_that_of_the_workspace_s_cloud(
    cloud: str | None, named: str | None, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service principal of one cloud is unknown to the others."""
    for name, value in (("AZUREML_CURRENT_CLOUD", cloud), ("AZURE_AUTHORITY_HOST", named)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    asked: list[str] = []
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda *, authority: asked.append(authority))
    MlWorkspace(WorkspaceId("1", "rg", "ws")).credential()
    assert asked == [host]
