"""The settings of Python's standard library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .setting import Setting, differing, pair

__all__ = ["PYTHON"]


_DECIMALS = {"prec": 28, "rounding": "ROUND_HALF_EVEN", "Emin": -999999, "Emax": 999999}
_DECIMALS |= {"capitals": 1, "clamp": 0}
_DECIMAL_TRAPS = ["DivisionByZero", "InvalidOperation", "Overflow"]


def _decimals(decimal: Any) -> dict[str, Any] | None:
    context = decimal.getcontext()
    now = {name: getattr(context, name) for name in _DECIMALS}
    now["traps"] = sorted(signal.__name__ for signal, trapped in context.traps.items() if trapped)
    return differing(now, {**_DECIMALS, "traps": _DECIMAL_TRAPS})


def _set_decimals(decimal: Any, wanted: Mapping[str, Any]) -> None:
    context = decimal.getcontext()
    for name, value in wanted.items():
        if name == "traps":
            for signal in context.traps:
                context.traps[signal] = signal.__name__ in value
        else:
            setattr(context, name, value)


_CATEGORIES = ("LC_CTYPE", "LC_COLLATE", "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "LC_MESSAGES")


def _locales(locale: Any) -> dict[str, str] | None:
    now = {name: locale.setlocale(getattr(locale, name)) for name in _CATEGORIES}
    # Python itself sets LC_CTYPE when it starts, from the environment.
    others = {name: value for name, value in now.items() if name != "LC_CTYPE"}
    return now if set(others.values()) != {"C"} else None


def _set_locales(locale: Any, wanted: Mapping[str, str]) -> None:
    missing = []
    for name, value in wanted.items():
        try:
            locale.setlocale(getattr(locale, name), value)
        except locale.Error:
            missing.append(value)
    if missing:
        raise RuntimeError(f"this machine does not have {', '.join(dict.fromkeys(missing))}")


def _start_method(multiprocessing: Any) -> str | None:
    chosen: str | None = multiprocessing.get_start_method(allow_none=True)
    usual = multiprocessing.get_all_start_methods()[0]
    return None if chosen == usual else chosen


PYTHON: dict[str, tuple[Setting, ...]] = {
    "sys": (
        pair("getrecursionlimit", "setrecursionlimit", 1000),
        pair("get_int_max_str_digits", "set_int_max_str_digits", 4300),
    ),
    "socket": (pair("getdefaulttimeout", "setdefaulttimeout", None),),
    "locale": (Setting("setlocale", _locales, _set_locales),),
    "decimal": (Setting("context", _decimals, _set_decimals),),
    "multiprocessing": (
        Setting("start method", _start_method, lambda mp, name: mp.set_start_method(name, force=True)),
    ),
}
