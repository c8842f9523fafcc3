"""How far clients are, from their growing logs: a run ends when its readers were given all that was acked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from support.client_logs.records import read_lines


class Progress:
    """Reads what was appended since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._acked: dict[str, set[str]] = {}
        self._acks: Counter[str] = Counter()
        self._given: dict[str, set[str]] = {}

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
        """Whether each of these readers, and with ``with_group`` the members together, were given all acked ones."""
        self._read()
        acked = set().union(*self._acked.values()) if self._acked else set()
        observers = [*readers, "groups"] if with_group else list(readers)
        return all(acked <= self._given.get(observer, set()) for observer in observers)

    def _read(self) -> None:
        for path in (self._folder / "writers").glob("*.log"):
            writer = path.stem.rpartition(".")[0]
            messages = self._acked.setdefault(writer, set())
            for words in self._appended(path, "acked "):
                messages.add(" ".join(words[1:4]))
                self._acks[writer] += 1
        for path in [*(self._folder / "readers").glob("*.log"), *(self._folder / "groups").glob("*/*.log")]:
            observer = path.stem.rpartition(".")[0] if path.parent.name == "readers" else "groups"
            given = self._given.setdefault(observer, set())
            given.update(" ".join(words[3:6]) for words in self._appended(path, "got "))

    def _appended(self, path: Path, event: str) -> Iterable[list[str]]:
        with path.open("rb") as log:
            log.seek(self._offsets.get(path, 0))
            data = log.read()
        whole = data.rfind(b"\n") + 1
        self._offsets[path] = self._offsets.get(path, 0) + whole
        return [line.split() for line in data[:whole].decode().splitlines() if line.startswith(event)]
