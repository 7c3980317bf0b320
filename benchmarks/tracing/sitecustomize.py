"""Record when functions of jupyter-dist begin and end, from outside: `$BENCHMARK_STEPS` is the file.

Python imports this module at its start, because its folder is in PYTHONPATH. Each line of the file has a
function, its process, and the clock, the CPU time and the page faults at its beginning and its end.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import resource
import sys
import time
from types import ModuleType
from typing import Any

STEPS = {
    "jupyter_dist.magics": "DistMagics.distribute",
    "jupyter_dist.plan.run_plan": "read_command_line make_plan",
    "jupyter_dist.start.run_start": "payload_of_cell _launch",
    "jupyter_dist.start.session_cells": "check_session cell_in_session _ask_about",
    "jupyter_dist.record.sessions": "find_session",
    "jupyter_dist.capture.source": "parse",
    "jupyter_dist.capture.session.names": "choose",
    "jupyter_dist.capture.payload_builder": "capture_cell",
    "jupyter_dist.capture.kernel_settings": "read",
    "jupyter_dist.capture.second_part": "build",
    "jupyter_dist.launch.submission": "_create _write _start_warm",
    "jupyter_dist.launch.session_link": "ask wake",
    "jupyter_dist.launch.provenance": "note_down _collect",
    "jupyter_dist.launch.template": "_launch _Template.preload _Template.launch",
    "jupyter_dist.showing.live": "_Follower.__init__",
    "jupyter_dist.showing.screens": "KernelScreen._draw",
    "jupyter_dist.supervise.supervisor": "supervise _Supervision.__init__ keep_room oom_kills try_lock",
    "jupyter_dist.supervise.session.server": "Server._take_message Server._run_next Server.write",
    "jupyter_dist.supervise.session.cell_run": "Waiting.__init__ CellRun.run CellRun.finish",
    "jupyter_dist.supervise.session.cell": "CellCaller._begin CellCaller._poll CellCaller.answered",
    "jupyter_dist.supervise.attempt": "Attempt.__init__ Attempt._take",
    "jupyter_dist.supervise.guard": "Guard.__init__",
    "jupyter_dist.supervise.status_writer": "open_log StatusWriter.write",
    "jupyter_dist.supervise.wakeup": "Wakeup.__init__",
    "jupyter_dist.backends": "declared load",
    "jupyter_dist.backends.local.backend": "Local.submit _specs",
    "jupyter_dist.worker.host.ports": "free_ports",
    "jupyter_dist.processes.rank_processes": "Processes.start _start",
    "jupyter_dist.processes.forking": "_become_rank adopt _set_threads fork_rank dismiss_ranks",
    "jupyter_dist.worker.random_state": "reseed",
    "jupyter_dist.worker.boot": "start move die_with_parent set_name _open_output _signals "
    "_line_buffer_c_stdout _open_handler_note _open_events",
    "jupyter_dist.worker.session.rank_loop": "_Rank._run _Inbox.next",
    "jupyter_dist.worker.session.process_group": "begin_cell",
    "jupyter_dist.worker.session.kept_names": "KeptNames.enter KeptNames.load KeptNames.begin "
    "KeptNames.assigned KeptNames.kinds",
    "jupyter_dist.worker.session.global_reads": "global_reads",
    "jupyter_dist.worker.stacks_file": "open_in",
    "jupyter_dist.worker.rank.cell": "run _execute _run_cell",
    "jupyter_dist.worker.rank.error_report": "keep_room",
    "jupyter_dist.worker.rank.shipped_modules": "install",
    "jupyter_dist.worker.rank.main_snapshot": "prepare hand_on",
    "jupyter_dist.worker.rank.search_path": "own",
    "jupyter_dist.worker.debugger": "Prompting.__enter__",
    "jupyter_dist.worker.hints": "begin",
    "jupyter_dist.worker.hints.torch_training": "patch",
    "jupyter_dist.worker.steps": "begin",
    "jupyter_dist.worker.autolog": "install",
    "jupyter_dist.worker.payload": "load read_header",
    "jupyter_dist.worker.settings": "before_names after_names",
    "jupyter_dist.worker.settings.library_calls": "repeat",
    "jupyter_dist.worker.settings.libraries": "write",
    "jupyter_dist.worker.settings.loggers": "apply_loggers apply_filters",
    "jupyter_dist.worker.settings.seeds": "apply",
    "jupyter_dist.worker.import_hooks": "AfterImport.install",
}


def _write(path: str, line: dict[str, Any]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, json.dumps(line).encode() + b"\n")
    os.close(fd)


def _record(path: str, name: str, function: Any) -> Any:
    @functools.wraps(function)
    def recording(*args: Any, **kwargs: Any) -> Any:
        def mark(when: str) -> None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu = used.ru_utime + used.ru_stime
            moment = time.monotonic_ns()
            _write(
                path, {"step": name, when: moment, "pid": os.getpid(), "cpu": cpu, "faults": used.ru_minflt}
            )

        mark("begin")
        try:
            return function(*args, **kwargs)
        finally:
            mark("end")

    return recording


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, path: str) -> None:
        self._loader, self._path = loader, path

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for name in STEPS[module.__name__].split():
            owner: Any = module
            *outer, last = name.split(".")
            for part in outer:
                owner = getattr(owner, part)
            short = module.__name__.removeprefix("jupyter_dist.")
            setattr(owner, last, _record(self._path, f"{short}.{name}", getattr(owner, last)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in STEPS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._path)
        return spec


if "BENCHMARK_STEPS" in os.environ:
    sys.meta_path.insert(0, _Finder(os.environ["BENCHMARK_STEPS"]))
