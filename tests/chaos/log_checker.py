"""Proves from the files in the filer and the clients' logs that nothing was lost, repeated or reordered.

It shares no code with the product. It relies only on the format: a segment is a folder of Parquet files named by their
first offset, a segment's number is the end of its name, and a successor's number is higher than its predecessors'.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs as pafs
import pyarrow.parquet as pq


@dataclass
class Findings:
    """``problems`` is empty when all is well."""

    messages: int = 0
    segments: int = 0
    acked: int = 0
    delivered: int = 0
    problems: list[str] = field(default_factory=list)


def check(endpoint: str, root: str, acked: list[Path], delivered: list[Path]) -> Findings:
    """``root`` is the topic's folder of one uid, ``bucket/…/topic/uid``."""
    scheme, _, host = endpoint.partition("://")
    filer = pafs.S3FileSystem(endpoint_override=host, scheme=scheme, anonymous=True, region="us-east-1")
    return check_files(filer, root, acked, delivered)


def check_files(filer: pafs.FileSystem, root: str, acked: list[Path], delivered: list[Path]) -> Findings:
    """The same for any file system that has the topic's folder."""
    findings = Findings()
    log = read_log(filer, root, findings)
    findings.segments = len({segment for segment, _ in log})
    findings.messages = len(log)
    check_order(log, findings)
    for path in acked:
        check_acked(path, log, findings)
    for path in delivered:
        check_delivered(path, log, findings)
    return findings


def read_log(filer: pafs.FileSystem, root: str, findings: Findings) -> dict[tuple[str, int], tuple[str, int]]:
    """Every message of the files: (segment, offset) -> (key, number); the chain of each segment must be whole."""
    names = [f.path for f in filer.get_file_info(pafs.FileSelector(root, recursive=True)) if f.is_file]
    chunks = sorted(n for n in names if n.endswith(".parquet") and "/_" not in n.removeprefix(root))
    found: dict[tuple[str, int], tuple[str, int]] = {}
    at: dict[str, int] = defaultdict(int)
    sealed: set[str] = set()
    for path in chunks:
        segment, first = path.split("/")[-2], int(path.split("/")[-1].removesuffix(".parquet"))
        file = pq.ParquetFile(filer.open_input_file(path))
        metadata = json.loads(file.metadata.metadata[b"smq"])
        table = file.read()
        if first != at[segment]:
            findings.problems.append(f"{path}: begins at {first}, the chain before it ends at {at[segment]}")
        if segment in sealed:
            findings.problems.append(f"{path}: comes after the seal")
        if metadata.get("sealed"):
            sealed.add(segment)
        for row, value in enumerate(table.column("value").to_pylist()):
            key, number = value.decode().split()
            found[segment, first + row] = (key, int(number))
        at[segment] = first + table.num_rows
    return found


def check_order(log: dict[tuple[str, int], tuple[str, int]], findings: Findings) -> None:
    """Per key, over all segments in the order of their numbers: 0, 1, 2, … without a gap or a repeat."""
    per_key: dict[str, list[int]] = defaultdict(list)
    for (_, _), (key, number) in sorted(log.items(), key=lambda item: (segment_number(item[0][0]), item[0][1])):
        per_key[key].append(number)
    for key, numbers in per_key.items():
        if numbers != list(range(len(numbers))):
            wrong = next(i for i, n in enumerate(numbers) if n != i)
            repeats = len(numbers) - len(set(numbers))
            findings.problems.append(f"key {key}: at place {wrong} comes {numbers[wrong]}; {repeats} repeats in all")


def check_acked(path: Path, log: dict[tuple[str, int], tuple[str, int]], findings: Findings) -> None:
    lines = path.read_text().splitlines()
    if not lines or lines[-1] != "end":
        findings.problems.append(f"{path.name}: the writer did not come to its end")
    known = set(log.values())
    for line in lines:
        if line == "end":
            continue
        key, number, segment, offset = line.split()
        findings.acked += 1
        if (key, int(number)) not in known:
            findings.problems.append(f"acked but not in the log: {line}")
        elif offset != "None" and log.get((segment, int(offset))) != (key, int(number)):
            findings.problems.append(f"the receipt {line} points at {log.get((segment, int(offset)))}")


def check_delivered(path: Path, log: dict[tuple[str, int], tuple[str, int]], findings: Findings) -> None:
    """What a reader was given: every message of the log once, each key in order."""
    seen: set[tuple[str, int]] = set()
    last: dict[str, int] = {}
    for line in path.read_text().splitlines():
        segment, offset, key, number = line.split()
        place = (segment, int(offset))
        findings.delivered += 1
        if place in seen:
            findings.problems.append(f"{path.name}: {line} was delivered twice")
        seen.add(place)
        if log.get(place) != (key, int(number)):
            findings.problems.append(f"{path.name}: {line} was delivered, the log has {log.get(place)} there")
        if int(number) <= last.get(key, -1):
            findings.problems.append(f"{path.name}: {line} came after {last[key]}")
        last[key] = int(number)
    if len(seen) < len(log):
        findings.problems.append(f"{path.name}: {len(log) - len(seen)} messages were never delivered")


def segment_number(name: str) -> int:
    return int(name.rpartition("-")[2])
