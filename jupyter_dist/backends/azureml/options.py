"""The options of the backend `azureml`, with the names of Azure's SDK and the studio."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from ...cluster_form import Form
from ...option_fields import SEVERAL, flag
from ...text.confidential import has_form_of_a_key
from ..hosted import RankEnvironmentOptions
from ..ranks.tensorflow_roles import Chief
from ..shared_options.agent import Duration, Line, LocalFile, grace_field
from ..shared_options.instances import InstanceOptions
from .inputs import check_inputs

__all__ = ["SERVERLESS", "AzureMlOptions"]

SERVERLESS = "serverless"
_SECRETS = ("--client-secret", "--account-key", "--sas", "--sas-token", "--access-token", "--key")


def _packages(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        if not each.strip() or not each.isprintable():
            raise ValueError(f"needs a package such as torch==2.8.0, got {each!r:.100}")
        if has_form_of_a_key(each):
            raise ValueError(
                "has a package whose address contains a password or a token. The run's files would store it. "
                "Name the package in a file, and write --conda-file FILE"
            )
    return value


class AzureMlOptions(InstanceOptions):
    """Options of the backend `azureml`."""

    node_names: ClassVar[str] = "node-{0}"
    form: ClassVar[Form] = Form(
        first=("compute", "instance_type", "instance_count", "environment", "input"),
        places=("workspace",),
        sections={
            "Ranks": "np processes_per_host distribution chief ps",
            "Workspace": "subscription resource_group workspace",
            "Job": "pip conda_file image spot shm_size identity datastore",
            "Name and labels": "experiment tags",
        },
    )

    subscription: Line = flag(
        None,
        "Subscription",
        "The id of the subscription. Default: from config.json or the compute instance",
        "--subscription",
        "--subscription-id",
        value=("ID", "the id of a subscription"),
    )
    resource_group: Line = flag(
        None,
        "Resource group",
        "Default: from config.json or the compute instance",
        value=("NAME", "the name of a resource group"),
    )
    workspace: Line = flag(
        None,
        "Workspace",
        "Default: from config.json or the compute instance",
        "--workspace",
        "--workspace-name",
        value=("NAME", "the name of a workspace"),
    )
    compute: Line = flag(
        None,
        "Compute",
        "The name of a compute cluster, or serverless",
        value=("NAME", "the name of a compute cluster, or serverless"),
    )
    instance_type: Line = flag(
        None,
        "Instance type",
        "The machine size of serverless compute, such as Standard_NC24ads_A100_v4",
        value=("TYPE", "the name of a machine's size"),
    )
    environment: Line = flag(
        None,
        "Environment",
        "NAME, NAME:VERSION, or azureml://registries/azureml/environments/NAME/versions/VERSION",
        value=("NAME[:VERSION]", "the name of an environment"),
        excludes=dict.fromkeys(("pip", "conda_file", "image"), "They make another environment"),
    )
    pip: Annotated[tuple[str, ...], SEVERAL, AfterValidator(_packages)] = flag(
        (),
        "Packages",
        "A package for an environment that Azure makes, such as torch==2.8.0. Its Python is the notebook's. "
        "Azure builds it once. Repeatable",
        value=("PACKAGE", "a package as pip install accepts it"),
        excludes={"conda_file": "A conda file has the packages of pip too"},
    )
    conda_file: LocalFile = flag(
        None,
        "Conda file",
        "A conda file with the packages of an environment that Azure makes. It must have the notebook's "
        "Python",
        value=("FILE", "the path of a YAML file"),
    )
    image: Line = flag(
        None,
        "Image",
        "The image of an environment that Azure makes, to which --pip and --conda-file add packages. "
        "Default: Azure's image with Ubuntu and Open MPI",
        value=("IMAGE", "the name of an image"),
    )
    distribution: Literal["pytorch", "mpi", "tensorflow"] = flag(
        "pytorch",
        "Distribution",
        "The launcher of the job's processes. mpi: mpirun, which Horovod and mpi4py need. "
        "Default: pytorch, which also works for TensorFlow",
    )
    chief: Chief = False
    input: Annotated[dict[str, str], AfterValidator(check_inputs)] = flag(
        {},
        "Inputs",
        "train=azureml:NAME:VERSION, or a URI azureml://… or abfss://…. Options follow it: "
        ",mode=ro_mount|download|direct and ,type=uri_folder|uri_file|mltable. On a rank, "
        'dist.input("train") is its path. Repeatable',
        value=("NAME=URI[,…]", "NAME=URI"),
    )
    experiment: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$")] = flag(
        None,
        "Experiment",
        "The experiment in which the studio lists the job. Default: jupyter-dist",
        value=("NAME", "the name of an experiment"),
    )
    tags: dict[str, str] = flag(
        {}, "Tags", "A tag of the job such as team=vision. Repeatable", "--tags", "--tag"
    )
    identity: Literal["managed", "user"] | None = flag(
        None,
        "Identity",
        "The identity with which the job reads data and its mailbox: the compute's own "
        "identity, or yours. Default: a signature for the datastore, valid for 7 days",
    )
    spot: bool = flag(
        False,
        "Spot machines",
        "Use serverless machines of low priority. They cost less, but Azure can reclaim them",
    )
    shm_size: Annotated[str | None, Field(pattern=r"^\d+[bkmgBKMG]$")] = flag(
        None,
        "Shared memory",
        "The shared memory of the container, such as 16g. Default: 2g",
        value=("SIZE", "a size such as 16g"),
    )
    datastore: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")] = flag(
        "workspaceblobstore",
        "Mailbox",
        "The blob datastore for code and for the output of the ranks. Default: workspaceblobstore",
        value=("NAME", "the name of a datastore"),
    )
    grace: Duration = grace_field(600)

    @property
    def makes_environment(self) -> bool:
        """Whether the run has an environment of its own, instead of one that exists."""
        return bool(self.pip or self.conda_file or self.image)

    @property
    def ranks(self) -> int | None:
        return self.instance_count * (self.processes_per_host or 1) + self.ps

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
