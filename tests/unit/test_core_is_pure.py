"""`smq_core` decides and does nothing else: no IO, threads, clock or randomness.

That is what lets a seeded simulation replay a history. import-linter checks imports too; this test
also sees submodules of other packages, imports within functions, and calls.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "smq_core"

MODULES = """
asyncio concurrent multiprocessing queue sched select selectors signal threading
ftplib http io os shutil socket socketserver ssl subprocess tempfile urllib.error urllib.request
numpy.random random secrets time uuid
grpc kopf kubernetes obstore pyarrow.dataset pyarrow.flight pyarrow.fs pyarrow.parquet
smq smq_broker smq_operator smq_proto smq_storage
"""
ATTRIBUTES = """
date.today datetime.now datetime.today datetime.utcnow
np.random numpy.random pa.flight pyarrow.flight sys.stdin sys.stdout sys.stderr
"""
BUILTINS = {"__import__", "eval", "exec", "input", "open", "print"}
FILE_METHODS = {"read_bytes", "read_text", "write_bytes", "write_text"}


def impurities(source: str) -> list[str]:
    """What in `source` reaches outside, as `line: what`."""
    tree = ast.parse(source)
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, f"import {name.name}") for name in names if _forbidden(name.name)]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for name in names:
                    if _forbidden(f"{module}.{name.name}"):
                        found.append((node.lineno, f"from {module} import {name.name}"))
            case ast.Attribute(value=value, attr=attr):
                if ".".join(ast.unparse(node).split(".")[-2:]) in ATTRIBUTES.split():
                    found.append((node.lineno, ast.unparse(node)))
                elif attr in FILE_METHODS:
                    found.append((node.lineno, f"{ast.unparse(value)}.{attr}"))
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS - own:
                found.append((node.lineno, f"{name}()"))
            case ast.AsyncFunctionDef(name=name):
                found.append((node.lineno, f"async def {name}"))
            case _:
                pass
    return [f"{line}: {what}" for line, what in sorted(found)]


def _forbidden(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in MODULES.split())


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_module_is_pure(path: Path):
    assert impurities(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["1: import time"]),
        ("import os.path", ["1: import os.path"]),
        ("from os import path", ["1: from os import path"]),
        ("from pyarrow import flight", ["1: from pyarrow import flight"]),
        ("import pyarrow.flight as fl", ["1: import pyarrow.flight"]),
        ("def f():\n    import random", ["2: import random"]),
        ("import datetime\nx = datetime.datetime.now()", ["2: datetime.datetime.now"]),
        ("from datetime import datetime\nx = datetime.now", ["2: datetime.now"]),
        ("import numpy as np\nx = np.random.default_rng()", ["2: np.random"]),
        ("open('x')", ["1: open()"]),
        ("async def f(): ...", ["1: async def f"]),
        ("from pathlib import Path\nPath('x').read_text()", ["2: Path('x').read_text"]),
    ],
)
def test_what_is_not_pure_is_found(source: str, found: list[str]):
    assert impurities(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "import operator, bisect, numpy, pyarrow, xxhash",
        "from datetime import datetime, timedelta, timezone",
        "from smq_core.model.entities import Segment",
        "from .replica import open",
        "def open(x): return x\nopen(1)",
        "state.open()",
        "import timeit_like",
    ],
)
def test_what_is_pure_passes(source: str):
    assert impurities(source) == []
