"""Run a notebook without a browser and print what its cells say; exit 1 where one fails.

python tools/run_notebook.py notebooks/quickstart.ipynb
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def run(path: Path, timeout_s: int) -> bool:
    """Execute the notebook in its own folder, printing each cell's text when the cell has ended."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=timeout_s,
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_executed=_print_outputs,
    )
    # Over unix sockets: no port is opened, and the kernel has no reason to warn of one.
    # In a folder of their own, because the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="jd-") as sockets:
        manager = client.create_kernel_manager()
        manager.transport = "ipc"
        manager.connection_file = str(Path(sockets, "kernel.json"))
        try:
            client.execute()
        except CellExecutionError:
            return False
    return True


def _print_outputs(cell: Any, **_: Any) -> None:
    for output in cell.outputs:
        if output.output_type == "stream":
            text = output.text
        elif output.output_type == "error":
            text = "\n".join(output.traceback)
        else:
            text = output.data.get("text/plain", "")
        if text.strip():
            print(COLOURS.sub("", text).rstrip("\n"), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a notebook without a browser and print what it says.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--timeout", type=int, default=300, metavar="S", help="seconds for one cell")
    arguments = parser.parse_args()
    sys.exit(0 if run(arguments.notebook, arguments.timeout) else 1)
