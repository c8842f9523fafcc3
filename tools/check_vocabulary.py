"""Find identifiers that use a retired word: ``python tools/check_vocabulary.py [FILE …]``.

The glossary gives each thing one name. A word that such a name has replaced must not come back as a module, class,
function, field, parameter, variable, metric, flag, condition, log event or log field. Nor must it come back in the
``.proto`` files, the CRDs and the chart. Prose and messages are not checked.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).resolve().parent.parent

# Retired in every identifier that contains the word. The plural with "s" is retired with it.
RETIRED_WORDS = {
    "absurd": "invalid report",
    "ask": "request, poll",
    "asked": "requested",
    "asking": "requests, admin API",
    "calm": "memory trimmer, idle",
    "deaf": "broker connectivity",
    "desk": "service context",
    "doubt": "liveness probe",
    "doubted": "liveness probe",
    "ending": "topic deletion",
    "fate": "delivery state",
    "hear": "receive",
    "heard": "received, last report",
    "heir": "copy for the successor",
    "holding": "hosted segment, segment registry",
    "kick": "enqueue",
    "kicked": "enqueued",
    "lean": "runtime tuning",
    "nonsense": "invalid annotation",
    "pace": "rate, interval, flush scheduling",
    "patience": "retry policy, timeout",
    "people": "users, admin API",
    "piece": "sub-batch, part",
    "refusal": "rejection, backoff",
    "resting": "cooldown, idle",
    "rests": "idle",
    "rival": "conflicting release",
    "room": "capacity",
    "seat": "lease elector",
    "settle": "warm-up",
    "settled": "decided, stable",
    "silent": "unresponsive",
    "spare": "surplus, import blocker",
    "spared": "blocked",
    "stray": "orphaned file",
    "straying": "orphaned files",
    "tell": "send, notify",
    "teller": "event recorder",
    "told": "notified, reported",
    "trouble": "failure, health issue",
    "unheard": "lost",
    "unsettled": "undecided",
    "wish": "desired state, spec, request",
    "wished": "desired",
}

# Retired where these words follow one another.
RETIRED_PHRASES = {
    "at rest": "idle",
    "by hand": "manual",
    "in vain": "failed",
    "lets go": "releases",
    "segment manifest": "file list",
    "stood still": "pause detected",
}

# Retired as the whole name of a class, a function or a module. Within a longer name, or with a small letter, the word
# can have the meaning that every engineer expects, as in a steady load.
RETIRED_NAMES = {
    "Deaths": "TerminationTracker",
    "Held": "HostedSegment",
    "Orphans": "StaleSegments",
    "Scene": "a name that says which scenario",
    "Stand": "LeaderElection",
    "Steady": "Debouncer",
    "TopicLeader": "TopicReconciler",
    "TopicRun": "ManagedTopic",
    "held": "hosted_segment",
    "look": "poll, check",
    "stand": "leadership",
}

# Words that only look alike, with the meaning in which they stay. They were retired in one meaning only, which no check
# can tell from the other, so they are exempt.
EXEMPT_WORDS = {
    "check": "a preflight check, a health check",
    "collect": "what a garbage collector does",
    "number": "a number",
    "past": "before now",
    "rest": "what is left",
    "round": "the built-in function",
    "row": "a row of a table",
    "start": "to start",
    "table": "an Arrow table",
    "wait": "to wait",
    "watch": "a watch of Kubernetes or of the leader",
    "word": "a word of a command line",
}

OWN_TEST = "tests/unit/test_vocabulary.py"  # its examples are retired words

CODE_SUFFIXES = {".py", ".proto", ".yaml", ".json", ".tpl"}

LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}

# Strings that are names rather than prose: flags, log events and dotted names, metrics and other snake_case names,
# annotations, and the CamelCase of conditions and reasons.
NAME_LIKE = re.compile(
    r"--[a-z][a-z0-9-]*=?"
    r"|[a-z][a-z0-9]*(?:[._][a-z0-9]+)+"
    r"|[a-z0-9.-]+/[a-z][a-z0-9-]*"
    r"|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+"
)


class Identifier(NamedTuple):
    line: int
    name: str
    whole: bool = False  # the name of a class, function or module


class Finding(NamedTuple):
    path: Path
    line: int
    name: str
    retired: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name} uses the retired word {self.retired!r}; use: {self.instead}"


def words_of(name: str) -> list[str]:
    """``openChunkFile``, ``open_chunk_file`` and ``--open-chunk-file`` are each open, chunk, file."""
    separated = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    separated = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", separated)
    return [word for word in re.split(r"[^a-z]+", separated.lower()) if word]


def retired_in(identifier: Identifier) -> tuple[str, str] | None:
    """The retired word that the identifier uses, and what to write in its place."""
    words = words_of(identifier.name)
    name = identifier.name.strip("_")
    if identifier.whole and (instead := RETIRED_NAMES.get(name)):
        return name, instead
    for word in words:
        if word in EXEMPT_WORDS:
            continue
        for form in (word, word.removesuffix("s"), word.removesuffix("es")):
            if instead := RETIRED_WORDS.get(form):
                return word, instead
    phrase = f" {' '.join(words)} "
    return next(((old, instead) for old, instead in RETIRED_PHRASES.items() if f" {old} " in phrase), None)


# --- what names a file has


def python_identifiers(text: str) -> Iterator[Identifier]:
    """Everything that a module defines or names, and its strings that are names."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Identifier(node.lineno, node.name, whole=True)
            case ast.arg():
                yield Identifier(node.lineno, node.arg)
            case ast.Name(ctx=ast.Store()):
                yield Identifier(node.lineno, node.id)
            case ast.Attribute(ctx=ast.Store()):
                yield Identifier(node.lineno, node.attr)
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield Identifier(node.lineno, name)
            case ast.Call(func=ast.Attribute(attr=method), keywords=keywords) if method in LOG_METHODS | {"bind"}:
                yield from (Identifier(k.value.lineno, k.arg) for k in keywords if k.arg)
            case ast.Constant(value=str(value)) if NAME_LIKE.fullmatch(value):
                yield Identifier(node.lineno, value)


def proto_identifiers(text: str) -> Iterator[Identifier]:
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r'"[^"]*"|//.*', "", line)
        yield from (Identifier(number, name, whole=True) for name in re.findall(r"[A-Za-z_]\w*", code))


def _names_in(document: object) -> Iterator[str]:
    """Keys, and strings that are names: enumerated values, reasons, columns."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield str(key)
            yield from _names_in(value)
    elif isinstance(document, list):
        for item in document:
            yield from _names_in(item)
    elif isinstance(document, str) and NAME_LIKE.fullmatch(document):
        yield document


def document_identifiers(text: str) -> Iterator[Identifier]:
    """Names in YAML or JSON; each is reported on the first line that has it."""
    lines = text.splitlines()
    for document in yaml.safe_load_all(text):
        for name in _names_in(document):
            yield Identifier(next((n for n, line in enumerate(lines, 1) if name in line), 1), name)


def template_identifiers(text: str) -> Iterator[Identifier]:
    """Keys, values' names, template names and flags in a template of the chart, which is no YAML."""
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"\{\{-?\s*/\*.*", "", re.sub(r"(^|\s)#.*", "", line))
        names = re.findall(
            r"^\s*(?:- )?([A-Za-z][\w.-]*):|\.Values\.([\w.]+)|define \"([^\"]+)\"|(--[a-z][a-z-]*)", code
        )
        yield from (Identifier(number, name) for found in names for name in found if name)


def identifiers_of(path: Path) -> Iterator[Identifier]:
    """The names of a file's folders and of its module, and what the file defines. Of other files than code: nothing."""
    if path.suffix not in CODE_SUFFIXES:
        return
    text = (ROOT / path).read_text()
    relative = (ROOT / path).relative_to(ROOT) if (ROOT / path).is_relative_to(ROOT) else Path(path.name)
    yield from (Identifier(1, part, whole=True) for part in relative.with_suffix("").parts)
    if path.suffix == ".py":
        yield from python_identifiers(text)
    elif path.suffix == ".proto":
        yield from proto_identifiers(text)
    elif path.suffix == ".tpl" or "templates" in relative.parts:
        yield from template_identifiers(text)
    elif path.suffix in (".yaml", ".json") and relative.parts[0] in ("crds", "charts"):
        yield from document_identifiers(text)


# --- the check


def check(paths: Iterable[Path]) -> list[Finding]:
    """What the files use of retired words. Paths are relative to the repository."""
    findings = set()
    for path in paths:
        for identifier in identifiers_of(path):
            if found := retired_in(identifier):
                findings.add(Finding(path, identifier.line, identifier.name, *found))
    return sorted(findings)


def tracked_files() -> list[Path]:
    """Files that are in the repository or would be added, without generated ones and this check's own test."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    paths = [Path(name) for name in listed if name and "_pb2" not in name and name != OWN_TEST]
    return [path for path in paths if (ROOT / path).is_file()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="files to check (default: all of the repository)")
    files = parser.parse_args().files or tracked_files()
    findings = check(files)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} retired identifiers; docs/glossary.md has the words in use", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
