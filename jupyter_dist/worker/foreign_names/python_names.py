"""Private names of Python's standard library and of cloudpickle."""

from __future__ import annotations

from .private_name import Missing, Probe, Row

__all__ = ["ROWS"]

_REDUCERS = "worker/pickling/reducers"
_SYNC = "Detecting whether a lock of the notebook is free"
_POOLS = "Making a pool of the notebook again on a rank"
_INSIDE = "create it inside the cell"

ROWS: tuple[Row, ...] = (
    Row(
        "cloudpickle.cloudpickle",
        (
            *("_BUILTIN_TYPE_NAMES", "_DYNAMIC_CLASS_TRACKER_BY_CLASS", "_DYNAMIC_CLASS_TRACKER_BY_ID"),
            *("_DYNAMIC_CLASS_TRACKER_LOCK", "_class_reduce", "_class_setstate", "_code_reduce"),
            *("_dynamic_class_reduce", "_is_registered_pickle_by_value", "_lookup_class_or_track"),
            *("_lookup_module_and_qualname", "_make_empty_cell", "_make_function", "_make_skeleton_class"),
            "Pickler._function_getnewargs",
        ),
        ("worker/pickling/cloudpickle_parts",),
        Missing.REFUSE,
        "Sending functions and classes of the notebook",
        takes={
            "_make_function": ("code", "globals", "name", "argdefs", "closure"),
            "_lookup_class_or_track": ("class_tracker_id", "class_def"),
            "_class_setstate": ("obj", "state"),
        },
    ),
    Row(
        "threading",
        ("_RLock", "_RLock._is_owned"),
        (f"{_REDUCERS}/locks", f"{_REDUCERS}/__init__"),
        Missing.REFUSE,
        _SYNC,
        cure=_INSIDE,
    ),
    Row(
        "threading",
        ("_waiters",),
        (f"{_REDUCERS}/locks",),
        Missing.REFUSE,
        _SYNC,
        Probe.WRITTEN,
        cure=_INSIDE,
    ),
    Row(
        "threading",
        ("_target", "_args", "_kwargs"),
        (f"{_REDUCERS}/pools",),
        Missing.REFUSE,
        "Sending a thread that has not started",
        Probe.WRITTEN,
        cure=_INSIDE,
    ),
    Row(
        "_thread",
        ("LockType", "RLock", "_local"),
        (f"{_REDUCERS}/__init__", "worker/pickling/by_reference"),
        Missing.REFUSE,
        _SYNC,
        cure=_INSIDE,
    ),
    Row(
        "_queue",
        ("SimpleQueue",),
        (f"{_REDUCERS}/__init__", "worker/pickling/by_reference"),
        Missing.REFUSE,
        "Sending a SimpleQueue",
        cure=_INSIDE,
    ),
    Row(
        "queue",
        ("_PySimpleQueue",),
        (f"{_REDUCERS}/__init__",),
        Missing.REFUSE,
        "Sending a SimpleQueue",
        cure=_INSIDE,
    ),
    Row(
        "_contextvars",
        ("ContextVar",),
        (f"{_REDUCERS}/__init__", "worker/pickling/by_reference"),
        Missing.REFUSE,
        "Sending a context variable",
        cure=_INSIDE,
    ),
    Row(
        "_weakrefset",
        ("WeakSet",),
        (f"{_REDUCERS}/__init__",),
        Missing.REFUSE,
        "Sending a WeakSet",
        cure=_INSIDE,
    ),
    Row(
        "contextlib",
        ("_GeneratorContextManager",),
        (f"{_REDUCERS}/__init__", f"{_REDUCERS}/stdlib"),
        Missing.REFUSE,
        "Sending a context manager that a generator makes",
        cure=_INSIDE,
    ),
    Row(
        "concurrent.futures._base",
        ("Future", "Executor"),
        (f"{_REDUCERS}/__init__",),
        Missing.REFUSE,
        _POOLS,
        cure=_INSIDE,
    ),
    Row(
        "concurrent.futures.thread",
        (
            *("_max_workers", "_thread_name_prefix", "_initializer", "_initargs", "_shutdown"),
            *("_work_queue", "_idle_semaphore", "_threads"),
        ),
        (f"{_REDUCERS}/pools",),
        Missing.REFUSE,
        _POOLS,
        Probe.WRITTEN,
        cure=_INSIDE,
    ),
    Row(
        "threading", ("_value",), (f"{_REDUCERS}/pools",), Missing.REFUSE, _POOLS, Probe.WRITTEN, cure=_INSIDE
    ),
    Row(
        "concurrent.futures.process",
        (
            *("_max_workers", "_mp_context", "_initializer", "_initargs", "_shutdown_thread"),
            "_pending_work_items",
        ),
        (f"{_REDUCERS}/pools",),
        Missing.REFUSE,
        _POOLS,
        Probe.WRITTEN,
        cure=_INSIDE,
    ),
    Row(
        "concurrent.futures.process",
        ("_max_tasks_per_child",),
        (f"{_REDUCERS}/pools",),
        Missing.OFF,
        "Copying the notebook's limit of tasks to a pool of processes",
        Probe.WRITTEN,
        since=(3, 11),
    ),
    Row(
        "concurrent.futures.thread",
        ("_create_worker_context",),
        (f"{_REDUCERS}/pools",),
        Missing.REFUSE,
        "Making a pool of threads of the notebook again on a rank",
        Probe.WRITTEN,
        since=(3, 14),
    ),
    Row(
        "enum",
        ("_member_map_", "_value_", "_name_"),
        ("worker/pickling/classes",),
        Missing.REFUSE,
        "Sending an enum of the notebook",
        Probe.WRITTEN,
        cure="define it inside the cell",
    ),
    Row(
        "enum",
        ("_sort_order_",),
        ("worker/pickling/classes",),
        Missing.REFUSE,
        "Sending an enum of the notebook",
        Probe.WRITTEN,
        cure="define it inside the cell",
        since=(3, 11),
    ),
    Row(
        "enum",
        ("_inverted_",),
        ("worker/pickling/classes",),
        Missing.OFF,
        "Leaving out what a flag has computed",
        Probe.WRITTEN,
        since=(3, 11),
    ),
    Row(
        "functools",
        ("_clear_cache",),
        ("worker/pickling/singledispatch",),
        Missing.OFF,
        "Leaving out the cache of a generic function",
        Probe.WRITTEN,
    ),
    Row(
        "pickle",
        ("_Pickler", "_Pickler.save"),
        ("capture/preflight",),
        Missing.OFF,
        "Showing the path to what cannot be pickled",
        takes={"_Pickler.save": ("self", "obj", "save_persistent_id")},
    ),
    Row(
        "threading",
        ("_shutdown",),
        ("worker/boot",),
        Missing.OFF,
        "Waiting for pools of the cell when a rank ends",
    ),
    Row(
        "atexit", ("_run_exitfuncs",), ("worker/boot",), Missing.OFF, "Running exit handlers when a rank ends"
    ),
    Row(
        "weakref",
        ("finalize._registry",),
        ("processes/forking",),
        Missing.OFF,
        "Leaving exit handlers of the template to the template",
    ),
    Row(
        "importlib._bootstrap",
        ("_initializing",),
        ("worker/import_hooks", "worker/foreign_names/__init__"),
        Missing.OFF,
        "Detecting that an import has not ended",
        Probe.WRITTEN,
    ),
    Row(
        "logging",
        ("_levelToName",),
        ("capture/kernel_logging",),
        Missing.OFF,
        "Copying the names of log levels that the notebook has added",
    ),
    Row(
        "logging",
        ("_style", "_fmt"),
        ("capture/kernel_logging", "worker/settings/loggers"),
        Missing.OFF,
        "Copying the notebook's formatters",
        Probe.WRITTEN,
    ),
)
