"""Run a notebook without a browser and print what its cells say; exit 1 where one fails.

python tools/run_notebook.py notebooks/quickstart.ipynb

With `--check` no cell runs: `check` says what is looked at then.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import importlib
import importlib.util
import json
import os
import re
import symtable
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
STAND_INS = {
    "cluster": "0000-000000-any",
    "hostfile": "hostfile",
    "hosts": "localhost:4",
    "image": "any",
    "profile": "DEFAULT",
    "role": "arn:aws:iam::123456789012:role/any",
    "volume": "/Volumes/main/default/any",
}
"""What the variables in flags are when no cell has run."""
FILES = {
    "config.json": json.dumps({"subscription_id": "any", "resource_group": "any", "workspace_name": "any"}),
    "databrickscfg": "[DEFAULT]\nhost = https://none.example\ntoken = none\n",
    "hostfile": "localhost slots=4\n",
}
"""What the user of a notebook has in its folder, or in the home folder."""
SHELLS_OWN = {"_", "display", "exit", "get_ipython"}


def run(path: Path, timeout_s: int) -> bool:
    """Execute the notebook in its own folder, printing each cell's text when the cell has ended."""
    # They take 3 s of CPU, which those who only check do not need.
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

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


def check(path: Path) -> list[str]:
    """What is wrong with a notebook, as far as that can be told in a second. No cell runs, no engine starts.

    Its cells are Python, and use no name before a cell makes it. What they import is installed, and
    jupyter_dist has the names that they take from it. The lines of magics parse, and each distributed cell
    has a dry run.
    """
    problems: list[str] = []
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    known = {*vars(builtins), *SHELLS_OWN}
    with _a_users_folder() as folder:
        for number, cell in enumerate(cells, 1):
            source = "".join(cell["source"])
            try:
                found = list(_check_cell(source, known, folder))
            # Whatever the plan of a cell says: its message is what the user would read.
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
            problems += [f"{path.name}, code cell {number}: {problem}" for problem in found]
    return problems


def _check_cell(source: str, known: set[str], folder: Path) -> Iterator[str]:
    from IPython.core.inputtransformer2 import TransformerManager

    first, _, rest = source.partition("\n")
    if first.startswith("%%"):
        name, _, line = first.removeprefix("%%").partition(" ")
        if name != "distribute":
            yield f"%%{name} is no magic of jupyter_dist"
            return
        code = rest
        known |= set(re.findall(r"--tune '?(\w+)=", line))
        yield from _check_flags(line, code, known, folder)
    else:
        code = TransformerManager().transform_cell(source)
    tree = ast.parse(code)
    made, used = _names(code)
    yield from (f"{name} is used, and no cell has made it" for name in sorted(used - made - known))
    for node in ast.walk(tree):
        yield from _check_imports(node)
        yield from _check_line_magic(node)
    known |= made


def _names(code: str) -> tuple[set[str], set[str]]:
    """The global names that a cell makes, and those that it uses."""
    made, used = set[str](), set[str]()
    tables = [symtable.symtable(code, "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() == "module" or symbol.is_global():
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                    made.add(symbol.get_name())
                elif symbol.is_referenced():
                    used.add(symbol.get_name())
    return made, used


def _check_flags(line: str, code: str, known: set[str], folder: Path) -> Iterator[str]:
    from jupyter_dist import start
    from jupyter_dist.plan.run_plan import make_plan, read_command_line

    names = {first or second for first, second in re.findall(r"\{(\w+)\}|\$(\w+)", line)}
    for name in sorted(names):
        if name not in known:
            yield f"{name} stands in its flags, and no cell has made it"
        if name not in STAND_INS:
            yield f"say in STAND_INS of {Path(__file__).name} what {name} may be"
    given = read_command_line(
        line, expand=lambda text: re.sub(r"\{(\w+)\}|\$(\w+)", lambda m: STAND_INS[m[1] or m[2]], text)
    )
    if given.rest:
        yield f"its flags end with {given.rest[0]!r}"
    plan = make_plan(given.given)
    if plan.run.out is not None:
        known.add(plan.run.out)
    json.dumps(start.describe("\n" + code, dict.fromkeys(known), plan, start.Origin("In[1]", folder)))


def _check_imports(node: ast.AST) -> Iterator[str]:
    modules: list[str] = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
    for module in modules:
        package = module.split(".")[0]
        if importlib.util.find_spec(package) is None:
            yield f"{package} is not installed"
        elif package == "jupyter_dist":
            ours = importlib.import_module(module)
            if isinstance(node, ast.ImportFrom):
                yield from (
                    f"{module} has no {alias.name}" for alias in node.names if not hasattr(ours, alias.name)
                )
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dist":
        import jupyter_dist

        if not hasattr(jupyter_dist, node.attr):
            yield f"jupyter_dist has no {node.attr}"


def _check_line_magic(node: ast.AST) -> Iterator[str]:
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "get_ipython().run_line_magic"):
        return
    name, line = (ast.literal_eval(argument) for argument in node.args)
    if name == "dist":
        from jupyter_dist.commands.completion import complete

        word = line.split()[0]
        if word not in complete("%dist ")[1]:
            yield f"%dist has no command {word!r}"
    elif name not in ("distribute", "load_ext", "matplotlib"):
        yield f"%{name} is no magic of jupyter_dist"


@contextlib.contextmanager
def _a_users_folder() -> Iterator[Path]:
    """A folder with the files that users have, in which this process is while it checks."""
    before, began_in = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text)
        os.environ |= {
            "AWS_DEFAULT_REGION": "us-east-1",
            "DATABRICKS_CONFIG_FILE": str(folder / "databrickscfg"),
            "JUPYTER_DIST_RUNS": str(folder / "runs"),
        }
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(began_in)
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a notebook without a browser and print what it says.")
    parser.add_argument("notebook", type=Path, nargs="+")
    parser.add_argument("--timeout", type=int, default=300, metavar="S", help="seconds for one cell")
    parser.add_argument("--check", action="store_true", help="run no cell, and look whether each could run")
    arguments = parser.parse_args()
    paths = [path.absolute() for path in arguments.notebook]
    if arguments.check:
        found = [problem for path in paths for problem in check(path)]
        print("\n".join(found), end="\n" if found else "")
        sys.exit(1 if found else 0)
    sys.exit(0 if all(run(path, arguments.timeout) for path in paths) else 1)
