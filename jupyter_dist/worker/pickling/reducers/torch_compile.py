"""Functions and modules under `torch.compile`: the original and its options are sent, and a rank compiles it.

The options are read from private attributes of torch (tested with 2.13). If they are missing, a note states
that the rank compiles with torch's defaults.
https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

import types
from typing import Any

from . import Note, torch_training

__all__ = ["copied_marks", "reduce", "reduce_function"]

_HOME = "torch._dynamo.eval_frame"
_MARKS = (
    "_torchdynamo_",
    "_isolate_recompiles_id",
    "_is_torch_compile",
    "get_compiler_config",
    "aot_compile",
)
_HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")


def reduce_function(function: types.FunctionType, note: Note) -> Any:
    """Reduce a function of `torch.compile` or `torch.compiler.disable`; None for any other function."""
    own = function.__dict__
    original = own.get("_torchdynamo_orig_callable")
    if original is None or function.__globals__.get("__name__") != _HOME:
        return None
    if own.get("_torchdynamo_disable"):
        return _not_compiled, (original, own.get("_torchdynamo_disable_msg"))
    context = _free(function).get("self")
    return _compiled, (original, _options(context, str(own.get("__name__", function.__name__)), note))


def copied_marks(function: types.FunctionType) -> set[str]:
    """Return the marks that `functools.wraps` has copied from a compiled function to a wrapper around it.

    The marks are wrong on the wrapper.
    """
    if "_torchdynamo_orig_callable" not in function.__dict__:
        return set()
    return {name for name in function.__dict__ if name.startswith(_MARKS)}


def reduce(obj: Any, note: Note) -> Any:
    """Reduce a compiled `torch.nn.Module`, or one that has compiled itself in place."""
    if "_orig_mod" in vars(obj).get("_modules", {}):
        module = vars(obj)["_modules"]["_orig_mod"]
        context = vars(obj).get("dynamo_ctx")
        if type(context).__name__ == "DisableContext":
            return _not_compiled, (module, getattr(context, "msg", None))
        if type(context).__name__ == "OptimizeContext":
            hooks = {k: v for k, v in vars(obj).items() if k.endswith(_HOOKS) and v}
            options = _options(context, type(module).__name__, note)
            return _compiled, (module, options), hooks, None, None, _set_hooks
        return NotImplemented
    parametrized = torch_training.reduce_parametrized(obj)
    if parametrized is not None:
        return parametrized
    call = vars(obj).get("_compiled_call_impl")
    if call is None:
        return NotImplemented
    maker, arguments, *rest = obj.__reduce_ex__(5)
    state = rest[0] if rest else None
    options = _options(_free(call).get("self"), type(obj).__name__, note)
    return maker, arguments, (state, options), None, None, _set_and_compile


def _free(function: Any) -> dict[str, Any]:
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells else ()
    return {name: cell.cell_contents for name, cell in zip(names, cells)}


def _options(context: Any, name: str, note: Note) -> dict[str, Any]:
    """Return the arguments with which `torch.compile` was called."""
    try:
        backend = context.callback
        while hasattr(backend, "_torchdynamo_orig_backend"):
            backend = backend._torchdynamo_orig_backend
        options: dict[str, Any] = {"fullgraph": context.fullgraph, "dynamic": context._dynamic}
        if type(backend).__name__ == "_TorchCompileInductorWrapper":
            options["options"] = dict(backend.config) or None
            if getattr(backend, "name", None) is not None:
                options["name"] = backend.name
        elif type(backend).__name__ == "_TorchCompileWrapper":
            how = backend.kwargs
            options |= {
                "backend": backend.compiler_fn,
                "mode": how.get("mode"),
                "options": how.get("options"),
            }
        else:
            options["backend"] = backend
        if getattr(context, "_isolate_recompiles_id", -1) != -1:
            options["isolate_recompiles"] = True
        if getattr(context, "_shapes_spec", None) is not None:
            options["shapes_spec"] = context._shapes_spec
        guards = getattr(getattr(context, "_hooks", None), "guard_filter_fn", None)
        if guards is not None:
            options["options"] = {**(options.get("options") or {}), "guard_filter_fn": guards}
    except AttributeError as error:
        note(f"ranks compile {name} with torch.compile's defaults: its own options were not found ({error})")
        return {}
    return options


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _compiled(function: Any, options: dict[str, Any]) -> Any:
    import torch

    return torch.compile(function, **options)


def _not_compiled(function: Any, reason: str | None) -> Any:
    import torch

    return torch.compiler.disable(function, **({} if reason is None else {"reason": reason}))


def _set_hooks(module: Any, hooks: dict[str, Any]) -> None:
    vars(module).update(hooks)


def _set_and_compile(module: Any, state: tuple[Any, dict[str, Any]]) -> None:
    attributes, options = state
    if hasattr(module, "__setstate__"):
        module.__setstate__(attributes)
    else:
        vars(module).update(attributes or {})
    module.compile(**options)
