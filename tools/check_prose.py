"""Find idioms and sentences that readers stumble over: ``python tools/check_prose.py [FILE …]``.

It checks comments and docstrings of Python modules, comments of ``.proto`` files, and Markdown. Code, tables and quoted
commands are not checked. In Python it also finds constants that are described after their value.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.check_vocabulary import ROOT, tracked_files

# The most words of a sentence. A longer one has two thoughts.
MAX_WORDS = 35

# Idioms of this project that no other one has, and what to write in their place.
IDIOMS = {
    r"(?<!not )\bso long\b(?! as| that| after)": "the time, or the name of the constant",
    r"\bso many\b(?! that)": "that number, or the name of the constant",
    r"\bso much\b(?! that)": "how much, or the name of the constant",
    r"\bsuch ones\b": "the noun",
    r"\bit is looked\b": "who checks what",
    r"(?<!segment )\bis read on\b(?! two)": "reading goes on",
    r"\bof (?:its|their|his|your) own\b": "own, separate",
}

# What begins an item of a list, or the description of a parameter.
ITEM = re.compile(r"\s*(?:[-*] |\d+\. |[a-z_][\w, ]*: )")
# Columns stand apart by two spaces, trees and rules have their own characters.
TABLE_ROW = re.compile(r"\S {2,}\S|[├└│]|^={3}")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
GENERATED = Path("docs/reference")
OWN_TEST = "tests/unit/test_prose.py"


class Finding(NamedTuple):
    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


class Passage(NamedTuple):
    """Prose that belongs together, from one line on."""

    line: int
    text: str


# --- what prose a file has


def python_prose(source: str) -> Iterator[Passage]:
    """Docstrings, paragraph by paragraph, and comments that stand together."""
    for node in ast.walk(ast.parse(source)):
        for child in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            match child:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield from _paragraphs(text, child.lineno)
    yield from _comments(
        (token.start[0], token.string.lstrip("#! "), not token.line[: token.start[1]].strip())
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    )


def proto_prose(source: str) -> Iterator[Passage]:
    """Comments of a ``.proto`` file."""
    found = ((number, line.partition("//")) for number, line in enumerate(source.splitlines(), 1))
    yield from _comments((number, text.strip(), not code.strip()) for number, (code, mark, text) in found if mark)


def markdown_prose(source: str) -> Iterator[Passage]:
    """Paragraphs and list items, without code and tables."""
    text = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), source, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    lines = ["" if line.lstrip().startswith(("|", "#")) else line for line in text.splitlines()]
    yield from _paragraphs("\n".join(lines), 1)


def _paragraphs(text: str, first: int) -> Iterator[Passage]:
    """Paragraphs, items of lists and descriptions of parameters, without tables and drawings."""
    begun, lines = first, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], first):
        is_prose = bool(line.strip()) and not TABLE_ROW.search(line.strip())
        if not is_prose or ITEM.match(line):
            if lines:
                yield Passage(begun, " ".join(lines))
            lines = []
        if is_prose:
            begun = begun if lines else number
            lines.append(line.strip())


def _comments(comments: Iterable[tuple[int, str, bool]]) -> Iterator[Passage]:
    """Joins lines that have nothing but a comment: (line, text, whether it stands alone)."""
    begun, last, texts = 0, -1, list[str]()
    for line, text, alone in [*comments, (0, "", False)]:
        if not alone or line != last + 1 or not text:
            if texts:
                yield Passage(begun, " ".join(texts))
            begun, texts = line, []
        last = line if alone else -1
        if text:
            texts.append(text)


# --- the checks


def problems_of(passage: Passage) -> Iterator[str]:
    text = re.sub(r"``[^`]*``|`[^`]*`", "x", passage.text)  # code counts as one word
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for idiom, instead in IDIOMS.items():
        if found := re.search(idiom, text, re.IGNORECASE):
            yield f"{found[0]!r}: write {instead}"
    text = text.replace("*", "")
    for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Zx0-9(\"“])|(?<=[.!?])\)\s+", text):
        if (words := sum(any(map(str.isalnum, word)) for word in sentence.split())) > MAX_WORDS:
            yield f"a sentence of {words} words, at most {MAX_WORDS}: {sentence[:60]}…"


def described_after(source: str) -> Iterator[tuple[int, str]]:
    """The constants of a module whose description follows their value: line and name."""
    body = ast.parse(source).body
    for node, following in itertools.pairwise(body):
        match node, following:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str())),
            ) if CONSTANT.fullmatch(name):
                yield node.lineno, name


def check(paths: Iterable[Path]) -> list[Finding]:
    """What is wrong with the prose of these files. Paths are relative to the repository."""
    readers = {".py": python_prose, ".proto": proto_prose, ".md": markdown_prose}
    findings = []
    for path in paths:
        if path.suffix not in readers or str(path) == OWN_TEST or GENERATED in path.parents:
            continue
        source = (ROOT / path).read_text()
        findings += [Finding(path, it.line, text) for it in readers[path.suffix](source) for text in problems_of(it)]
        if path.suffix == ".py":
            found = described_after(source)
            findings += [Finding(path, line, f"describe {name} in a comment before it") for line, name in found]
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="files to check (default: all of the repository)")
    findings = check(parser.parse_args().files or tracked_files())
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
