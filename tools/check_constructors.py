"""Find constructors of many parameters that take them by position: ``python tools/check_constructors.py [FILE …]``.

Five values in a row are easy to swap, and whoever reads the call does not see what each one is. So an ``__init__``
with five parameters or more takes all but the first one by keyword only. A dataclass that some call constructs with
five arguments or more takes all of them by keyword.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.check_vocabulary import ROOT, tracked_files

# The number of parameters from which on they are keyword-only. Below it a call is short enough to be read.
MAX_POSITIONAL = 4

CHECKED = ("broker/smq_broker/", "client/smq/", "core/smq_core/", "operator/smq_operator/", "storage/smq_storage/")


class Constructor(NamedTuple):
    path: str
    line: int
    name: str
    parameters: int
    is_dataclass: bool


def positional_constructors(path: str, tree: ast.AST) -> Iterator[Constructor]:
    """The classes whose constructors have too many parameters and accept some of them by position."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        init = next((it for it in node.body if isinstance(it, ast.FunctionDef) and it.name == "__init__"), None)
        if init is not None:
            positional = [*init.args.posonlyargs, *init.args.args][1:]
            count = len(positional) + len(init.args.kwonlyargs)
            if len(positional) > 1 and count > MAX_POSITIONAL:
                yield Constructor(path, node.lineno, node.name, count, is_dataclass=False)
        elif is_positional_dataclass(node):
            count = sum(map(_is_field, node.body))
            if count > MAX_POSITIONAL:
                yield Constructor(path, node.lineno, node.name, count, is_dataclass=True)


def is_positional_dataclass(node: ast.ClassDef) -> bool:
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
        if ast.unparse(call.func) == "dataclass":
            return not any(it.arg == "kw_only" for it in call.keywords)
    return False


def _is_field(node: ast.stmt) -> bool:
    """Whether the constructor has a parameter for it."""
    if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
        return False
    settings = node.value.keywords if isinstance(node.value, ast.Call) else []
    return not any(it.arg == "init" and ast.unparse(it.value) == "False" for it in settings)


def constructed_with_many(tree: ast.AST) -> Iterator[str]:
    """The names that are called with too many arguments, or with an unpacked sequence; not those of messages."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        names = ast.unparse(node.func).split(".")
        unpacks = any(isinstance(it, ast.Starred) for it in node.args)
        if (unpacks or len(node.args) + len(node.keywords) > MAX_POSITIONAL) and not names[0].endswith(("pb", "pb2")):
            yield names[-1]


def check(sources: Iterable[tuple[str, str]]) -> list[Constructor]:
    """What is wrong in these files, given as pairs of path and text."""
    trees = [(path, ast.parse(text)) for path, text in sources]
    many = {name for _, tree in trees for name in constructed_with_many(tree)}
    return [
        found
        for path, tree in trees
        for found in positional_constructors(path, tree)
        if not found.is_dataclass or found.name in many
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="default: all files of the packages")
    tracked = [path.as_posix() for path in tracked_files() if path.suffix == ".py"]
    paths = parser.parse_args().files or [path for path in tracked if path.startswith(CHECKED)]
    found = check((path, (ROOT / path).read_text()) for path in paths)
    for it in found:
        how = "add kw_only=True to its dataclass decorator" if it.is_dataclass else "write *, before them"
        print(f"{it.path}:{it.line}: {it.name} takes {it.parameters} parameters by position: {how}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
