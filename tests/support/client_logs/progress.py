"""How far clients are, from their growing logs: a run ends when its readers were given all that was acked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from support.client_logs.findings import LostRanges
from support.client_logs.records import read_lines


class Progress:
    """Reads what was appended since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._acked: dict[str, tuple[str, int | None]] = {}
        """Messages, with segment and offset."""
        self._acks: Counter[str] = Counter()
        self._given: dict[str, set[str]] = defaultdict(set)
        self._lost: dict[str, LostRanges] = defaultdict(LostRanges)

    def acked(self, writer: str) -> int:
        """How many acks all runs of this writer got."""
        self._read()
        return self._acks[writer]

    def polls(self, member: str) -> int:
        """How often all runs of this member of any group have polled."""
        found = (self._folder / "groups").glob(f"*/{member}.*.log")
        return sum(words[0] == "at" for path in found for words in read_lines(path))

    def delivered(self) -> int:
        self._read()
        return sum(map(len, self._given.values()))

    def complete(self, readers: Iterable[str], *, with_group: bool) -> bool:
        """Whether each of these readers, and with ``with_group`` the members together, know of all acked messages.

        They were given them, or were told that they are lost.
        """
        self._read()
        observers = [*readers, "groups"] if with_group else list(readers)
        return all(map(self._knows_all, observers))

    def _knows_all(self, observer: str) -> bool:
        missing = self._acked.keys() - self._given[observer]
        return all(self._lost[observer].cover(*self._acked[message]) for message in missing)

    def _read(self) -> None:
        for path in (self._folder / "writers").glob("*.log"):
            writer = path.stem.rpartition(".")[0]
            for words in self._appended(path, "acked "):
                self._acked[" ".join(words[1:4])] = (words[4], None if words[5] == "-" else int(words[5]))
                self._acks[writer] += 1
        for path in [*(self._folder / "readers").glob("*.log"), *(self._folder / "groups").glob("*/*.log")]:
            observer = path.stem.rpartition(".")[0] if path.parent.name == "readers" else "groups"
            for event, *words in self._appended(path, "got ", "lost ", "possibly-lost "):
                if event == "got":
                    self._given[observer].add(" ".join(words[2:5]))
                else:
                    self._lost[observer].read(event, words)

    def _appended(self, path: Path, *events: str) -> Iterable[list[str]]:
        with path.open("rb") as log:
            log.seek(self._offsets.get(path, 0))
            data = log.read()
        whole = data.rfind(b"\n") + 1
        self._offsets[path] = self._offsets.get(path, 0) + whole
        return [line.split() for line in data[:whole].decode().splitlines() if line.startswith(events)]
