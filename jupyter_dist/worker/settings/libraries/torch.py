"""The settings of torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .setting import Setting, at, attribute, differing, pair

__all__ = ["TORCH"]


def _torch_dtype(torch: Any) -> str | None:
    name = str(torch.get_default_dtype()).rpartition(".")[2]
    return None if name == "float32" else name


def _torch_device(torch: Any) -> str | None:
    # torch.get_default_device() would make a tensor on the device, and would start CUDA in the notebook.
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    device = getattr(getattr(context, "device_context", context), "device", None)
    return None if device is None or str(device) == "cpu" else str(device)


def _set_torch_device(torch: Any, name: str) -> None:
    if name.partition(":")[0] != "cuda":
        torch.set_default_device(name)
        return
    from ... import api

    device = api.device()
    if device.type != "cuda":
        raise RuntimeError("this rank has no GPU")
    torch.set_default_device(device)  # the notebook's own GPU belongs to another rank here


def _torch_deterministic(torch: Any) -> str | None:
    if not torch.are_deterministic_algorithms_enabled():
        return None
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "error"


def _torch_float32(torch: Any) -> dict[str, Any] | None:
    """Return how float32 may be computed.

    torch refuses to read the older settings after the newer ones were used:
    https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """
    backends = torch.backends
    try:
        old = {
            "": torch.get_float32_matmul_precision(),
            "cuda.matmul.allow_tf32": backends.cuda.matmul.allow_tf32,
            "cudnn.allow_tf32": backends.cudnn.allow_tf32,
        }
        return differing(old, {"": "highest", "cuda.matmul.allow_tf32": False, "cudnn.allow_tf32": True})
    except RuntimeError:
        usual = dict.fromkeys(("", "cuda.matmul.", "mkldnn.", "mkldnn.matmul.", "cudnn."), "none")
        usual |= {"cudnn.conv.": "tf32", "cudnn.rnn.": "tf32"}
        usual = {f"{path}fp32_precision": value for path, value in usual.items()}
        return differing({path: at(backends, path) for path in usual}, usual)


def _set_torch_float32(torch: Any, wanted: Mapping[str, Any]) -> None:
    for path, value in wanted.items():
        owner, _, name = path.rpartition(".")
        if not path:
            torch.set_float32_matmul_precision(value)
        elif at(torch.backends, path) != value:
            setattr(at(torch.backends, owner) if owner else torch.backends, name, value)


_TORCH_PRINTS = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}


def _torch_prints(torch: Any) -> dict[str, Any] | None:
    options = sys.modules["torch._tensor_str"].PRINT_OPTS
    return differing({name: getattr(options, name) for name in _TORCH_PRINTS}, _TORCH_PRINTS)


def _torch_anomaly(torch: Any) -> list[bool] | None:
    return [torch.is_anomaly_check_nan_enabled()] if torch.is_anomaly_enabled() else None


TORCH: dict[str, tuple[Setting, ...]] = {
    "torch": (
        Setting("default dtype", _torch_dtype, lambda torch, n: torch.set_default_dtype(getattr(torch, n))),
        Setting("default device", _torch_device, _set_torch_device),
        pair("is_grad_enabled", "set_grad_enabled", True),
        Setting(
            "deterministic algorithms",
            _torch_deterministic,
            lambda torch, how: torch.use_deterministic_algorithms(True, warn_only=how == "warn"),
        ),
        Setting("float32 precision", _torch_float32, _set_torch_float32),
        attribute("backends.cudnn.enabled", True),
        attribute("backends.cudnn.benchmark", False),
        attribute("backends.cudnn.benchmark_limit", 10),
        attribute("backends.cudnn.deterministic", False),
        attribute("backends.cuda.matmul.allow_fp16_reduced_precision_reduction", True),
        attribute("backends.cuda.matmul.allow_bf16_reduced_precision_reduction", True),
        attribute("backends.mkldnn.enabled", True),
        pair("backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp", True),
        pair("backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp", True),
        pair("backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp", True),
        pair("backends.cuda.cudnn_sdp_enabled", "backends.cuda.enable_cudnn_sdp", True),
        Setting(
            "detect anomaly",
            _torch_anomaly,
            lambda torch, nan: torch.autograd.set_detect_anomaly(True, check_nan=nan[0]),
        ),
        Setting("print options", _torch_prints, lambda torch, wanted: torch.set_printoptions(**wanted)),
        pair(
            "multiprocessing.get_sharing_strategy", "multiprocessing.set_sharing_strategy", "file_descriptor"
        ),
        pair("get_num_threads", "set_num_threads", None),
    ),
}
