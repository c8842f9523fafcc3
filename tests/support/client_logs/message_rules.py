"""The rules for writers and readers: nothing acked is lost, nothing is doubled, each key is in order.

A writer with an id that is killed continues with the first message of each key that was not acked, under its next run.
So only messages that had no ack may be in the log more than once, once for each run that sent them. What one run sent
is there once at most, and each key has its messages in the order (run, number).

One thing can bring a message twice to a reader: it was delivered from a tail, its ack did not reach the writer, and
then all replicas were lost with it. The writer sends it again. The reader is told of a lost range that has the first
place. From such a message on, the order of its key begins again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from support.client_logs.findings import Findings, LostRanges
from support.client_logs.records import log_name, read_lines

FENCED = "ProducerFenced"


@dataclass
class Sent:
    """What all writers sent, with outcomes: message -> (segment, offset), or the name of an error."""

    outcomes: dict[str, tuple[str, int | None] | str | None] = field(default_factory=dict)
    acked: dict[str, tuple[str, int | None]] = field(default_factory=dict)


@dataclass
class Log:
    """What all observers were given: segment -> offset -> message."""

    places: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))

    def note(self, who: str, segment: str, offset: int, message: str, findings: Findings) -> str:
        """Adds one delivery. Every observer must see the same message at an offset. Returns the message."""
        known = self.places[segment].setdefault(offset, message)
        if known != message:
            findings.add("differs", f"{who}: at {segment} {offset} is {message!r}, others were given {known!r}")
        return known


def read_writers(paths: Iterable[Path], findings: Findings) -> Sent:
    sent = Sent()
    runs = sorted((*log_name(path), path) for path in paths)
    last_run = {name: run for name, run, _ in runs}
    for name, run, path in runs:
        _read_writer(path, sent, last_run[name] > run, findings)
    findings.counts["writer runs"] = len(runs)
    findings.counts["sent"] = len(sent.outcomes)
    findings.counts["acked"] = len(sent.acked)
    return sent


def _read_writer(path: Path, sent: Sent, replaced: bool, findings: Findings) -> None:
    """``replaced``: another run of this writer follows. Only then it may be fenced, or have been killed."""
    own: set[str] = set()
    ended = False
    for event, *words in read_lines(path):
        message = " ".join(words[:3])
        if event == "end":
            ended = True
        elif event == "sent":
            if message in sent.outcomes:
                findings.add("malformed", f"{path.name}: {message} was sent twice by one run")
            sent.outcomes[message] = None
            own.add(message)
        elif message not in own or sent.outcomes[message] is not None or len(words) < 4:
            findings.add("malformed", f"{path.name}: {event} {' '.join(words)}")
        elif event == "acked":
            sent.outcomes[message] = sent.acked[message] = (words[3], None if words[4] == "-" else int(words[4]))
        elif event == "failed":
            sent.outcomes[message] = words[3]
            findings.counts["failed"] += 1
            if not (replaced and words[3] == FENCED):
                findings.add("failed", f"{path.name}: {message}: {words[3]}")
        else:
            findings.add("malformed", f"{path.name}: {event}")
    missing = [message for message in own if sent.outcomes[message] is None]
    findings.counts["without outcome"] += len(missing)
    if ended and missing:
        findings.add("no outcome", f"{path.name}: {len(missing)} messages, the first {missing[0]}")
    if not ended and not replaced:
        findings.add("unfinished", f"{path.name}: the writer did not come to its end")


class ReaderCheck:
    """Checks what one reader of the whole log was given, in its order."""

    def __init__(self, name: str, sent: Sent, log: Log, findings: Findings) -> None:
        self._name = name
        self._sent = sent
        self._log = log
        self._findings = findings
        self._lost = LostRanges()
        self._next: dict[str, int] = defaultdict(int)
        self._last: dict[str, tuple[int, int]] = {}
        self._given: dict[str, tuple[str, int]] = {}
        self._repeated: list[tuple[str, tuple[str, int], tuple[str, int]]] = []
        """Messages that came again, with the place before and the new one."""
        self._skipped: list[tuple[str, int, int]] = []
        self._ended = False

    def read(self, path: Path) -> None:
        for event, *words in read_lines(path):
            if event == "got":
                self._got(words[0], int(words[1]), words[2], int(words[3]), int(words[4]))
            elif event in ("lost", "possibly-lost"):
                self._lost.read(event, words)
            elif event == "end":
                self._ended = True
            else:
                self._problem("reader failed", f"{event} {' '.join(words)}")
        self._finish()

    def _problem(self, kind: str, text: str) -> None:
        self._findings.add(kind, f"{self._name}: {text}")

    def _got(self, segment: str, offset: int, key: str, run: int, number: int) -> None:
        message = self._log.note(self._name, segment, offset, f"{key} {run} {number}", self._findings)
        self._findings.counts["delivered"] += 1
        if message not in self._sent.outcomes:
            self._problem("never sent", f"{segment} {offset}: {message}")
        if self._lost.cover(segment, offset):
            self._problem("false loss", f"{segment} {offset} was reported as lost, and then delivered")
        expected = self._next[segment]
        if offset < expected:
            self._problem("doubled", f"{segment} {offset} was delivered again: {message}")
            return
        if offset > expected:
            self._skipped.append((segment, expected, offset))
        self._next[segment] = offset + 1
        if message in self._given:
            self._repeated.append((message, self._given[message], (segment, offset)))
        elif self._last.get(key, (0, -1)) >= (run, number):
            self._problem("reordered", f"{segment} {offset}: {message} came after {self._last[key]}")
        self._given[message] = (segment, offset)
        self._last[key] = (run, number)

    def _finish(self) -> None:
        if not self._ended:
            self._problem("unfinished", "the reader did not come to its end")
        for segment, start, stop in self._skipped:
            missing = [offset for offset in range(start, stop) if not self._lost.cover(segment, offset)]
            if missing:
                self._problem("skipped", f"{segment}: {len(missing)} offsets from {missing[0]} to {stop - 1}")
        for message, before, place in self._repeated:
            acked = self._sent.acked.get(message)
            if self._lost.cover(*before) and acked not in (before, (before[0], None)):
                self._findings.counts["delivered again after a loss"] += 1
            else:
                self._problem("doubled", f"{message} is at {before} and at {place}")
        for message, (segment, place) in self._sent.acked.items():
            given = self._given.get(message)
            if given is not None:
                if place is not None and given != (segment, place):
                    self._problem("wrong receipt", f"{message}: {segment} {place}, but it is at {given}")
            elif self._lost.cover(segment, place):
                self._findings.counts["reported as lost"] += 1
            else:
                self._problem("lost", f"{message}, acked at {segment} {place}")
        self._findings.counts["readers"] += 1
        self._lost.count(self._findings)
