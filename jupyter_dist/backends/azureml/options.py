"""The options of the backend `azureml`, with the names of Azure's SDK and the studio."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from ...cluster_form import Form
from ..hosted import RankEnvironmentOptions
from ..ranks.tensorflow_roles import Chief, ParameterServers
from ..shared_options.agent import AgentOptions, Duration, Line, grace_field
from .inputs import check_inputs

__all__ = ["SERVERLESS", "AzureMlOptions"]

SERVERLESS = "serverless"
_SECRETS = ("--client-secret", "--account-key", "--sas", "--sas-token", "--access-token", "--key")


class AzureMlOptions(AgentOptions):
    """Options of the backend `azureml`."""

    form: ClassVar[Form] = Form(
        first=("compute", "instance_type", "instance_count", "environment", "input"),
        sections={
            "Ranks": ("np", "processes_per_host", "distribution", "chief", "ps"),
            "Workspace": ("subscription", "resource_group", "workspace"),
            "Job": ("spot", "shm_size", "identity", "datastore"),
            "Name and labels": ("experiment", "tags"),
        },
    )

    subscription: Line = Field(
        default=None,
        title="Subscription",
        description="The id of the subscription. Default: from config.json or the compute instance",
        json_schema_extra={
            "flags": ["--subscription", "--subscription-id"],
            "metavar": "ID",
            "wanted": "the id of a subscription",
        },
    )
    resource_group: Line = Field(
        default=None,
        title="Resource group",
        description="Default: from config.json or the compute instance",
        json_schema_extra={"metavar": "NAME", "wanted": "the name of a resource group"},
    )
    workspace: Line = Field(
        default=None,
        title="Workspace",
        description="Default: from config.json or the compute instance",
        json_schema_extra={
            "flags": ["--workspace", "--workspace-name"],
            "metavar": "NAME",
            "wanted": "the name of a workspace",
        },
    )
    compute: Line = Field(
        default=None,
        title="Compute",
        description="The name of a compute cluster, or serverless",
        json_schema_extra={"metavar": "NAME", "wanted": "the name of a compute cluster, or serverless"},
    )
    instance_type: Line = Field(
        default=None,
        title="Instance type",
        description="The machine size of serverless compute, such as Standard_NC24ads_A100_v4",
        json_schema_extra={"metavar": "TYPE", "wanted": "the name of a machine's size"},
    )
    instance_count: int = Field(
        default=1,
        ge=1,
        title="Instances",
        description="The number of machines. The ranks are spread over them evenly. Default: 1",
        json_schema_extra={"ranks": True},
    )
    processes_per_host: int | None = Field(
        default=None,
        ge=1,
        title="Ranks per instance",
        description="The number of ranks on each machine. Default: 1",
        json_schema_extra={"ranks": True},
    )
    environment: Line = Field(
        default=None,
        title="Environment",
        description="NAME, NAME:VERSION, or azureml://registries/azureml/environments/NAME/versions/VERSION",
        json_schema_extra={"metavar": "NAME[:VERSION]", "wanted": "the name of an environment"},
    )
    distribution: Literal["pytorch", "mpi", "tensorflow"] = Field(
        default="pytorch",
        title="Distribution",
        description="The launcher of the job's processes. mpi: mpirun, which Horovod and mpi4py need. "
        "Default: pytorch, which also works for TensorFlow",
    )
    chief: Chief = False
    ps: ParameterServers = 0
    input: Annotated[dict[str, str], AfterValidator(check_inputs)] = Field(
        default_factory=dict,
        title="Inputs",
        description="train=azureml:NAME:VERSION, or a URI azureml://… or abfss://…. Options follow it: "
        ",mode=ro_mount|download|direct and ,type=uri_folder|uri_file|mltable. On a rank, "
        'dist.input("train") is its path. Repeatable',
        json_schema_extra={"metavar": "NAME=URI[,…]", "wanted": "NAME=URI"},
    )
    experiment: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$")] = Field(
        default=None,
        title="Experiment",
        description="The experiment in which the studio lists the job. Default: jupyter-dist",
        json_schema_extra={"metavar": "NAME", "wanted": "the name of an experiment"},
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        title="Tags",
        description="A tag of the job such as team=vision. Repeatable",
        json_schema_extra={"flags": ["--tags", "--tag"]},
    )
    identity: Literal["managed", "user"] | None = Field(
        default=None,
        title="Identity",
        description="The identity with which the job reads data and its mailbox: the compute's own "
        "identity, or yours. Default: a signature for the datastore, valid for 7 days",
    )
    spot: bool = Field(
        default=False,
        title="Spot machines",
        description="Use serverless machines of low priority. They cost less, but Azure can reclaim them",
    )
    shm_size: Annotated[str | None, Field(pattern=r"^\d+[bkmgBKMG]$")] = Field(
        default=None,
        title="Shared memory",
        description="The shared memory of the container, such as 16g. Default: 2g",
        json_schema_extra={"metavar": "SIZE", "wanted": "a size such as 16g"},
    )
    datastore: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")] = Field(
        default="workspaceblobstore",
        title="Mailbox",
        description="The blob datastore for code and for the output of the ranks. Default: "
        "workspaceblobstore",
        json_schema_extra={"metavar": "NAME", "wanted": "the name of a datastore"},
    )
    grace: Duration = grace_field(600)

    @property
    def ranks(self) -> int | None:
        return self.instance_count * (self.processes_per_host or 1) + self.ps

    @property
    def by_mpi(self) -> bool:
        """Whether mpirun starts a process for each rank, which lends the rank its place."""
        return self.distribution == "mpi"

    def wanted(self) -> RankEnvironmentOptions:
        """The options for the ranks' environments. Under mpirun, Horovod uses MPI."""
        return RankEnvironmentOptions.of(self, horovod=not self.by_mpi)

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        if flag in _SECRETS:
            return (
                "would be readable in the notebook by everybody. Log in with `az login`, or set "
                "AZURE_CLIENT_SECRET when you start JupyterLab"
            )
        return {
            "--vm-size": "is called --instance-type here",
            "--compute-target": "is called --compute here",
            "--nodes": "is called --instance-count here",
            "--process-count-per-instance": "is called --processes-per-host here",
        }.get(flag)
