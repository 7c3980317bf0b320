#!/usr/bin/env python3
"""Write what is made from the shapes of answers: `tools/answers.py`, or `tools/answers.py --check`.

The modules of jupyter_dist/queries/answers/ are the source. Made from them are the types in
labextension/src/answers/, and the schemas in jupyter_dist/server/openapi.json, whose paths and parameters are
written by hand and tested against the table of operations.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    ROOT / "jupyter_dist/queries/answers" / f"{name}.py"
    for name in ("runs", "forms", "logs", "media", "metrics", "ranks", "sessions")
]
OPENAPI = ROOT / "jupyter_dist/server/openapi.json"
TYPES = {source: ROOT / "labextension/src/answers" / f"{source.stem}.ts" for source in SOURCES}
"""Which types are made from which source. The first has need of the others', and these of none."""
_PLAIN = {
    "str": ("string", {"type": "string"}),
    "int": ("number", {"type": "integer"}),
    "float": ("number", {"type": "number"}),
    "bool": ("boolean", {"type": "boolean"}),
    "None": ("null", {"type": "null"}),
    "Any": ("unknown", {}),
}
_WIDTH = 100


@dataclass
class Field:
    """One field of a shape."""

    name: str
    type: ast.expr
    required: bool
    about: str = ""


@dataclass
class Shape:
    """One class of the source."""

    name: str
    base: str | None
    about: str
    source: Path
    fields: list[Field] = field(default_factory=list)


def shapes() -> tuple[dict[str, Shape], dict[str, tuple[ast.expr, str]]]:
    """The classes of the source by name, and the names that stand for other types, each with what it says."""
    found: dict[str, Shape] = {}
    named: dict[str, tuple[ast.expr, str]] = {}
    for source, before, node in _statements():
        if isinstance(node, ast.ClassDef):
            base = ast.unparse(node.bases[0])
            about = ast.get_docstring(node) or ""
            found[node.name] = Shape(
                node.name, None if base == "TypedDict" else base, about, source, [*_fields(node)]
            )
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id] = (node.value, "")
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(before, ast.Assign)
            and isinstance(before.targets[0], ast.Name)
        ):
            named[before.targets[0].id] = (before.value, str(node.value.value))
    del named["__all__"]
    return found, named


def _statements() -> Iterator[tuple[Path, ast.stmt | None, ast.stmt]]:
    """The statements of each source, with the source and the statement before."""
    for source in SOURCES:
        body = ast.parse(source.read_text()).body
        yield from zip([source] * len(body), [None, *body], body, strict=False)


def _fields(shape: ast.ClassDef) -> Iterator[Field]:
    body = shape.body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        kind, required = node.annotation, True
        if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "NotRequired":
            kind, required = kind.slice, False
        told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        yield Field(node.target.id, kind, required, str(after.value.value) if told else "")  # type: ignore[union-attr]


class Made:
    """Types and schemas of the source's annotations."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT))
        from jupyter_dist.job import State

        self.shapes, self.named = shapes()
        self.states = [state.value for state in State]

    def typescript(self, kind: ast.expr) -> str:
        """An annotation as TypeScript."""
        text = ast.unparse(kind)
        if text in _PLAIN:
            return _PLAIN[text][0]
        if text in self.shapes:
            return f"I{text}"
        if text == "StateName":
            return "State"
        if text in self.named:
            return text
        if isinstance(kind, ast.BinOp):
            return f"{self.typescript(kind.left)} | {self.typescript(kind.right)}"
        if isinstance(kind, ast.Attribute):
            return self.typescript(ast.Name(kind.attr))
        outer, inner = self._subscript(kind)
        if outer == "Literal":
            return " | ".join(
                "true" if value is True else f"'{value}'" for value in map(ast.literal_eval, inner)
            )
        if outer == "dict":
            return f"Record<{self.typescript(inner[0])}, {self.typescript(inner[1])}>"
        element = self.typescript(inner[0])
        return f"({element})[]" if "|" in element else f"{element}[]"

    def schema(self, kind: ast.expr) -> dict[str, Any]:
        """An annotation as JSON schema."""
        text = ast.unparse(kind)
        if text in _PLAIN:
            return dict(_PLAIN[text][1])
        if text in self.shapes:
            return {"$ref": f"#/components/schemas/{text}"}
        if text == "StateName":
            return {"enum": self.states}
        if text == "JsonSchema":
            return {"type": "object"}
        if text in self.named:
            return self.schema(self.named[text][0])
        if isinstance(kind, ast.BinOp):
            return {"anyOf": [self.schema(part) for part in _alternatives(kind)]}
        if isinstance(kind, ast.Attribute):
            return self.schema(ast.Name(kind.attr))
        outer, inner = self._subscript(kind)
        if outer == "Literal":
            return {"enum": [ast.literal_eval(value) for value in inner]}
        if outer == "dict":
            return {"type": "object", "additionalProperties": self.schema(inner[1])}
        if outer == "Iterator":
            return {"type": "string", "format": "binary"}
        return {"type": "array", "items": self.schema(inner[0])}

    @staticmethod
    def _subscript(kind: ast.expr) -> tuple[str, list[ast.expr]]:
        assert isinstance(kind, ast.Subscript), f"cannot be told to a browser: {ast.unparse(kind)}"
        inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        outer = ast.unparse(kind.value)
        assert outer in ("Literal", "dict", "list", "Iterator"), f"cannot be told to a browser: {outer}"
        return outer, inner


def _alternatives(kind: ast.expr) -> list[ast.expr]:
    if isinstance(kind, ast.BinOp):
        return [*_alternatives(kind.left), *_alternatives(kind.right)]
    return [kind]


def types(source: Path) -> str:
    """The text of the TypeScript module that is made from this source."""
    made = Made()
    about = (
        "/** The shapes of the server's and the kernel's answers.\n *\n"
        f" * Written by tools/answers.py from {source.relative_to(ROOT)}: change them there. */"
    )
    first = source == SOURCES[0]
    imported = "import type { ISchema as JsonSchema } from '../jsonschema';"
    parts = [_union("State", [f"'{state}'" for state in made.states])] if first else []
    for shape in (shape for shape in made.shapes.values() if shape.source == source):
        extends = f" extends I{shape.base}" if shape.base else ""
        lines = [_comment(shape.about, ""), f"export interface I{shape.name}{extends} {{"]
        for one in shape.fields:
            lines += [_comment(one.about, "  ")] if one.about else []
            lines.append(f"  {one.name}{'' if one.required else '?'}: {made.typescript(one.type)};")
        parts.append("\n".join([*lines, "}"]))
        if not shape.fields:
            parts[-1] = f"{lines[0]}\nexport type I{shape.name} = I{shape.base};"
    for name, (kind, said) in made.named.items():
        if first and name not in ("StateName", "JsonSchema"):
            union = _union(name, [made.typescript(part) for part in _alternatives(kind)])
            parts.append(f"{_comment(said, '')}\n{union}")
    body = "\n\n".join(parts)
    imports = [imported] if "JsonSchema" in body else []
    for other in (path for path in SOURCES[1:] if path != source):
        names = sorted(f"I{shape.name}" for shape in made.shapes.values() if shape.source == other)
        needed = [name for name in names if re.search(rf"\b{name}\b", body)]
        if needed:
            imports.append(f"import type {{ {', '.join(needed)} }} from './{TYPES[other].stem}';")
    head = "\n".join([about, *imports])
    return f"{head}\n\n{body}\n"


def _union(name: str, parts: list[str]) -> str:
    line = f"export type {name} = {' | '.join(parts)};"
    if len(line) <= _WIDTH:
        return line
    return f"export type {name} =\n" + "\n".join(f"  | {part}" for part in parts) + ";"


def _comment(text: str, indent: str) -> str:
    line = f"{indent}/** {' '.join(text.split())} */"
    if len(line) <= _WIDTH:
        return line
    wrapped = textwrap.wrap(" ".join(text.split()), _WIDTH - len(indent) - 3)
    return "\n".join([f"{indent}/**", *(f"{indent} * {part}" for part in wrapped), f"{indent} */"])


def openapi() -> str:
    """The text of openapi.json, its schemas made anew."""
    made = Made()
    from jupyter_dist.server.operations import OPERATIONS

    told = json.loads(OPENAPI.read_text())
    told["components"]["schemas"] = {shape.name: _object(made, shape) for shape in made.shapes.values()}
    told["components"]["schemas"] |= {"Change": made.schema(ast.Name("Change"))}
    for operation in OPERATIONS:
        answer = operation.answer
        annotation = inspect.signature(answer).return_annotation
        content = told["paths"][operation.path][operation.method.lower()]["responses"]["200"]["content"]
        if operation.file is None and not operation.content:
            content["application/json"]["schema"] = made.schema(ast.parse(annotation, mode="eval").body)
    return _folded(told) + "\n"


def _folded(value: Any, indent: int = 0) -> str:
    """The value as JSON: on one line where that is short, as Prettier writes it."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= _WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_folded(part, indent + 1)}" for key, part in value.items()]
    else:
        parts = [_folded(part, indent + 1) for part in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    pad = "\n" + " " * indent
    return f"{start}{pad} " + f",{pad} ".join(parts) + f"{pad}{end}"


def _object(made: Made, shape: Shape) -> dict[str, Any]:
    own = {
        "type": "object",
        "description": " ".join(shape.about.split()),
        "properties": {one.name: _described(made.schema(one.type), one.about) for one in shape.fields},
        "required": [one.name for one in shape.fields if one.required],
    }
    if shape.base is None:
        return own
    about = own.pop("description")
    return {"description": about, "allOf": [{"$ref": f"#/components/schemas/{shape.base}"}, own]}


def _described(schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {**schema, "description": " ".join(re.sub(r"\s+", " ", about).split())} if about else schema


def main() -> int:
    """Write all files, or say which are out of date."""
    check = "--check" in sys.argv[1:]
    late = []
    for path, text in (*((path, types(source)) for source, path in TYPES.items()), (OPENAPI, openapi())):
        if not path.exists() or path.read_text() != text:
            late.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(text)
    if late and check:
        print(f"{', '.join(late)}: not made from queries/answers/ as it is now; run tools/answers.py")
    return int(bool(late and check))


if __name__ == "__main__":
    sys.exit(main())
