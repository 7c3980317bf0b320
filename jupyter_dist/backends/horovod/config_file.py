"""The file of horovodrun's --config-file: YAML with values for flags."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["read_config"]

_KEYS: Mapping[str, Mapping[str, str]] = {
    "params": {
        name: name
        for name in (
            "fusion_threshold_mb",
            "cycle_time_ms",
            "cache_capacity",
            "hierarchical_allreduce",
            "hierarchical_allgather",
            "torus_allreduce",
        )
    },
    "autotune": {
        "enabled": "autotune",
        "log_file": "autotune_log_file",
        "warmup_samples": "autotune_warmup_samples",
        "steps_per_sample": "autotune_steps_per_sample",
        "bayes_opt_max_samples": "autotune_bayes_opt_max_samples",
        "gaussian_process_noise": "autotune_gaussian_process_noise",
    },
    "timeline": {"filename": "timeline", "mark_cycles": "timeline_mark_cycles"},
    "stall_check": {
        "enabled": "no_stall_check",
        "warning_time_seconds": "stall_check_warning_time_seconds",
        "shutdown_time_seconds": "stall_check_shutdown_time_seconds",
    },
    "library_options": {
        name: name
        for name in ("mpi_threads_disable", "num_nccl_streams", "thread_affinity", "gloo_timeout_seconds")
    },
    "logging": {"level": "log_level", "with_timestamp": "log_without_timestamp"},
}
_OPPOSITE = ("no_stall_check", "log_without_timestamp")


def read_config(path: Path) -> dict[str, Any]:
    """Return the options in the file, by the names of their fields. Raises ValueError."""
    what = f"--config-file {str(path)!r}"
    yaml = importlib.import_module("yaml")  # a package that Horovod itself needs
    try:
        said = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{what} cannot be read: {error.strerror or error}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{what} is not a YAML file: {' '.join(str(error).split())}") from None
    found: dict[str, Any] = {}
    for section, content in _section(said, what):
        if section == "controller":
            if content not in ("gloo", "mpi"):
                raise ValueError(f"{what}: controller must be gloo or mpi, not {content!r}")
            found[str(content)] = True
            continue
        known = _KEYS.get(section)
        if known is None:
            raise ValueError(
                f"{what} has the unknown section {section!r}. Valid sections: controller, {', '.join(_KEYS)}"
            )
        for key, value in _section(content, f"{what}: {section}"):
            if key not in known:
                raise ValueError(
                    f"{what}: {section} has the unknown key {key!r}. Valid keys: {', '.join(known)}"
                )
            name = known[key]
            found[name] = not value if name in _OPPOSITE else value
    return found


def _section(content: Any, what: str) -> list[tuple[str, Any]]:
    if content is None:
        return []
    if not isinstance(content, Mapping):
        raise ValueError(f"{what} must contain names with values, got {content!r}")
    return [(str(name), value) for name, value in content.items() if value is not None]
