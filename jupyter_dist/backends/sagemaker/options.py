"""The options of the backend `sagemaker`, with the names of the SageMaker SDK's estimators."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from ...cluster_form import Form
from ...option_fields import flag
from ..shared_options.agent import Duration, Line, grace_field
from ..shared_options.instances import InstanceOptions
from .channels import check_channels
from .instance_types import gpus_of
from .option_values import S3, EntryName, ExactName, Ids, JobName, Role, Values

__all__ = ["Distribution", "SageMakerOptions"]

Distribution = Literal["torchrun", "mpi", "horovod", "smddp", "smmp", "mwms", "parameter_server"]

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


class SageMakerOptions(InstanceOptions):
    """Options of the backend `sagemaker`."""

    node_names: ClassVar[str] = "algo-{1}"
    form: ClassVar[Form] = Form(
        first=("role", "region", "instance_type", "instance_count", "input", "spot"),
        places=("profile",),
        sections={
            "Ranks": "np processes_per_host distribution mpi_options mp_parameters ps",
            "Container": "framework framework_version py_version other_python image",
            "Data and outputs": "input_mode output_path code_location checkpoint_s3 checkpoint_local_path",
            "Time and cost": "spot max_run max_wait max_retry_attempts keep_alive volume_size",
            "Account": "profile",
            "Network and keys": (
                "subnets security_group_ids encrypt_inter_container_traffic kms_key volume_kms_key"
            ),
            "Name and labels": (
                "hyperparameters tags experiment trial trial_component base_job_name job_name"
            ),
        },
    )

    role: Role = flag(
        None,
        "Role",
        "The ARN of the job's role, which reads the inputs and writes to S3",
        value=("ARN", "the ARN of a role"),
    )
    instance_type: Line = flag(
        None,
        "Instance type",
        "The instance type of the job, such as ml.g5.xlarge",
        value=("TYPE", "the name of an instance type such as ml.g5.xlarge"),
    )
    processes_per_host: int | None = flag(
        None,
        "Ranks per instance",
        "The number of ranks on each instance. Default: one per GPU, or 1",
        ge=1,
        ranks=True,
    )
    distribution: Distribution | None = flag(
        None,
        "Distribution",
        "The launcher in the job's containers. Default: only the agent, which is enough for "
        "torch, TensorFlow and Horovod with Gloo",
    )
    mpi_options: Line = flag(
        None,
        "mpirun options",
        "More options for mpirun, with mpi, horovod, smddp and smmp",
        "--mpi-options",
        "--custom-mpi-options",
        value=("OPTIONS", "options of mpirun"),
    )
    mp_parameters: Values = flag(
        {},
        "Parameters of smmp",
        "A parameter of the model parallel library, such as partitions=2. Repeatable",
    )
    framework: Literal["pytorch", "tensorflow"] | None = flag(
        None,
        "Framework",
        "The framework whose AWS Deep Learning Container runs the ranks. Default: pytorch, "
        "or tensorflow with mwms and parameter_server",
    )
    framework_version: Annotated[str | None, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] = flag(
        None,
        "Framework version",
        "The version of the framework. Default: the newest one whose container has the notebook's Python",
        value=("VERSION", "a version such as 2.6.0"),
    )
    py_version: Annotated[str | None, Field(pattern=r"^py3\d+$")] = flag(
        None,
        "Python of the container",
        "The Python of the container. It must be the notebook's version, which is the default",
        value=("VERSION", "a version such as py311"),
    )
    image: Line = flag(
        None,
        "Image",
        "Another image, which must contain SageMaker's training toolkit",
        "--image",
        "--image-uri",
        value=("URI", "the name of an image in ECR"),
    )
    input: Annotated[dict[str, str], AfterValidator(check_channels)] = flag(
        {},
        "Inputs",
        "training=s3://BUCKET/PREFIX, efs:// or fsx://fs-ID/PATH,ro|rw. Options follow an S3 "
        "URL: ,mode=File|FastFile|Pipe ,distribution=ShardedByS3Key and ,content_type=…. On "
        'a rank, dist.input("training") is its path. Repeatable',
        value=("NAME=URL[,…]", "NAME=URL"),
    )
    input_mode: Literal["File", "FastFile", "Pipe"] = flag(
        "File", "Input mode", "The mode of inputs that name none. Default: File"
    )
    output_path: S3 = flag(
        None,
        "Output path",
        "The S3 location of model.tar.gz. Default: the account's SageMaker bucket",
        value=("S3URL", "s3://BUCKET/PREFIX"),
    )
    code_location: S3 = flag(
        None,
        "Mailbox",
        "The S3 location for the code, the cell and the output of the ranks. Default: "
        "jupyter-dist in the account's SageMaker bucket",
        "--code-location",
        "--mailbox",
        value=("S3URL", "s3://BUCKET/PREFIX"),
    )
    checkpoint_s3: S3 = flag(
        None,
        "Checkpoints",
        "The S3 location of dist.checkpoint_dir(). It also keeps the files of a job that "
        "continues after an interruption",
        "--checkpoint-s3",
        "--checkpoint-s3-uri",
        value=("S3URL", "s3://BUCKET/PREFIX"),
    )
    checkpoint_local_path: Line = flag(
        None,
        "Checkpoints' folder",
        "The path of --checkpoint-s3 in the container. Default: /opt/ml/checkpoints",
        needs=("checkpoint_s3",),
        value=("PATH", "a path"),
    )
    volume_size: int = flag(30, "Disk", "The disk of each instance, in GB. Default: 30", ge=1)
    max_run: Duration = flag(
        86400.0,
        "Longest run",
        "The time after which SageMaker stops the job: 90m, 6h. Default: a day",
        ge=1,
        value=("TIME", "a time such as 3600, 90m or 6h"),
    )
    spot: bool = flag(
        False,
        "Spot instances",
        "Use spot instances. They cost less, but AWS can reclaim them",
        "--spot",
        "--use-spot-instances",
    )
    max_wait: Duration | None = flag(
        None,
        "Longest wait",
        "With --spot: the longest time of waiting and running together. Default: --max-run",
        needs=("spot",),
        ge=1,
        value=("TIME", "a time such as 7200, 90m or 6h"),
    )
    max_retry_attempts: int | None = flag(
        None, "Retries", "How often SageMaker restarts a job after an internal error", ge=1, le=30
    )
    keep_alive: Duration = flag(
        0.0,
        "Warm pool",
        "Keep the instances for this time after the job, at most 6h. The next cell then "
        "starts on them. They cost money meanwhile",
        "--keep-alive",
        "--keep-alive-period-in-seconds",
        excludes={"spot": "A warm pool needs instances on demand"},
        ge=0,
        le=21600,
        value=("TIME", "a time of at most 6h, such as 10m"),
    )
    hyperparameters: Values = flag(
        {},
        "Hyperparameters",
        "A hyperparameter such as lr=0.1. The job's page shows it, and scripts read --lr 0.1 "
        "or SM_HP_LR. Repeatable",
        "--hyperparameters",
        "--hyperparameter",
        secrets=True,
    )
    tags: dict[str, str] = flag(
        {}, "Tags", "A tag of the job such as team=vision. Repeatable", "--tags", "--tag"
    )
    subnets: Ids = flag(
        None,
        "Subnets",
        "The subnets of your VPC for the job's instances. They need --security-group-ids",
        needs=("security_group_ids",),
        value=("ID,…", "ids such as subnet-1,subnet-2"),
    )
    security_group_ids: Ids = flag(
        None,
        "Security groups",
        "The security groups of your VPC for the job's instances. They need --subnets",
        needs=("subnets",),
        value=("ID,…", "ids such as sg-1"),
    )
    encrypt_inter_container_traffic: bool = flag(
        False, "Encrypt traffic", "Encrypt the traffic between the instances, which makes it slower"
    )
    kms_key: Line = flag(
        None,
        "KMS key of outputs",
        "The KMS key with which SageMaker encrypts its uploads",
        "--kms-key",
        "--output-kms-key",
        value=("KEY", "the id or ARN of a key"),
    )
    volume_kms_key: Line = flag(
        None,
        "KMS key of disks",
        "The KMS key with which the disks of the instances are encrypted",
        value=("KEY", "the id or ARN of a key"),
    )
    experiment: EntryName = flag(
        None,
        "Experiment",
        "The experiment in SageMaker Experiments that lists the job",
        value=("NAME", "the name of an experiment"),
    )
    trial: EntryName = flag(
        None,
        "Trial",
        "The trial of --experiment that lists the job",
        needs=("experiment",),
        value=("NAME", "the name of a trial"),
    )
    trial_component: EntryName = flag(
        None,
        "Trial component",
        "The name of the job in the experiment",
        value=("NAME", "a name"),
        needs=("experiment",),
    )
    base_job_name: JobName = flag(
        "jupyter-dist",
        "Job name",
        "The beginning of the job's name. Default: jupyter-dist",
        value=("NAME", "letters, digits and dashes"),
    )
    job_name: ExactName = flag(
        None,
        "Exact job name",
        "The name of the training job or of the tuning job. If the account already has a job of that name, "
        "the run's id follows the name",
        value=("NAME", "letters, digits and dashes"),
        excludes={"base_job_name": "It is the beginning of a name"},
    )
    profile: Line = flag(
        None,
        "Profile",
        "The profile of ~/.aws/config for the login. Default: the environment, else default",
        value=("NAME", "the name of a profile"),
    )
    region: Annotated[str | None, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] = flag(
        None,
        "Region",
        "The region of the job. Default: the profile's region, or AWS_REGION",
        value=("NAME", "the name of a region such as us-east-1"),
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
