"""What the checker has found: counts, and problems by kind with examples."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

EXAMPLES = 5


@dataclass
class LostRanges:
    """The ranges that one observer was told are lost; ``stop`` None means open-ended."""

    ranges: dict[str, list[tuple[int, int | None]]] = field(default_factory=lambda: defaultdict(list))
    possible: int = 0
    """How many of them are not certain."""

    def read(self, event: str, words: list[str]) -> None:
        """A line of a log."""
        segment, start = words[0], int(words[1])
        certain = event == "lost"
        stop = int(words[2]) if certain and words[2] != "-" else None
        self.ranges[segment].append((start, stop))
        self.possible += not certain

    def count(self, findings: Findings) -> None:
        findings.counts["possibly lost ranges"] += self.possible
        findings.counts["lost ranges"] += sum(map(len, self.ranges.values())) - self.possible

    def cover(self, segment: str, offset: int | None) -> bool:
        """Whether the offset is in a range; if it is not known, whether the segment has lost anything."""
        found = self.ranges.get(segment, ())
        if offset is None:
            return bool(found)
        return any(start <= offset and (stop is None or offset < stop) for start, stop in found)

    def stops(self, segment: str) -> set[int]:
        return {stop for _, stop in self.ranges.get(segment, ()) if stop is not None}


@dataclass
class Findings:
    """``counts`` are for information, ``problems`` is empty when all is well."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, text: str) -> None:
        self.problems[kind] += 1
        if len(self.examples[kind]) < EXAMPLES:
            self.examples[kind].append(text)

    def report(self) -> dict[str, object]:
        return {"counts": dict(self.counts), "problems": dict(self.problems), "examples": dict(self.examples)}
