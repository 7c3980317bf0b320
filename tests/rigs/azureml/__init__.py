"""A workspace of Azure Machine Learning on this machine: jobs that really run, on hosts of namespaces.

    with AzurePlane(tmp_path) as plane:        # plane.environment is all that clients need
        plane.fail("PUT .*/jobs/", 429, "TooManyRequests", times=2, headers={"retry-after": "1"})
        plane.cancel(name)

Blobs are those of Microsoft's own emulator (azurite.py). Azure Resource Manager is a stand-in that answers
what Azure's SDK asks for a job, no more (plane.py; tools/capture_azureml.py has written down what that is).
A job's processes are started as the service says that it starts them (command_run.py).
"""

from .command_run import CommandRun
from .service import AzurePlane

__all__ = ["AzurePlane", "CommandRun"]
