"""The options of the backend `sagemaker`, with the names of the SageMaker SDK's estimators."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from ...cluster_form import Form
from ..ranks.tensorflow_roles import ParameterServers
from ..shared_options.agent import AgentOptions, Duration, Line, grace_field
from .channels import check_channels
from .instance_types import gpus_of

__all__ = ["Distribution", "SageMakerOptions"]

Distribution = Literal["torchrun", "mpi", "horovod", "smddp", "smmp", "mwms", "parameter_server"]

_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@/_-]+")
_SECRETS = (
    *(
        "--aws-access-key-id",
        "--aws-secret-access-key",
        "--aws-session-token",
        "--access-key",
        "--secret-key",
    ),
    "--secret-access-key",
)


def _role(value: str | None) -> str | None:
    if value is not None and not _ARN.fullmatch(value):
        raise ValueError(
            "needs the ARN of a role such as arn:aws:iam::123456789012:role/Train, got "
            f"{value!r:.100}. `aws iam get-role --role-name NAME` shows it"
        )
    return value


def _s3(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"s3://[^/,\s]+(/[^\0\n]*)?", value):
        raise ValueError(f"needs s3://BUCKET/PREFIX, got {value!r:.100}")
    return value


def _ids(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[0-9a-zA-Z-]{1,32}(,[0-9a-zA-Z-]{1,32})*", value):
        raise ValueError(f"needs ids with commas between, such as subnet-1,subnet-2, got {value!r:.100}")
    return value


def _job_name(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,29}", value):
        raise ValueError(f"needs up to 30 letters, digits and dashes between, got {value!r:.100}")
    return value


def _values(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if len(json.dumps(value)) > 2500 or not 0 < len(name) <= 256:
            raise ValueError(f"{name!r:.80}: a name has at most 256 characters, and a value at most 2500")
    return given


S3 = Annotated[str | None, AfterValidator(_s3)]
EntryName = Annotated[str | None, Field(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,119}$")]
Ids = Annotated[str | None, AfterValidator(_ids)]


def _called(*flags: str, **more: Any) -> dict[str, Any]:
    return {"flags": list(flags), **more} if flags else dict(more)


class SageMakerOptions(AgentOptions):
    """Options of the backend `sagemaker`."""

    form: ClassVar[Form] = Form(
        first=("role", "instance_type", "instance_count", "input", "spot"),
        sections={
            "Ranks": ("np", "processes_per_host", "distribution", "mpi_options", "mp_parameters", "ps"),
            "Container": ("framework", "framework_version", "py_version", "image"),
            "Data and outputs": (
                "input_mode",
                "output_path",
                "code_location",
                "checkpoint_s3",
                "checkpoint_local_path",
            ),
            "Time and cost": ("max_run", "max_wait", "max_retry_attempts", "keep_alive", "volume_size"),
            "Account": ("profile", "region"),
            "Network and keys": (
                "subnets",
                "security_group_ids",
                "encrypt_inter_container_traffic",
                "kms_key",
                "volume_kms_key",
            ),
            "Name and labels": (
                "hyperparameters",
                "tags",
                "experiment",
                "trial",
                "trial_component",
                "base_job_name",
            ),
        },
    )

    role: Annotated[str | None, AfterValidator(_role)] = Field(
        default=None,
        title="Role",
        description="The ARN of the job's role, which reads the inputs and writes to S3",
        json_schema_extra=_called(metavar="ARN", wanted="the ARN of a role"),
    )
    instance_type: Line = Field(
        default=None,
        title="Instance type",
        description="The instance type of the job, such as ml.g5.xlarge",
        json_schema_extra=_called(metavar="TYPE", wanted="the name of an instance type such as ml.g5.xlarge"),
    )
    instance_count: int = Field(
        default=1,
        ge=1,
        title="Instances",
        description="The number of instances. The ranks are spread over them evenly. Default: 1",
        json_schema_extra={"ranks": True},
    )
    processes_per_host: int | None = Field(
        default=None,
        ge=1,
        title="Ranks per instance",
        description="The number of ranks on each instance. Default: one per GPU, or 1",
        json_schema_extra={"ranks": True},
    )
    distribution: Distribution | None = Field(
        default=None,
        title="Distribution",
        description="The launcher in the job's containers. Default: only the agent, which is enough for "
        "torch, TensorFlow and Horovod with Gloo",
    )
    ps: ParameterServers = 0
    mpi_options: Line = Field(
        default=None,
        title="mpirun options",
        description="More options for mpirun, with mpi, horovod, smddp and smmp",
        json_schema_extra=_called(
            "--mpi-options", "--custom-mpi-options", metavar="OPTIONS", wanted="options of mpirun"
        ),
    )
    mp_parameters: Annotated[dict[str, str], AfterValidator(_values)] = Field(
        default_factory=dict,
        title="Parameters of smmp",
        description="A parameter of the model parallel library, such as partitions=2. Repeatable",
    )
    framework: Literal["pytorch", "tensorflow"] | None = Field(
        default=None,
        title="Framework",
        description="The framework whose AWS Deep Learning Container runs the ranks. Default: pytorch, "
        "or tensorflow with mwms and parameter_server",
    )
    framework_version: Annotated[str | None, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] = Field(
        default=None,
        title="Framework version",
        description="The version of the framework. Default: the newest one whose container has the "
        "notebook's Python",
        json_schema_extra=_called(metavar="VERSION", wanted="a version such as 2.6.0"),
    )
    py_version: Annotated[str | None, Field(pattern=r"^py3\d+$")] = Field(
        default=None,
        title="Python of the container",
        description="The Python of the container. It must be the notebook's version, which is the default",
        json_schema_extra=_called(metavar="VERSION", wanted="a version such as py311"),
    )
    image: Line = Field(
        default=None,
        title="Image",
        description="Another image, which must contain SageMaker's training toolkit",
        json_schema_extra=_called(
            "--image", "--image-uri", metavar="URI", wanted="the name of an image in ECR"
        ),
    )
    input: Annotated[dict[str, str], AfterValidator(check_channels)] = Field(
        default_factory=dict,
        title="Inputs",
        description="training=s3://BUCKET/PREFIX, efs:// or fsx://fs-ID/PATH,ro|rw. Options follow an S3 "
        "URL: ,mode=File|FastFile|Pipe ,distribution=ShardedByS3Key and ,content_type=…. On "
        'a rank, dist.input("training") is its path. Repeatable',
        json_schema_extra=_called(metavar="NAME=URL[,…]", wanted="NAME=URL"),
    )
    input_mode: Literal["File", "FastFile", "Pipe"] = Field(
        default="File", title="Input mode", description="The mode of inputs that name none. Default: File"
    )
    output_path: S3 = Field(
        default=None,
        title="Output path",
        description="The S3 location of model.tar.gz. Default: the account's SageMaker bucket",
        json_schema_extra=_called(metavar="S3URL", wanted="s3://BUCKET/PREFIX"),
    )
    code_location: S3 = Field(
        default=None,
        title="Mailbox",
        description="The S3 location for the code, the cell and the output of the ranks. Default: "
        "jupyter-dist in the account's SageMaker bucket",
        json_schema_extra=_called(
            "--code-location", "--mailbox", metavar="S3URL", wanted="s3://BUCKET/PREFIX"
        ),
    )
    checkpoint_s3: S3 = Field(
        default=None,
        title="Checkpoints",
        description="The S3 location of dist.checkpoint_dir(). It also keeps the files of a job that "
        "continues after an interruption",
        json_schema_extra=_called(
            "--checkpoint-s3", "--checkpoint-s3-uri", metavar="S3URL", wanted="s3://BUCKET/PREFIX"
        ),
    )
    checkpoint_local_path: Line = Field(
        default=None,
        title="Checkpoints' folder",
        description="The path of --checkpoint-s3 in the container. Default: /opt/ml/checkpoints",
        json_schema_extra=_called(metavar="PATH", wanted="a path"),
    )
    volume_size: int = Field(
        default=30, ge=1, title="Disk", description="The disk of each instance, in GB. Default: 30"
    )
    max_run: Duration = Field(
        default=86400.0,
        ge=1,
        title="Longest run",
        description="The time after which SageMaker stops the job: 90m, 6h. Default: a day",
        json_schema_extra=_called(metavar="TIME", wanted="a time such as 3600, 90m or 6h"),
    )
    spot: bool = Field(
        default=False,
        title="Spot instances",
        description="Use spot instances. They cost less, but AWS can reclaim them",
        json_schema_extra=_called("--spot", "--use-spot-instances"),
    )
    max_wait: Duration | None = Field(
        default=None,
        ge=1,
        title="Longest wait",
        description="With --spot: the longest time of waiting and running together. Default: --max-run",
        json_schema_extra=_called(metavar="TIME", wanted="a time such as 7200, 90m or 6h"),
    )
    max_retry_attempts: int | None = Field(
        default=None,
        ge=1,
        le=30,
        title="Retries",
        description="How often SageMaker restarts a job after an internal error",
    )
    keep_alive: Duration = Field(
        default=0.0,
        ge=0,
        le=21600,
        title="Warm pool",
        description="Keep the instances for this time after the job, at most 6h. The next cell then "
        "starts on them. They cost money meanwhile",
        json_schema_extra=_called(
            "--keep-alive",
            "--keep-alive-period-in-seconds",
            metavar="TIME",
            wanted="a time of at most 6h, such as 10m",
        ),
    )
    hyperparameters: Annotated[dict[str, str], AfterValidator(_values)] = Field(
        default_factory=dict,
        title="Hyperparameters",
        description="A hyperparameter such as lr=0.1. The job's page shows it, and scripts read --lr 0.1 "
        "or SM_HP_LR. Repeatable",
        json_schema_extra=_called("--hyperparameters", "--hyperparameter", secrets=True),
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        title="Tags",
        description="A tag of the job such as team=vision. Repeatable",
        json_schema_extra=_called("--tags", "--tag"),
    )
    subnets: Ids = Field(
        default=None,
        title="Subnets",
        description="The subnets of your VPC for the job's instances. They need --security-group-ids",
        json_schema_extra=_called(metavar="ID,…", wanted="ids such as subnet-1,subnet-2"),
    )
    security_group_ids: Ids = Field(
        default=None,
        title="Security groups",
        description="The security groups of your VPC for the job's instances. They need --subnets",
        json_schema_extra=_called(metavar="ID,…", wanted="ids such as sg-1"),
    )
    encrypt_inter_container_traffic: bool = Field(
        default=False,
        title="Encrypt traffic",
        description="Encrypt the traffic between the instances, which makes it slower",
    )
    kms_key: Line = Field(
        default=None,
        title="KMS key of outputs",
        description="The KMS key with which SageMaker encrypts its uploads",
        json_schema_extra=_called(
            "--kms-key", "--output-kms-key", metavar="KEY", wanted="the id or ARN of a key"
        ),
    )
    volume_kms_key: Line = Field(
        default=None,
        title="KMS key of disks",
        description="The KMS key with which the disks of the instances are encrypted",
        json_schema_extra=_called(metavar="KEY", wanted="the id or ARN of a key"),
    )
    experiment: EntryName = Field(
        default=None,
        title="Experiment",
        description="The experiment in SageMaker Experiments that lists the job",
        json_schema_extra=_called(metavar="NAME", wanted="the name of an experiment"),
    )
    trial: EntryName = Field(
        default=None,
        title="Trial",
        description="The trial of --experiment that lists the job",
        json_schema_extra=_called(metavar="NAME", wanted="the name of a trial"),
    )
    trial_component: EntryName = Field(
        default=None,
        title="Trial component",
        description="The name of the job in the experiment",
        json_schema_extra=_called(metavar="NAME", wanted="a name"),
    )
    base_job_name: Annotated[str, AfterValidator(_job_name)] = Field(
        default="jupyter-dist",
        title="Job name",
        description="The beginning of the job's name. Default: jupyter-dist",
        json_schema_extra=_called(metavar="NAME", wanted="letters, digits and dashes"),
    )
    profile: Line = Field(
        default=None,
        title="Profile",
        description="The profile of ~/.aws/config for the login. Default: the environment, else default",
        json_schema_extra=_called(metavar="NAME", wanted="the name of a profile"),
    )
    region: Annotated[str | None, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] = Field(
        default=None,
        title="Region",
        description="The region of the job. Default: the profile's region, or AWS_REGION",
        json_schema_extra=_called(metavar="NAME", wanted="the name of a region such as us-east-1"),
    )
    grace: Duration = grace_field(600)

    @property
    def per_host(self) -> int:
        """Number of ranks on an instance if the user gives no -np."""
        return self.processes_per_host or (gpus_of(self.instance_type) if self.instance_type else None) or 1

    @property
    def ranks(self) -> int | None:
        return self.instance_count * self.per_host + self.servers

    @property
    def servers(self) -> int:
        """Number of ranks that are parameter servers. Without --ps it is the number of instances."""
        return self.ps or (self.instance_count if self.distribution == "parameter_server" else 0)

    @property
    def by_mpi(self) -> bool:
        """Whether mpirun starts a process for each rank, which lends the rank its place."""
        return self.distribution in ("mpi", "horovod", "smddp", "smmp")

    @property
    def used_framework(self) -> str:
        return self.framework or (
            "tensorflow" if self.distribution in ("mwms", "parameter_server") else "pytorch"
        )

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        if flag in _SECRETS:
            return (
                "would be readable in the notebook by everybody. Log in with `aws configure` or `aws "
                "sso login` and name its --profile, or set AWS_ACCESS_KEY_ID when you start "
                "JupyterLab"
            )
        if flag in ("--entry-point", "--source-dir", "--dependencies"):
            return (
                "is not needed, because the job runs the cell. The modules beside the notebook are "
                "sent with it"
            )
        if flag == "--enable-network-isolation":
            return (
                "would cut the job off from S3, which the run needs. Use --subnets of a VPC without "
                "internet access"
            )
        return None
