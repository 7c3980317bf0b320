"""The options of the backend `spark`."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator

from ...cluster_form import Form
from ...errors import InputError
from ...option_fields import flag
from ..ranks.tensorflow_roles import RoleOptions
from ..shared_options.agent import AgentOptions, Duration, Line, grace_field
from ..shared_options.gpus import GpuOptions
from . import notebook_session

__all__ = ["SparkOptions", "host_and_port"]

_MASTER = re.compile(
    r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|k8s://\S+"
    r"|spark://[^\s:,/]+:\d+(,[^\s:,/]+:\d+)*/?|sc://\S+"
)
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|credential")
"""Pattern of the settings that Spark itself hides (spark.redaction.regex)."""


def _master(value: str | None) -> str | None:
    if value is not None and not _MASTER.fullmatch(value):
        raise ValueError(
            "needs local[4], local-cluster[2,1,1024], spark://HOST:7077, yarn, k8s://…, or sc://HOST for "
            f"Spark Connect, got {value!r}"
        )
    if value is not None and value.startswith("sc://") and re.search(r"(?i)[;/]token=", value):
        raise ValueError(
            "cannot contain a token, because jupyter-dist would write it into the run's folder. "
            "Remove --master, and set the variable SPARK_REMOTE to the whole URL, before the "
            "notebook starts or with %env"
        )
    return value


def _conf(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if not re.fullmatch(r"spark\.\S+", name):
            raise ValueError(f"needs NAME=VALUE with a name that begins with spark., got the name {name!r}")
        if _SECRET.search(name):
            raise ValueError(
                f"cannot contain {name}, because jupyter-dist would write its value into the run's "
                "folder. Write it to $SPARK_HOME/conf/spark-defaults.conf, or open the session in "
                "the notebook and remove --master"
            )
    return value


class SparkOptions(AgentOptions, GpuOptions, RoleOptions):
    """Options of the backend `spark`."""

    form: ClassVar[Form] = Form(
        first=("master", "np", "gpus_per_worker", "python", "conf"),
        sections={
            "Session": "wait_for_slots driver_address on_driver",
        },
    )

    master: Annotated[str | None, AfterValidator(_master)] = flag(
        None,
        "Master",
        "The cluster: spark://HOST:7077, yarn, k8s://…, local[4], or sc://HOST for Spark "
        "Connect. Default: the notebook's own Spark session, else SPARK_REMOTE, else spark-defaults.conf",
        "--master",
        "--remote",
        value=("URL", "the URL of a Spark"),
    )
    conf: Annotated[dict[str, str], AfterValidator(_conf)] = flag(
        {},
        "Settings",
        "A setting of the session that --master makes. Repeatable",
        metavar="NAME=VALUE",
        secrets=True,
    )
    python: Line = flag(
        None,
        "Python",
        "The Python of the executors. It must have the notebook's version. Default: "
        "PYSPARK_PYTHON, else python3, or the notebook's own Python if the executors are on "
        "its machine",
        value=("PATH", "the path of a Python"),
    )
    on_driver: bool = flag(
        False,
        "On the driver",
        "Use no Spark: start the workers on this machine. A negative -np does the same",
    )
    wait_for_slots: Duration = flag(
        600.0,
        "Wait for slots",
        "How long to wait if the cluster has fewer task slots than workers: 90, 10m. Default: 10m",
        ge=0,
        value=("TIME", "a time, such as 90s or 10m"),
    )
    driver_address: Line = flag(
        None,
        "Driver's address",
        "The address of this machine for the executors: HOST or HOST:PORT. Default: the "
        "address of Spark's driver, with a free port",
        value=("HOST[:PORT]", "a host, or a host and a port"),
    )
    grace: Duration = grace_field(60)

    @classmethod
    def meant_by(cls, np: int) -> dict[str, Any]:
        """Return HorovodRunner's meaning of numbers below 1.

        A negative number is a number of processes on the driver. 0 is all slots of the cluster
        (https://docs.databricks.com/aws/en/machine-learning/train-model/distributed-training/horovod-runner).
        """
        if np < 0:
            return {"np": -np, "on_driver": True}
        slots = notebook_session.slots_here()
        if not slots:
            raise InputError(
                "-np 0 means all task slots, and only an open Spark session of the notebook has "
                "their number. HorovodRunner has deprecated -np 0. Write the number, such as -np 4"
            )
        return {"np": slots}


def host_and_port(text: str) -> tuple[str, int]:
    """Parse `HOST` or `HOST:PORT`. The default port is 0. Raises InputError."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), 0
    if not port.isdecimal() or not host or not 0 < int(port) < 65536:
        raise InputError(f"--driver-address needs HOST or HOST:PORT, got {text!r}")
    return host.strip("[]"), int(port)
