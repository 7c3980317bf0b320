"""A notebook's shell in this process, with the extension loaded."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import jupyter_dist
from jupyter_dist import clusters
from jupyter_dist.launch import template
from jupyter_dist.start import last_run, session_default

__all__ = ["notebook_shell"]


@contextlib.contextmanager
def notebook_shell(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[InteractiveShell]:
    """Open a shell in this folder. Without the fixture `warm` its ranks start cold."""
    monkeypatch.chdir(folder)
    warm = template.wanted()  # only by the fixture, as long as there is no shell
    monkeypatch.setattr(template, "wanted", lambda: warm)
    monkeypatch.setattr(template, "observe", lambda namespace: None)
    monkeypatch.setattr(last_run, "_last_run_id", None)
    monkeypatch.setattr(clusters, "_used", None)
    monkeypatch.setattr(session_default, "_name", None)
    main = sys.modules["__main__"]
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False  # type: ignore[union-attr]
    shell.reset()
    jupyter_dist.load_ipython_extension(shell)
    yield shell
    if warm:
        monkeypatch.setattr(template, "close", lambda: None)  # other tests use it too
    jupyter_dist.unload_ipython_extension(shell)
    shell.history_manager.end_session()  # type: ignore[union-attr]
    InteractiveShell.clear_instance()
    sys.modules["__main__"] = main
