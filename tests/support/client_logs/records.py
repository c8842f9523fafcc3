"""What clients write down in a chaos run: one text file for each run of a process, one line for each event.

A message is ``key run number``: the number counts from 0 per key, and the run counts the starts of its writer. Only
this module knows how the lines look. It imports nothing of the product, because the checker must not rely on it.

=========  =========================================================================
a writer   ``sent KEY RUN NUMBER`` before the message is handed over, then its outcome:
           ``acked KEY RUN NUMBER SEGMENT OFFSET`` (``-``: the offset is not known) or ``failed KEY RUN NUMBER ERROR``
a reader   ``got SEGMENT OFFSET KEY RUN NUMBER``, ``possibly-lost SEGMENT START``,
           ``lost SEGMENT START STOP`` (``-``: open-ended), ``error ERROR``
a member   ``started T``, then a reader's lines, and ``at T`` before each batch. Before a commit it writes
           ``trying T SEGMENT POSITION …``, after it ``committed T SEGMENT POSITION …`` or ``refused T ERROR``
=========  =========================================================================

The last line is ``end``, if the process ended by itself. T are nanoseconds of a clock that all clients share. A process
that was killed may have left half a line, which was the last one: it counts as not written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


class LogWriter:
    """Appends lines. ``flush`` hands them to the operating system: they then survive a kill of this process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._lines: list[str] = []

    def flush(self) -> None:
        data = "".join(self._lines).encode()
        self._lines.clear()
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Writes the last line."""
        self._add("end")
        self.flush()
        os.close(self._file)

    def _add(self, *words: object) -> None:
        self._lines.append(" ".join(map(str, words)) + "\n")

    # ---- a writer's events

    def sent(self, message: str) -> None:
        self._add("sent", message)

    def acked(self, message: str, segment: str, offset: int | None) -> None:
        self._add("acked", message, segment, "-" if offset is None else offset)

    def failed(self, message: str, error: str) -> None:
        self._add("failed", message, error)

    # ---- a reader's

    def got(self, segment: str, first: int, messages: Iterable[str]) -> None:
        self._lines.extend(f"got {segment} {offset} {message}\n" for offset, message in enumerate(messages, first))

    def lost(self, segment: str, start: int, stop: int | None) -> None:
        self._add("lost", segment, start, "-" if stop is None else stop)

    def possibly_lost(self, segment: str, start: int) -> None:
        """It is not known whether anything was lost."""
        self._add("possibly-lost", segment, start)

    def error(self, error: str) -> None:
        self._add("error", error)

    # ---- a member's

    def started(self) -> None:
        self._add("started", time.monotonic_ns())

    def at(self) -> None:
        self._add("at", time.monotonic_ns())

    def trying(self, positions: Mapping[str, int]) -> None:
        self._positions("trying", positions)

    def committed(self, positions: Mapping[str, int]) -> None:
        self._positions("committed", positions)

    def refused(self, error: str) -> None:
        self._add("refused", time.monotonic_ns(), error)

    def _positions(self, event: str, positions: Mapping[str, int]) -> None:
        self._add(event, time.monotonic_ns(), *(f"{segment} {position}" for segment, position in positions.items()))


def read_lines(path: Path) -> Iterator[list[str]]:
    """The whole lines of a log, in words."""
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield line.split()


def log_path(folder: Path, name: str, run: int) -> Path:
    return folder / f"{name}.{run}.log"


def log_name(path: Path) -> tuple[str, int]:
    """Name and run of the process that wrote this log."""
    name, _, run = path.stem.rpartition(".")
    return name, int(run)


def next_run(folder: Path, name: str) -> int:
    """The number of the next run of this process: 1 if it has no log yet."""
    return 1 + max((log_name(path)[1] for path in folder.glob(f"{name}.*.log")), default=0)


def message_text(key: str, run: int, number: int) -> str:
    return f"{key} {run} {number}"
