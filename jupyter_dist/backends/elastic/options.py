"""The options of backends whose ranks may join and leave."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from ...cluster_form import Form
from ...errors import InputError
from ..interface import Options
from .rounds import Elastic

__all__ = ["ElasticOptions"]


def _ranks(title: str, description: str) -> Any:
    extra: dict[str, Any] = {"metavar": "N", "wanted": "a whole number of at least 1", "ranks": True}
    return Field(default=None, ge=1, title=title, description=description, json_schema_extra=extra)


class ElasticOptions(Options):
    """Limits of the number of ranks. A run is elastic if one of the first two is given."""

    form: ClassVar[Form] = Form(
        sections={
            "Elastic runs": ("min_np", "max_np", "elastic_timeout", "reset_limit"),
        },
    )

    min_np: int | None = _ranks(
        "Least ranks", "Elastic: continue with at least that many ranks if other ranks are lost. Default: -np"
    )
    max_np: int | None = _ranks(
        "Most ranks", "Elastic: start up to that many ranks when hosts join. Default: -np"
    )
    elastic_timeout: int | None = Field(
        default=None,
        ge=1,
        title="Elastic timeout",
        description="Elastic: seconds to wait for enough ranks. Default: 600",
    )
    reset_limit: int | None = Field(
        default=None,
        ge=0,
        title="Resets",
        description="Elastic: how often the ranks may change. Default: no limit",
    )

    @property
    def is_elastic(self) -> bool:
        return self.min_np is not None or self.max_np is not None

    def limits(self, world_size: int) -> Elastic | None:
        """Return the limits, or None if the number of ranks is fixed."""
        if not self.is_elastic:
            return None
        return Elastic(
            min_np=self.min_np or world_size,
            max_np=self.max_np or world_size,
            timeout_s=float(self.elastic_timeout or Elastic.timeout_s),
            reset_limit=self.reset_limit,
        )

    def check_elastic(self, world_size: int) -> None:
        """Raise InputError if the limits cannot work with that many first ranks."""
        if self.min_np is not None and self.min_np > world_size:
            raise InputError(f"--min-np {self.min_np} is more than -np {world_size}")
        if self.max_np is not None and self.max_np < world_size:
            raise InputError(f"--max-np {self.max_np} is less than -np {world_size}")

    @model_validator(mode="after")
    def _check_elastic_alone(self) -> ElasticOptions:
        for name in ("elastic_timeout", "reset_limit"):
            if getattr(self, name) is not None and not self.is_elastic:
                raise ValueError(
                    f"--{name.replace('_', '-')} works only with an elastic run. Add --min-np N, or remove it"
                )
        return self
