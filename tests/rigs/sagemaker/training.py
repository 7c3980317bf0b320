"""A training job's life: instances, inputs, containers, logs, and what is left of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import channels
from .instances import Instances, NoCapacity
from .job import Job

if TYPE_CHECKING:
    from .service import SageMakerPlane

__all__ = ["LOGS", "Training"]

LOGS = "/aws/sagemaker/TrainingJobs"
_CONTAINER = str(Path(__file__).with_name("container.py"))
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHECKPOINTS = "/opt/ml/checkpoints"
_OF_IMAGES = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "UTF-8",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
}
"""What AWS's images set. https://github.com/aws/deep-learning-containers/tree/master/pytorch/training/docker"""
_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML "
    "instance type."
)


class Training:
    """Runs one job in a thread of its own."""

    def __init__(self, plane: SageMakerPlane, job: Job) -> None:
        self._plane, self._job, self._request = plane, job, job.request
        self._hosts = [f"algo-{n + 1}" for n in range(self._request["ResourceConfig"]["InstanceCount"])]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        threading.Thread(target=self._work, name=f"job {job.name}", daemon=True).start()

    def _work(self) -> None:
        job = self._job
        try:
            while True:
                final, reason = self._run_on_instances()
                if final != "Interrupted":
                    break
                job.enter("Interrupted", "Training job interrupted")
                time.sleep(1.0)
                job.interrupted.clear()
                job.enter("Restarting", "Preparing the instances for training")
        except NoCapacity:
            final, reason = "Failed", _CAPACITY
        except channels.NoData as error:
            final, reason = "Failed", f"ClientError: {error}"
        except Exception as error:
            final, reason = "Failed", f"InternalServerError: {error}"
            self._plane.own_faults.note(f"job {job.name}")
        job.reason, job.ended = reason, time.time()
        job.enter(final)
        job.status = {"MaxRuntimeExceeded": "Stopped"}.get(final, final)

    def _run_on_instances(self) -> tuple[str, str | None]:
        job, pool = self._job, self._plane.pool
        job.enter("Starting", "Preparing the instances for training")
        instances, kept_by = pool.take(self._request)
        keep_s = 0
        try:
            if kept_by is None:
                self._plane.cold_starts += 1
            else:
                kept_by.pool = {"Status": "Reused", "ReusedByJob": job.name}
            final, reason = self._run(instances)
            keep_s = self._request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
            if keep_s and final != "Interrupted":
                job.pool = {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 0}
            return final, reason
        finally:
            pool.give(instances, self._request, job, keep_s)

    def _run(self, instances: Instances) -> tuple[str, str | None]:
        job = self._job
        job.enter("Downloading", "Downloading input data")
        for host in self._hosts:
            self._lay_out(instances, host)
        job.began = job.began or time.time()
        job.enter("Training", "Training image download completed. Training in progress.")
        pumps = []
        for host in self._hosts:
            self._processes[host] = self._start(instances, host)
            pumps.append(threading.Thread(target=self._pump, args=(host,), daemon=True))
            pumps[-1].start()
        over = self._until_over()
        instances.end(_CONTAINER, self._processes)
        for pump in pumps:
            pump.join(30)
        self._keep_checkpoints(instances)
        if over == "Interrupted":
            return over, None
        job.enter("Uploading", "Uploading generated training model")
        self._upload(instances)
        if over is not None:
            return over, None
        failed = [host for host in self._hosts if self._processes[host].returncode]
        if not failed:
            return "Completed", None
        told = instances.folder(failed[0], "/opt/ml/output").get("failure", b"").decode(errors="replace")
        code = self._processes[failed[0]].returncode
        return "Failed", f"AlgorithmError: {told[:1024]}, exit code: {code}"

    def _until_over(self) -> str | None:
        """Until the containers have ended or one has failed, or why they have to end."""
        job = self._job
        while any(process.poll() is None for process in self._processes.values()):
            if job.asked.is_set():
                return job.final
            if job.interrupted.is_set():
                return "Interrupted"
            if any(process.poll() for process in self._processes.values()):
                return None
            time.sleep(0.05)
        return None

    def _lay_out(self, instances: Instances, host: str) -> None:
        """What a container finds in /opt/ml.
        https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-running-container.html"""
        instances.renew(host)
        request = self._request
        kind, group = request["ResourceConfig"]["InstanceType"], "homogeneousCluster"
        config = {
            "resourceconfig": {
                "current_host": host,
                "current_instance_type": kind,
                "current_group_name": group,
                "hosts": self._hosts,
                "instance_groups": [
                    {"instance_group_name": group, "instance_type": kind, "hosts": self._hosts}
                ],
                "network_interface_name": "eth0",
            },
            "hyperparameters": request.get("HyperParameters", {}),
            "inputdataconfig": channels.config(request),
        }
        for name, content in config.items():
            instances.write(host, f"/opt/ml/input/config/{name}.json", json.dumps(content).encode())
        for name, data in self._checkpoints().items():
            instances.write(host, f"{self._checkpoints_folder()}/{name}", data)
        plane = self._plane
        channels.lay_out(request, instances, host, self._hosts, plane.s3, plane.file_systems)

    def _start(self, instances: Instances, host: str) -> subprocess.Popen[bytes]:
        url = self._plane.url_for(instances.hosts)
        toolkits = str(self._plane.toolkits)
        env = {
            "PATH": f"{self._plane.python.parent}:{_PATH}",
            "PYTHONPATH": toolkits,
            **_OF_IMAGES,
            "TRAINING_JOB_NAME": self._job.name,
            "AWS_REGION": self._plane.region,
            # The role's, which the container's platform gives out for some hours.
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": f"/v2/credentials/{self._job.name}",
            "AWS_ENDPOINT_URL": url,
            "S3_ENDPOINT_URL": url,
            **self._request.get("Environment", {}),
        }
        image = self._request["AlgorithmSpecification"]["TrainingImage"]
        return instances.run(host, [str(self._plane.python), _CONTAINER, image], env)

    def _pump(self, host: str) -> None:
        """What a container writes goes to CloudWatch."""
        logs = self._plane.logs
        stream = f"{self._job.name}/{host}-{time.time():.0f}"
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_stream(logGroupName=LOGS, logStreamName=stream)
        stdout = self._processes[host].stdout
        assert stdout is not None
        lines = self._job.lines.setdefault(host, [])
        begun = b""
        with stdout:
            while data := os.read(stdout.fileno(), 1 << 20):
                *whole, begun = (begun + data).split(b"\n")
                self._tell(stream, lines, [line.decode(errors="replace") for line in whole])
        if begun:
            self._tell(stream, lines, [begun.decode(errors="replace")])

    def _tell(self, stream: str, lines: list[str], new: list[str]) -> None:
        lines += new
        now = int(time.time() * 1000)
        events = [{"timestamp": now, "message": line or " "} for line in new]
        for begin in range(0, len(events), 10_000):  # of one call
            several = events[begin : begin + 10_000]
            self._plane.logs.put_log_events(logGroupName=LOGS, logStreamName=stream, logEvents=several)

    def _checkpoints_folder(self) -> str:
        return str(self._request["CheckpointConfig"].get("LocalPath", _CHECKPOINTS))

    def _checkpoints(self) -> dict[str, bytes]:
        """What lies in S3 of an earlier time, which every host gets."""
        if "CheckpointConfig" not in self._request:
            return {}
        bucket, prefix = _place(self._request["CheckpointConfig"]["S3Uri"])
        names = self._plane.names(bucket, prefix)
        return {
            name[len(prefix) :].strip("/"): self._plane.s3.get_object(Bucket=bucket, Key=name)["Body"].read()
            for name in names
        }

    def _keep_checkpoints(self, instances: Instances) -> None:
        """What lies in the folder goes to S3: there, as it is written, and here, at the end."""
        if "CheckpointConfig" not in self._request:
            return
        bucket, prefix = _place(self._request["CheckpointConfig"]["S3Uri"])
        for host in self._hosts:
            for name, data in instances.folder(host, self._checkpoints_folder()).items():
                self._plane.s3.put_object(Bucket=bucket, Key=f"{prefix.strip('/')}/{name}", Body=data)

    def _upload(self, instances: Instances) -> None:
        for name, folder in (("model.tar.gz", "/opt/ml/model"), ("output.tar.gz", "/opt/ml/output/data")):
            files: dict[str, bytes] = {}
            for host in reversed(self._hosts):
                files |= instances.folder(host, folder)
            if not files:
                continue
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz") as archive:
                for path, data in files.items():
                    entry = tarfile.TarInfo(path)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
            bucket, key = _place(self._job.output(name))
            self._plane.s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue())


def _place(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key
