"""Policies for ending trials early, as people write them: `bandit(slack_factor=0.1,evaluation_interval=2)`.

The policies are those of Azure ML's sweep jobs. Their parameters have the names of its SDK.
https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters#early-termination

An error message continues a sentence that begins with the flag's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from .written_call import read_call

__all__ = ["ALONE", "WRITTEN", "Kind", "Policy", "read_policy"]

ALONE = "on"
"""Value in place of a policy: the backend's own rule."""
Kind = Literal["bandit", "median", "truncation"]
WRITTEN = rf"({'|'.join(get_args(Kind))})(\(.*)?"
"""Pattern of a policy for `read_policy`. The text in the parentheses may still be wrong."""
_OF_ALL = {"evaluation_interval": 1, "delay_evaluation": 0}
_OWN: Mapping[str, tuple[str, ...]] = {
    "bandit": ("slack_factor", "slack_amount"),
    "median": (),
    "truncation": ("truncation_percentage",),
}
_EXAMPLES = {
    "bandit": "bandit(slack_factor=0.1)",
    "median": "median",
    "truncation": "truncation(truncation_percentage=20)",
}


@dataclass(frozen=True)
class Policy:
    """Policy for ending trials early.

    `evaluation_interval`: how many values a trial logs between two checks.
    `delay_evaluation`: how many values a trial logs before the first check.
    `own`: the parameters that only this kind has.
    """

    kind: Kind
    evaluation_interval: int = 1
    delay_evaluation: int = 0
    own: Mapping[str, float] = field(default_factory=dict)


def read_policy(text: str) -> Policy:
    """Parse a policy. Raises ValueError, whose message contains a valid form."""
    call = read_call(text, {kind: (*own, *_OF_ALL) for kind, own in _OWN.items()})
    if call is None:
        known = ", ".join(_EXAMPLES.values())
        raise ValueError(f"needs {known}, or no value for the backend's own rule, got {text!r:.80}")
    kind = cast(Kind, call[0])
    found = {name: _number(name, value) for name, value in call[1].items()}
    own = {name: found[name] for name in _OWN[kind] if name in found}
    if _OWN[kind] and len(own) != 1:
        raise ValueError(f"{kind} needs {' or '.join(_OWN[kind])}, as in {_EXAMPLES[kind]}")
    every, after = (int(found.get(name, default)) for name, default in _OF_ALL.items())
    return Policy(kind, every, after, own)


def _number(name: str, text: str) -> float:
    whole = name not in ("slack_factor", "slack_amount")
    low, high = {"evaluation_interval": (1, None), "truncation_percentage": (1, 99)}.get(name, (0, None))
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = -1
    if not low <= value < float("inf") or (high is not None and value > high) or (value == 0 and not whole):
        wanted = f"from {low} to {high}" if high else f"of at least {low}" if whole else "above 0"
        raise ValueError(f"{name} must be a {'whole ' * whole}number {wanted}, got {text!r:.80}")
    return value
