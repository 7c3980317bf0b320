"""What the package promises as a whole: a light import, layers, complete `__all__`, docs that agree."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist import errors
from jupyter_dist.worker import layout
from tests.tiers.import_graph import MODULES, ROOT, imports

ENGINES = {
    "boto3",
    "botocore",
    "horovod",
    "keras",
    "kubernetes",
    "lightning",
    "optuna",
    "pyspark",
    "ray",
    "sklearn",
    "tensorflow",
    "tf_keras",
    "torch",
    "transformers",
    "websockets",
}
HEAVY = {*ENGINES, "IPython", "numpy", "pandas", "pydantic"}

# The folders are the way of a cell, from what people type to what runs on a rank. A part imports from those
# below it in this list, never back, lazy imports included.
PARTS = [
    *("__init__", "__main__", "magics", "commands", "databricks"),
    "server",
    "start",
    "showing",
    "manage",
    "tuning",
    "launch",
    "capture",
    "plan",
    "queries",  # below all that acts: a question changes nothing
    "clusters",
    "supervise",
    "backends",
    "processes",
    "hosts",
    "record",
    *("options", "debug_options", "option_values", "host_list", "flags", "option_fields", "cluster_form"),
    *("folder", "job"),
    "search",
    "text",
    "errors",
    "agent",
    "worker",
]
FACE = {"__init__", "__main__", "magics", "commands", "databricks"}
"""What people type is one part in several modules."""


RUN_FILES = [
    *(layout.JOB, layout.PAYLOAD, layout.STATE, layout.SUPERVISOR_LOG, layout.RESUME_LOCK),
    layout.TRIALS,
    *(layout.OUTPUT, layout.TIMES, layout.EVENTS, layout.RESULT, layout.RESULT_BUFFERS, layout.ERROR),
    *(
        layout.EXIT,
        layout.STACKS,
        layout.launcher_log(),
        "attempts/",
        "/checkpoints/",
        "/modules/",
        "/requests/",
    ),
]


def part_of(module: str) -> str:
    """`jupyter_dist.worker.api` belongs to the part `worker`."""
    return module.split(".")[1] if "." in module else "__init__"


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


_SMALL = frozenset(
    "__future__ _collections _collections_abc _functools _operator _py_warnings _sre _stat _types _typing "
    "abc annotationlib collections contextlib copyreg enum functools genericpath itertools keyword operator "
    "os posixpath re reprlib stat types typing warnings".split()
)
"""Modules of the standard library that `typing` and `contextlib` import."""


def test_import_is_light() -> None:
    """It imports nothing else of ours, and of the standard library what is there anyway, or is small."""
    code = "import json, sys; before = {*sys.modules}; import jupyter_dist; "
    code += "print(json.dumps([*{*sys.modules} - before]))"
    loaded = set(json.loads(run_python(code)))
    assert {name for name in loaded if name.startswith("jupyter_dist")} == {"jupyter_dist"}
    assert {name.split(".")[0] for name in loaded} - {"jupyter_dist"} - _SMALL == set()


def test_a_rank_imports_nothing_that_few_cells_need() -> None:
    code = "import json, sys; import jupyter_dist.worker.__main__; print(json.dumps([*sys.modules]))"
    assert {"asyncio", "email", "importlib.metadata", "ssl"} & set(json.loads(run_python(code))) == set()


@pytest.mark.parametrize(
    "statement",
    ["import jupyter_dist", "import jupyter_dist as dist; dist.rank(); dist.world_size()"],
)
def test_import_brings_nothing_else(statement: str) -> None:
    code = f"""
import json, sys
before = set(sys.modules)
{statement}
print(json.dumps(sorted({{name.split(".")[0] for name in set(sys.modules) - before}})))
"""
    foreign = (
        set(json.loads(run_python(code))) - set(sys.stdlib_module_names) - {"jupyter_dist", "cloudpickle"}
    )
    assert foreign == set()


def test_no_module_imports_an_engine() -> None:
    code = f"""
import importlib, json, sys
for name in {[name for name in MODULES if not name.endswith("__main__")]!r}:
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""
    loaded = {name.split(".")[0] for name in json.loads(run_python(code))}
    assert loaded & {*ENGINES, "pandas"} == set()


def test_a_part_imports_from_those_below_it() -> None:
    broken = []
    for module in MODULES:
        own = part_of(module)
        if own == "conformance":
            continue
        if own not in PARTS:
            broken.append(f"{module}: say in PARTS of {Path(__file__).name} where {own!r} belongs")
            continue
        above = {part for part in PARTS[: PARTS.index(own)] if not (own in FACE and part in FACE)}
        ours = {name for name in imports(MODULES[module], everywhere=True) if name.startswith("jupyter_dist")}
        wrong = sorted(name for name in ours if part_of(name) in above)
        broken += [f"{module} imports {name}, which stands above {own!r} in PARTS" for name in wrong]
    assert broken == [], "\n".join(broken)


def test_the_files_of_a_run_are_named_in_one_module() -> None:
    """worker/layout.py. Docstrings may say the names; folders' names that are common words count in paths."""
    broken = []
    for module, path in MODULES.items():
        if module == "jupyter_dist.worker.layout":
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docs = {node.value for node in nodes if isinstance(node, ast.Expr)}
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and node not in docs]
        texts += [f"/{part.value}/" for node in nodes for part in _joined(node)]
        said = "\n".join(text for text in texts if isinstance(text, str))
        named = [name for name in RUN_FILES if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said)]
        broken += [f"{module} names {name!r}, which worker/layout.py names" for name in named]
    assert broken == [], "\n".join(broken)


def _joined(node: ast.AST) -> Iterator[Any]:
    """Words that code puts into a path: `run / "modules"`, `os.path.join(run, "modules")`."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.path.join", "Path"):
        parts = node.args
    yield from (part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside of functions, and those for type checkers, count too."""
    left = {
        module: {name for name in imports(path, everywhere=True, typing=True) if name in MODULES} - {module}
        for module, path in MODULES.items()
    }
    # A module that imports none of those that are left is in no circle, nor is one that none of them imports.
    while True:
        outer = {module for module, found in left.items() if not found & left.keys()}
        outer |= left.keys() - set().union(*left.values())
        if not outer:
            break
        left = {module: found for module, found in left.items() if module not in outer}
    assert left == {}


def test_no_package_gives_the_name_of_its_own_module_to_something_else() -> None:
    """Which of the two is found would depend on what was imported before."""
    for name, path in MODULES.items():
        own = {module.removeprefix(f"{name}.") for module in MODULES if module.startswith(f"{name}.")}
        for node in ast.parse(path.read_text()).body if path.name == "__init__.py" else ():
            if isinstance(node, ast.ImportFrom) and (node.level != 1 or node.module is not None):
                assert {alias.asname or alias.name for alias in node.names} & own == set(), name
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert node.name not in own, name


def test_no_folder_has_more_than_20_modules() -> None:
    folders = Counter(path.parent for path in MODULES.values())
    assert {str(folder): count for folder, count in folders.items() if count > 20} == {}


def test_no_module_of_the_front_end_is_long() -> None:
    sources = [path for path in (ROOT / "labextension" / "src").rglob("*.ts*") if path.is_file()]
    assert [path.name for path in sources if path.read_text().count("\n") > 400] == []


def test_no_part_of_the_list_is_gone() -> None:
    assert {*PARTS, "conformance"} == {part_of(name) for name in MODULES}


def test_worker_needs_only_the_standard_library() -> None:
    """It ships itself to machines where nothing is installed."""
    broken = []
    for module, path in MODULES.items():
        if part_of(module) not in ("agent", "worker"):
            continue
        at_import = {name.split(".")[0] for name in imports(path, everywhere=False)}
        foreign = at_import - set(sys.stdlib_module_names) - {"jupyter_dist", "cloudpickle"}
        broken += [
            f"{module} imports {name}, which is not in the standard library" for name in sorted(foreign)
        ]
    assert broken == [], "\n".join(broken)


def test_docstring_and_length() -> None:
    broken = []
    for module, path in MODULES.items():
        text = path.read_text()
        if not ast.get_docstring(ast.parse(text)):
            broken.append(f"{module} does not say what it does")
        if text.count("\n") > 400:
            broken.append(f"{module} has {text.count(chr(10))} lines, more than 400: split it")
    assert broken == [], "\n".join(broken)


def test_all_is_complete() -> None:
    """Each public function and class of a public module stands in `__all__`, and nothing is missing there.

    Ruff keeps it sorted.
    """
    broken = []
    for module, path in MODULES.items():
        if "._" in module or module.endswith("__main__"):
            continue
        public = {
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        } - {"load_ipython_extension", "unload_ipython_extension"}
        loaded = importlib.import_module(module)
        listed = getattr(loaded, "__all__", [])
        broken += [f"{module}: __all__ lacks {name}" for name in sorted(public - set(listed))]
        broken += [
            f"{module}: __all__ lists {name}, which is not there"
            for name in listed
            if not hasattr(loaded, name)
        ]
        broken += [f"{module}: __all__ lists {name} twice" for name in set(listed) if listed.count(name) > 1]
    assert broken == [], "\n".join(broken)


def test_no_public_name_is_a_module() -> None:
    """`from .run import Run` anywhere would put the module in place of `jupyter_dist.run`."""
    modules = {part_of(name) for name in MODULES}
    assert modules & set(jupyter_dist.__all__) == set()


def test_the_tree_in_errors_is_the_tree_of_classes() -> None:
    assert errors.__doc__ is not None
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"([│├└─ ]*)(\w+)(?:  |$)", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        path = [*path[:depth], match[2]]
        drawn[match[2]] = path[depth - 1] if depth else "Exception"
    real = {}
    for name in errors.__all__:
        bases = [
            base.__name__ for base in getattr(errors, name).__mro__[1:] if not base.__name__.startswith("_")
        ]
        real[name] = bases[0]
    assert drawn == real


def test_readme_lists_the_backends() -> None:
    from jupyter_dist import backends

    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(backends.names())


def test_readme_lists_every_flag_and_command() -> None:
    readme = (ROOT / "README.md").read_text()
    told = set(re.findall(r"^\| .*?`(--[a-z-]+)", readme, re.MULTILINE))
    told |= set(re.findall(r"^\| `-.*, `(--[a-z-]+)", readme, re.MULTILINE))
    flags = set(re.findall(r"^  (?:-.*, )?(--[a-z-]+)", command_line("run", "--help"), re.MULTILINE))
    # A terminal has no variables; -np and -H have their long forms for scripts alone.
    assert told == flags - {"--np", "--hosts"} | {"--out"}
    for word in re.findall(r"^  ([a-z]+) ", command_line("--help"), re.MULTILINE):
        assert re.search(rf"`(jupyter dist )?{word}[ `]", readme), f"the README does not tell of {word!r}"


def test_links_between_documents_lead_somewhere() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    found = 0
    for document in documents:
        text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            path, _, heading = target.partition("#")
            place = document.parent / path if path else document
            assert place.exists(), f"{document.name}: {target}"
            if heading:
                titles = re.findall(r"^#+ (.*)$", place.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert heading in anchors, f"{document.name}: {target}"
            found += 1
    assert found > 50


def test_the_table_of_changes_names_what_there_is() -> None:
    """docs/changing.md: each file that a row names exists, and the names behind it stand in the file."""
    rows = re.findall(r"^\| .* \| (.*) \|$", (ROOT / "docs/changing.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) >= 10
    for row in rows:
        told = re.findall(r"`([\w./]+/[\w./]*)`(?: \(((?:`\w+`(?:, )?)+)\))?", row)
        assert told or "`tools/" in row, row
        for path, names in told:
            place = ROOT / path
            assert place.exists(), path
            text = "" if place.is_dir() else place.read_text()
            for name in re.findall(r"\w+", names):
                assert re.search(rf'(?:def |class |function |const |^|"|    ){name}\b', text, re.MULTILINE), (
                    path,
                    name,
                )


def command_line(*words: str) -> str:
    command = [sys.executable, "-m", "jupyter_dist", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_core_needs_no_engine() -> None:
    from importlib.metadata import requires

    core = [line for line in requires("jupyter-dist") or [] if "extra ==" not in line]
    names = {re.split(r"[^\w-]", line)[0].lower() for line in core}
    assert names & ENGINES == set()
    assert "cloudpickle" in names


def test_version() -> None:
    from importlib.metadata import version

    assert version("jupyter-dist") == jupyter_dist.__version__
