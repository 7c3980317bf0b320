"""The settings of numpy, pandas, matplotlib and scikit-learn."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .setting import Setting, differing

__all__ = ["ARRAYS"]


_NUMPY_PRINTS = {
    **{"edgeitems": 3, "threshold": 1000, "floatmode": "maxprec", "precision": 8, "suppress": False},
    **{"linewidth": 75, "nanstr": "nan", "infstr": "inf", "sign": "-", "formatter": None, "legacy": False},
}
_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def _pandas_options(pandas: Any) -> dict[str, Any] | None:
    """Read the options without `pd.get_option`, which warns of deprecated options and returns no default."""
    config = sys.modules["pandas._config.config"]
    found = {}
    for name, option in config._registered_options.items():
        value = config._global_config
        for part in name.split("."):
            value = value[part]
        if value is not option.defval and value != option.defval:
            found[name] = value
    return found or None


def _set_pandas_options(pandas: Any, wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        pandas.set_option(name, value)


_NOT_A_RANKS = ("backend", "interactive", "toolbar", "webagg", "tk.", "macosx.", "savefig.directory")


def _plot_settings(matplotlib: Any) -> dict[str, Any] | None:
    """Return the differences from matplotlib's defaults, including those of style sheets and a matplotlibrc.

    `rcParams[...]` is avoided, because it looks for a backend. Settings of windows are left out: a rank draws
    to files.
    """
    found = {}
    usual = dict(dict.items(matplotlib.rcParamsDefault))
    for name, value in dict.items(matplotlib.rcParams):
        if name.startswith(_NOT_A_RANKS) or value == usual.get(name):
            continue
        found[name] = {"cycler": value.by_key()} if hasattr(value, "by_key") else value
    return found or None


def _set_plot_settings(matplotlib: Any, wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if isinstance(value, dict) and "cycler" in value:
            value = sys.modules["cycler"].cycler(**value["cycler"])
        matplotlib.rcParams[name] = value


_SKLEARN = {
    **{"assume_finite": False, "working_memory": 1024, "print_changed_only": True, "display": "diagram"},
    **{"pairwise_dist_chunk_size": 256, "enable_cython_pairwise_dist": True, "array_api_dispatch": False},
    **{"transform_output": "default", "enable_metadata_routing": False, "skip_parameter_validation": False},
    "sparse_interface": "spmatrix",
}


ARRAYS: dict[str, tuple[Setting, ...]] = {
    "numpy": (
        Setting(
            "print options",
            lambda numpy: differing(numpy.get_printoptions(), _NUMPY_PRINTS),
            lambda numpy, wanted: numpy.set_printoptions(**wanted),
        ),
        Setting(
            "seterr",
            lambda numpy: differing(numpy.geterr(), _NUMPY_ERRORS),
            lambda numpy, wanted: numpy.seterr(**wanted),
        ),
    ),
    "pandas": (Setting("options", _pandas_options, _set_pandas_options),),
    "matplotlib": (Setting("rcParams", _plot_settings, _set_plot_settings),),
    "sklearn": (
        Setting(
            "config",
            lambda sklearn: differing(sklearn.get_config(), _SKLEARN),
            lambda sklearn, wanted: sklearn.set_config(**wanted),
        ),
    ),
}
