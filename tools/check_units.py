"""Find constants of times and sizes whose name does not end with their unit, in all packages.

A number of seconds that another place takes for milliseconds is a bug that no type finds. A constant whose name ends
with a word of time or size has its unit after it (``TIMEOUT_SECONDS``), or the type ``Micros``.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.check_constructors import CHECKED
from tools.check_vocabulary import ROOT, tracked_files

WORDS = (
    *("AGE", "BACKOFF", "DEADLINE", "DELAY", "DURATION", "GRACE", "HEARTBEAT", "HOLD", "INTERVAL", "LINGER", "PAUSE"),
    *("PERIOD", "SPACING", "TIME", "TIMEOUT", "TTL", "WAIT", "WINDOW", "BUDGET", "CREDIT", "MEMORY"),
)


def without_units(path: str, tree: ast.Module) -> Iterator[str]:
    """What is wrong with the constants of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, annotation = node.targets, None
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, annotation = [node.target], ast.unparse(node.annotation)
        else:
            continue
        for target in targets:
            name = target.id if isinstance(target, ast.Name) else ""
            if (
                name.isupper()
                and "_PER_" not in name
                and name.split("_")[-1] in WORDS
                and annotation != "Micros"
                and is_number(node.value)
            ):
                yield f"{path}:{node.lineno}: {name} has no unit: end it with _SECONDS or _BYTES, or type it Micros"


def is_number(value: ast.expr | None) -> bool:
    """Whether a value is computed from numbers. A number that is passed on as text counts, too."""
    match value:
        case ast.Constant(value=int() | float()):
            return not isinstance(value.value, bool)
        case ast.Constant(value=str() as text):
            return text.replace(".", "", 1).isdigit()
        case ast.BinOp(left=left, right=right):
            return is_number(left) or is_number(right)
    return False


def check(sources: Iterable[tuple[str, str]]) -> list[str]:
    """What is wrong in these files, given as pairs of path and text."""
    return [found for path, text in sources for found in without_units(path, ast.parse(text))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="default: all files of the packages")
    tracked = [path.as_posix() for path in tracked_files() if path.suffix == ".py"]
    paths = parser.parse_args().files or [path for path in tracked if path.startswith((*CHECKED, "spark/"))]
    found = check((path, (ROOT / path).read_text()) for path in paths)
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
