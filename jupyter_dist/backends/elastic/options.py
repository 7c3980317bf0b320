"""The options of backends whose ranks may join and leave."""

from __future__ import annotations

from typing import ClassVar

from ...cluster_form import Form
from ...errors import InputError
from ...option_fields import flag
from ..ranks.tensorflow_roles import RoleOptions
from .rounds import Elastic

__all__ = ["ElasticOptions"]

_ROLES = dict.fromkeys(("ps", "chief", "evaluator"), "Ranks of an elastic run have no TensorFlow roles")


class ElasticOptions(RoleOptions):
    """Limits of the number of ranks. A run is elastic if one of the first two is given."""

    form: ClassVar[Form] = Form(sections={"Elastic runs": "min_np max_np elastic_timeout reset_limit"})

    min_np: int | None = flag(
        None,
        "Least ranks",
        "Elastic: continue with at least that many ranks if other ranks are lost. Default: -np",
        ge=1,
        excludes=_ROLES,
        value=("N", "a whole number of at least 1"),
        ranks=True,
    )
    max_np: int | None = flag(
        None,
        "Most ranks",
        "Elastic: start up to that many ranks when hosts join. Default: -np",
        ge=1,
        excludes=_ROLES,
        value=("N", "a whole number of at least 1"),
        ranks=True,
    )
    elastic_timeout: int | None = flag(
        None,
        "Elastic timeout",
        "Elastic: seconds to wait for enough ranks. Default: 600",
        ge=1,
        needs=("min_np", "max_np"),
    )
    reset_limit: int | None = flag(
        None,
        "Resets",
        "Elastic: how often the ranks may change. Default: no limit",
        ge=0,
        needs=("min_np", "max_np"),
    )

    @property
    def no_session(self) -> str | None:
        if self.is_elastic:
            return "--min-np and --max-np do not work with --session, whose ranks neither join nor leave"
        return None

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
