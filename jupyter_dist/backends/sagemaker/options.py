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
            f"needs the ARN of a role such as arn:aws:iam::123456789012:role/Train, got {value!r:.100}; "
            "`aws iam get-role --role-name NAME` tells it"
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
            raise ValueError(f"{name!r:.80}: a name has 256 characters at most, and a value 2500")
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
        description="The ARN of the role that the job has: it reads the inputs and writes to S3",
        json_schema_extra=_called(metavar="ARN", wanted="the ARN of a role"),
    )
    instance_type: Line = Field(
        default=None,
        title="Instance type",
        description="The job's machines, such as ml.g5.xlarge",
        json_schema_extra=_called(metavar="TYPE", wanted="the name of an instance type such as ml.g5.xlarge"),
    )
    instance_count: int = Field(
        default=1,
        ge=1,
        title="Instances",
        description="How many machines; the ranks are spread over them evenly. Default: 1",
        json_schema_extra={"ranks": True},
    )
    processes_per_host: int | None = Field(
        default=None,
        ge=1,
        title="Ranks per instance",
        description="How many ranks each machine takes. Default: one for each of its GPUs, or 1",
        json_schema_extra={"ranks": True},
    )
    distribution: Distribution | None = Field(
        default=None,
        title="Distribution",
        description="What the job's containers start its processes with. Default: nothing but our agent, "
        "which is enough for torch, TensorFlow and Horovod with Gloo",
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
        description="A parameter of the model parallel library, such as partitions=2; repeatable",
    )
    framework: Literal["pytorch", "tensorflow"] | None = Field(
        default=None,
        title="Framework",
        description="Whose AWS Deep Learning Container runs the ranks. Default: pytorch, or tensorflow with "
        "mwms and parameter_server",
    )
    framework_version: Annotated[str | None, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] = Field(
        default=None,
        title="Framework version",
        description="Default: the newest whose container has the notebook's Python",
        json_schema_extra=_called(metavar="VERSION", wanted="a version such as 2.6.0"),
    )
    py_version: Annotated[str | None, Field(pattern=r"^py3\d+$")] = Field(
        default=None,
        title="Python of the container",
        description="Default: the notebook's, which it has to be",
        json_schema_extra=_called(metavar="VERSION", wanted="a version such as py311"),
    )
    image: Line = Field(
        default=None,
        title="Image",
        description="Another image, with SageMaker's training toolkit in it",
        json_schema_extra=_called(
            "--image", "--image-uri", metavar="URI", wanted="the name of an image in ECR"
        ),
    )
    input: Annotated[dict[str, str], AfterValidator(check_channels)] = Field(
        default_factory=dict,
        title="Inputs",
        description="training=s3://BUCKET/PREFIX, with ,mode=File|FastFile|Pipe ,distribution=ShardedByS3Key "
        "and ,content_type=… behind it; efs:// and fsx://fs-ID/PATH,ro|rw likewise. "
        'dist.input("training") is where it lies. Repeatable',
        json_schema_extra=_called(metavar="NAME=URL[,…]", wanted="NAME=URL"),
    )
    input_mode: Literal["File", "FastFile", "Pipe"] = Field(
        default="File", title="Input mode", description="Of the inputs that say nothing of it. Default: File"
    )
    output_path: S3 = Field(
        default=None,
        title="Output path",
        description="Where in S3 model.tar.gz goes. Default: the account's SageMaker bucket",
        json_schema_extra=_called(metavar="S3URL", wanted="s3://BUCKET/PREFIX"),
    )
    code_location: S3 = Field(
        default=None,
        title="Mailbox",
        description="Where in S3 the code, the cell and all that ranks write pass through. "
        "Default: jupyter-dist in the account's SageMaker bucket",
        json_schema_extra=_called(
            "--code-location", "--mailbox", metavar="S3URL", wanted="s3://BUCKET/PREFIX"
        ),
    )
    checkpoint_s3: S3 = Field(
        default=None,
        title="Checkpoints",
        description="Where in S3 dist.checkpoint_dir() is kept, also for a job that goes on after an "
        "interruption",
        json_schema_extra=_called(
            "--checkpoint-s3", "--checkpoint-s3-uri", metavar="S3URL", wanted="s3://BUCKET/PREFIX"
        ),
    )
    checkpoint_local_path: Line = Field(
        default=None,
        title="Checkpoints' folder",
        description="Where --checkpoint-s3 lies in the container. Default: /opt/ml/checkpoints",
        json_schema_extra=_called(metavar="PATH", wanted="a path"),
    )
    volume_size: int = Field(
        default=30, ge=1, title="Disk", description="GB of each machine's disk. Default: 30"
    )
    max_run: Duration = Field(
        default=86400.0,
        ge=1,
        title="Longest run",
        description="After that SageMaker stops the job: 90m, 6h. Default: a day",
        json_schema_extra=_called(metavar="TIME", wanted="a time such as 3600, 90m or 6h"),
    )
    spot: bool = Field(
        default=False,
        title="Spot instances",
        description="Take spot instances, which cost less and may be taken away",
        json_schema_extra=_called("--spot", "--use-spot-instances"),
    )
    max_wait: Duration | None = Field(
        default=None,
        ge=1,
        title="Longest wait",
        description="With --spot: for how long the job may wait and run, taken together. Default: --max-run",
        json_schema_extra=_called(metavar="TIME", wanted="a time such as 7200, 90m or 6h"),
    )
    max_retry_attempts: int | None = Field(
        default=None,
        ge=1,
        le=30,
        title="Retries",
        description="How often SageMaker starts a job again that an internal error has ended",
    )
    keep_alive: Duration = Field(
        default=0.0,
        ge=0,
        le=21600,
        title="Warm pool",
        description="Keep the instances for so long after the job: the next cell starts on them. They cost "
        "meanwhile. At most 6h",
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
        description="Such as lr=0.1, for the job's page, and for scripts --lr 0.1 and SM_HP_LR; repeatable",
        json_schema_extra=_called("--hyperparameters", "--hyperparameter", secrets=True),
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        title="Tags",
        description="A tag of the job such as team=vision; repeatable",
        json_schema_extra=_called("--tags", "--tag"),
    )
    subnets: Ids = Field(
        default=None,
        title="Subnets",
        description="Of your VPC, for the job's machines; with --security-group-ids",
        json_schema_extra=_called(metavar="ID,…", wanted="ids such as subnet-1,subnet-2"),
    )
    security_group_ids: Ids = Field(
        default=None,
        title="Security groups",
        description="Of your VPC, for the job's machines; with --subnets",
        json_schema_extra=_called(metavar="ID,…", wanted="ids such as sg-1"),
    )
    encrypt_inter_container_traffic: bool = Field(
        default=False, title="Encrypt traffic", description="Between the machines, which is slower then"
    )
    kms_key: Line = Field(
        default=None,
        title="KMS key of outputs",
        description="With which SageMaker encrypts what it uploads",
        json_schema_extra=_called(
            "--kms-key", "--output-kms-key", metavar="KEY", wanted="the id or ARN of a key"
        ),
    )
    volume_kms_key: Line = Field(
        default=None,
        title="KMS key of disks",
        description="With which the machines' disks are encrypted",
        json_schema_extra=_called(metavar="KEY", wanted="the id or ARN of a key"),
    )
    experiment: EntryName = Field(
        default=None,
        title="Experiment",
        description="The entry of SageMaker Experiments that the job is listed under",
        json_schema_extra=_called(metavar="NAME", wanted="the name of an experiment"),
    )
    trial: EntryName = Field(
        default=None,
        title="Trial",
        description="The trial of --experiment that the job is listed under",
        json_schema_extra=_called(metavar="NAME", wanted="the name of a trial"),
    )
    trial_component: EntryName = Field(
        default=None,
        title="Trial component",
        description="Under which name the job is listed there",
        json_schema_extra=_called(metavar="NAME", wanted="a name"),
    )
    base_job_name: Annotated[str, AfterValidator(_job_name)] = Field(
        default="jupyter-dist",
        title="Job name",
        description="What the job's name begins with. Default: jupyter-dist",
        json_schema_extra=_called(metavar="NAME", wanted="letters, digits and dashes"),
    )
    profile: Line = Field(
        default=None,
        title="Profile",
        description="Whom to sign in as: a profile of ~/.aws/config. Default: the environment, else default",
        json_schema_extra=_called(metavar="NAME", wanted="the name of a profile"),
    )
    region: Annotated[str | None, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] = Field(
        default=None,
        title="Region",
        description="Default: the profile's, or AWS_REGION",
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
                "would stand in the notebook for everybody to read: sign in with `aws configure` or `aws sso "
                "login` and name its --profile, or set AWS_ACCESS_KEY_ID where JupyterLab is started"
            )
        if flag in ("--entry-point", "--source-dir", "--dependencies"):
            return "is not needed: the cell is what runs, and the modules beside the notebook travel with it"
        if flag == "--enable-network-isolation":
            return (
                "cuts the job off from S3, through which all passes here: use --subnets of a VPC without a "
                "way out"
            )
        return None
