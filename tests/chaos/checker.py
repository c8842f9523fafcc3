"""Decides from what clients wrote down whether messages were lost, doubled or reordered, or commits went back.

``python checker.py FOLDER [--complete]`` reads ``FOLDER/writers/*.log``, ``FOLDER/readers/*.log`` and
``FOLDER/groups/GROUP/*.log`` (their lines: ``support.client_logs.records``). It needs nothing else: no cluster, no
filer, and no code of the product. What an observer was told is lost is no problem, unless ``--complete`` says that
nothing can have been lost.
It prints its findings as JSON and exits with 0 if there is no problem, 1 if there is one, and 2 if it cannot tell,
because nobody was acked or nobody read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.client_logs.commit_rules import check_group
from support.client_logs.findings import Findings
from support.client_logs.message_rules import Log, ReaderCheck, read_writers


def check(folder: Path, *, complete: bool = False) -> Findings:
    """All logs of one topic. ``complete``: nothing can have been lost, so each report of a loss is a problem."""
    findings = Findings()
    log = Log()
    sent = read_writers((folder / "writers").glob("*.log"), findings)
    for path in sorted((folder / "readers").glob("*.log")):
        ReaderCheck(path.stem, sent, log, findings).read(path)
    for group in sorted((folder / "groups").glob("*/")):
        check_group(group.name, group.glob("*.log"), sent, log, findings)
    if complete and (ranges := findings.counts["lost ranges"]):
        findings.add("reported loss", f"{ranges} ranges, {findings.counts['reported as lost']} messages to readers")
    if complete and (ranges := findings.counts["possibly lost ranges"]):
        findings.add("reported possible loss", f"{ranges} ranges")
    findings.counts["segments"] = len(log.places)
    findings.counts["messages"] = sum(map(len, log.places.values()))
    return findings


def main(folder: Path, complete: bool) -> int:
    findings = check(folder, complete=complete)
    print(json.dumps(findings.report(), indent=2))
    if not findings.counts["acked"] or not (findings.counts["readers"] or findings.counts["member runs"]):
        print(f"nothing to check in {folder}: no message was acked, or there is no reader", file=sys.stderr)
        return 2
    return 1 if findings.problems else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--complete", action="store_true")
    arguments = parser.parse_args()
    sys.exit(main(arguments.folder, arguments.complete))
