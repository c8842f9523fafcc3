"""docs/threads.md has each lock of the product in its order, and each thread."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import chain

from smq.lock_order import ClientLock
from smq_broker.runtime.lock_order import BrokerLock
from tools.site_links import DOCS, ROOT

PAGE = (DOCS / "threads.md").read_text()
PACKAGES = ("core", "storage", "proto", "client", "broker", "operator", "spark")
# The functions that make locks, and what they check when tests run.
FACTORIES = {
    "storage/smq_storage/process/locks.py",
    "storage/smq_storage/process/lock_checks.py",
    "storage/smq_storage/thread_runtime.py",
}
# A signal, and one lock in a package below that of the checks.
UNCHECKED = {"Timers._wake", "_memory_stores_lock"}
MAKES = re.compile(r"(Lock|lock|Condition|Thread|ThreadPoolExecutor|Task)\(")


@dataclass(frozen=True, slots=True)
class Made:
    """``name`` is as on the page: the class and the attribute. ``place`` is in the order, None for a leaf."""

    name: str
    call: str
    place: str | None


@cache
def texts() -> dict[str, str]:
    """The files that may make locks or threads."""
    paths = {it.relative_to(ROOT).as_posix(): it for package in PACKAGES for it in (ROOT / package).rglob("*.py")}
    found = {name: path.read_text() for name, path in paths.items() if "/v1/" not in name and name not in FACTORIES}
    return {name: text for name, text in found.items() if MAKES.search(text)}


@cache
def sources() -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in texts().items()}


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (it for it in ast.walk(node) if isinstance(it, ast.Call))


def function_of(call: ast.Call) -> str:
    return ast.unparse(call.func).removeprefix("threading.")


def assignments(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.expr]]:
    """What is assigned to an attribute of self in a class, or to a name of the module."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign | ast.AnnAssign) and child.value is not None:
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            for target in map(ast.unparse, targets):
                if inside and target.startswith("self."):
                    yield f"{inside}.{target.removeprefix('self.')}", child.value
                elif not inside:
                    yield target, child.value
        else:
            yield from assignments(child, child.name if isinstance(child, ast.ClassDef) else inside)


def made_locks() -> list[Made]:
    made = []
    for tree in sources().values():
        for name, value in assignments(tree):
            for call in calls(value):
                if function_of(call) in ("make_lock", "make_rlock"):
                    place = ast.unparse(call.args[0]) if call.args else None
                    made.append(Made(name, function_of(call), place))
    return made


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def line_of(title: str) -> list[tuple[str, ...]]:
    """The places on a line of the order, each with its names."""
    (line,) = re.findall(rf"^- {title}: (.*)$", section("The order of locks"), re.MULTILINE)
    return [tuple(re.findall(r"`([^`]+)`", place)) for place in line.split("→")]


def documented(order: type[IntEnum], titles: list[str]) -> list[tuple[str, ...]]:
    places = list(chain.from_iterable(map(line_of, titles)))
    assert len(places) == len(order)
    return places


def check_order(order: type[IntEnum], titles: list[str]) -> None:
    made: dict[str, set[str]] = {place.name: set() for place in order}
    for lock in made_locks():
        if lock.place is not None and lock.place.startswith(f"{order.__name__}."):
            made[lock.place.partition(".")[2]].add(lock.name)
    found = [made[place.name] for place in sorted(order)]
    assert found == [set(names) for names in documented(order, titles)]


def test_the_client_takes_its_locks_in_the_order_of_the_page() -> None:
    check_order(ClientLock, ["Client, consumers", "Client, producers", "Client, both"])


def test_the_broker_takes_its_locks_in_the_order_of_the_page() -> None:
    check_order(BrokerLock, ["Broker"])


def test_the_page_has_each_leaf_lock() -> None:
    named = re.findall(r"`([^`]+)`", section("Leaf locks"))
    leaves = {lock.name for lock in made_locks() if lock.place is None}
    assert len(leaves) > 30
    assert set(named) - UNCHECKED == leaves and len(named) == len(set(named))


def test_no_lock_is_made_without_its_checks() -> None:
    raw = set()
    for name, tree in sources().items():
        ours = {id(call) for _, value in assignments(tree) for call in calls(value)}
        raw |= {it for it, value in assignments(tree) for call in calls(value) if is_raw(call)}
        raw |= {f"{name}:{call.lineno}" for call in calls(tree) if is_raw(call) and id(call) not in ours}
    assert raw == UNCHECKED


def is_raw(call: ast.Call) -> bool:
    """Whether it makes a lock or a condition of Python without our checks."""
    return function_of(call) in ("Lock", "RLock") or (function_of(call) == "Condition" and not call.args)


def thread_names() -> set[str]:
    """As on the page: what varies is an ellipsis."""
    found = set()
    for tree in sources().values():
        for call in calls(tree):
            function = function_of(call)
            given = {it.arg: it.value for it in call.keywords}
            if function == "Thread":
                assert "name" in given, f"a thread has no name: {ast.unparse(call)}"
                found.add(_pattern(given["name"]))
            elif function == "ThreadPoolExecutor":
                assert "thread_name_prefix" in given or len(call.args) > 1, f"no name: {ast.unparse(call)}"
                found.add(_pattern(given["thread_name_prefix"] if "thread_name_prefix" in given else call.args[1]))
            elif function == "Task" and "kind" in given:
                kind = ast.literal_eval(given["kind"])
                found.add(f"{kind}-…" if "subject" in given else kind)
    return found - {""}


def _pattern(name: ast.expr) -> str:
    if isinstance(name, ast.JoinedStr):
        return "".join(it.value if isinstance(it, ast.Constant) else "…" for it in name.values)
    return name.value if isinstance(name, ast.Constant) else ""


def test_the_page_has_each_thread_by_its_name() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z][a-z-]+…?)`", row)}
    named |= set(re.findall(r"`([a-z][a-z-]+…?)`", PAGE.partition("Command line: ")[2].partition("\n")[0]))
    found = thread_names()
    assert len(found) > 35
    assert found <= named, "docs/threads.md needs a row for each of these"
    gone = {name for name in named if not any(f'"{name.rstrip("-…")}' in text for text in texts().values())}
    assert not gone, "no thread has these names any more"
