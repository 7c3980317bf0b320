"""Amazon SageMaker on this machine: training jobs that really run, on hosts of namespaces, and S3.

    with SageMakerPlane(tmp_path) as plane:      # plane.environment is all that clients need
        plane.fail("CreateTrainingJob", 400, "ThrottlingException", times=2)
        plane.stop(job.name); plane.interrupt(job.name)

S3, CloudWatch Logs and whatever else is not told of here are moto's. moto's own training jobs are over at
once and run nothing, so those calls are answered here: requests are checked against AWS's model of the
service (service_model.py), AWS's own toolkits (toolkits.py) run in containers (container.py) on the instances
`algo-1` and `algo-2` (instances.py), which find their inputs there (channels.py); what they write goes to
CloudWatch, secondary states and times are told, and model.tar.gz is uploaded (training.py). Faults are
answers in place of the service's (endpoint.py).
"""

from .job import Job
from .service import SageMakerPlane
from .service_model import Refusal, check

__all__ = ["Job", "Refusal", "SageMakerPlane", "check"]
