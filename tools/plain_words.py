"""Find sentences that a reader has to read twice: `tools/plain_words.py [FILE…]`; exit 1 where one is found.

The texts are README.md, CONTRIBUTING.md, docs/, and the errors, notes and flags of jupyter_dist/. A sentence
has at most 20 words, starts with its subject, and has a verb that names what happens.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MOST_WORDS = 20
STARTS = re.compile(r"(Where|What|Who|Whoever|Whose|Which|One that|Those that|That which)\b")
"""A clause before the subject."""
VERBS = re.compile(
    r"\b(is|are|was|were|be|been) told\b|\b(tells?|telling)\b|\bsays?\b"
    r"|\b(comes?|came|coming)\b|\b(goes|go|went|gone|going)\b(?! to\b)|\b(lies|lay|lain|lying)\b"
    r"|\b(stands?|stood|standing)\b(?!-)|\b(gives?|gave|given|giving)\b|\b(takes?|took|taken|taking)\b"
    r"|\b(knows?|knew|known|knowing)\b|\b(holds?|held|holding)\b",
    re.IGNORECASE,
)
"""Verbs that say nothing."""
NOTES = {"note", "warn", "notify", "tell", "complain"}
"""Functions whose text a user reads."""
_CODE = "CODE"


def main(argv: list[str]) -> int:
    files = [Path(word).resolve() for word in argv] or [
        *documents(),
        *sorted((ROOT / "jupyter_dist").rglob("*.py")),
    ]
    found = [
        (path, line, why, text) for path in files for line, text in texts(path) for why, text in faults(text)
    ]
    for path, line, why, text in found:
        print(f"{path.relative_to(ROOT)}:{line}: {why}: {text}")
    return int(bool(found))


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file that people read, each with the number of its line."""
    yield from _of_markdown(path.read_text()) if path.suffix == ".md" else _of_python(path.read_text())


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    text = re.sub(
        r"^(```|~~~).*?^\1", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(
        r"<!-- canaries:.*?<!-- end", lambda made: "\n" * made[0].count("\n"), text, flags=re.DOTALL
    )
    text = re.sub(r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    begin, block = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        item = re.match(r"\s*([-*+]|\d+\.|#+|>)\s", line)
        row = line.lstrip().startswith("|") or re.search(r"\w\s\|\s", line)
        if block and (item or row or not line.strip()):
            yield begin, " ".join(block)
            block = []
        if row:
            yield from (
                (number, cell)
                for cell in line.strip("| \n").split(" | ")
                if not re.fullmatch(r"[-: |]+", cell)
            )
        elif line.strip():
            if not block:
                begin = number
            block.append(line.strip() if not item else line[item.end() :].strip())


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from _words_of(node.exc)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in NOTES:
                yield from _words_of(node)
            for keyword in node.keywords:
                if keyword.arg in ("description", "help") and name in ("Field", "Flag", "Command", "command"):
                    yield from _text_of(keyword.value)


def _words_of(call: ast.Call) -> Iterator[tuple[int, str]]:
    for argument in call.args:
        yield from _text_of(argument)


def _text_of(node: ast.expr) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if " " in node.value:
            yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else _CODE for part in node.values]
        yield node.lineno, "".join(parts)
    elif isinstance(node, ast.IfExp):
        yield from _text_of(node.body)
        yield from _text_of(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from _text_of(node.left)
        yield from _text_of(node.right)


def faults(text: str) -> Iterator[tuple[str, str]]:
    """What is wrong with each sentence of a text."""
    text = re.sub(r"`[^`]*`", _CODE, text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+", _CODE, text).replace("**", "").replace("…", "")
    for sentence in re.split(r"(?<=[.!?])[\s)]+(?=[A-Z(]|jupyter-dist)|\n\n", text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MOST_WORDS:
            yield f"{len(words)} words", sentence
        if STARTS.match(sentence.strip()):
            yield "starts with a clause", sentence
        verb = VERBS.search(sentence)
        if verb:
            yield f"verb {verb[0]!r}", sentence


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
