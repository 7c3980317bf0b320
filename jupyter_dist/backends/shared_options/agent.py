"""The options of every backend whose hosts run our agent."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from ...cluster_form import Form
from ...errors import InputError
from ...hosts.settings import HostSettings
from ...option_fields import flag
from ...text.format import parse_duration
from ..interface import Options

__all__ = ["AgentOptions", "Duration", "Line", "LocalFile", "OtherPythonOptions", "grace_field", "read_yaml"]


def _one_line(value: str | None) -> str | None:
    if value is not None and ("\n" in value or "\0" in value or not value.strip()):
        raise ValueError(f"needs one line of text, got {value!r}")
    return value


def _absolute(value: str | None) -> str | None:
    return None if value is None else os.path.abspath(os.path.expanduser(value))


Line = Annotated[str | None, AfterValidator(_one_line)]
LocalFile = Annotated[Line, AfterValidator(_absolute)]
"""A path on the notebook's machine, relative to its folder or to `~`."""
Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds, also written as 90s or 10m."""


def read_yaml(flag: str, path: str) -> Any:
    """Return the content of a YAML file that an option names. Raises InputError."""
    import yaml

    try:
        return yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{flag}: {path!r} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{flag}: {path!r} is not YAML: {' '.join(str(error).split())}") from None


def grace_field(seconds: int) -> Any:
    """Return the field `AgentOptions.grace` with another default."""
    return flag(
        float(seconds),
        "Grace",
        "How long ranks keep running while their host and this machine cannot reach each "
        f"other: 90, 90s, 10m. Then the ranks end. Default: {seconds}",
        ge=5,
        value=("TIME", "a time of at least 5 seconds, such as 90s or 10m"),
    )


def _own_first(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Sort the help and the form: first what the form shows at once, then a backend's other own options.

    These options come last.
    """
    assert issubclass(model, Options)
    fields, first = schema["properties"], model.form.first

    def place(name: str) -> int:
        if name in first:
            return first.index(name)
        others = 2 if name in AgentOptions.model_fields else int(name not in model.__annotations__)
        return len(first) + others

    schema["properties"] = {name: fields[name] for name in sorted(fields, key=place)}


class AgentOptions(Options):
    """The folder of our agents for a run's files, and how long they wait."""

    model_config = ConfigDict(json_schema_extra=_own_first)

    form: ClassVar[Form] = Form(
        sections={
            "Hosts": "remote_dir grace",
        },
    )

    remote_dir: Line = flag(
        HostSettings.remote_dir,
        "Remote folder",
        "The folder for the run's files on the hosts while the run lasts. Default: "
        f"{HostSettings.remote_dir}",
        value=("DIR", "the path of a folder"),
    )
    grace: Duration = grace_field(300)

    def agent_settings(self) -> HostSettings:
        return HostSettings(self.remote_dir or HostSettings.remote_dir, self.grace)


class OtherPythonOptions(AgentOptions):
    """The option for hosts with another version of Python than the notebook."""

    form: ClassVar[Form] = Form(
        sections={
            "Hosts": "other_python",
        },
    )

    other_python: bool = flag(
        False,
        "Other Python",
        "The hosts' Python may have another version than the notebook's, from 3.9 on. The run's files then "
        "contain the whole text of your cells. Default: hosts need the notebook's version",
    )

    def agent_settings(self) -> HostSettings:
        return dataclasses.replace(super().agent_settings(), other_python=self.other_python)
