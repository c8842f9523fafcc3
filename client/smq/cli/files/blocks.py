"""Inputs in blocks of whole lines, or of whole records of CSV, as soon as they arrive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO

from smq.cli.files.compression import refuse_compressed
from smq_core.errors import InvalidRequest

BLOCK_BYTES = 4 * 1024 * 1024

# Returns where the last whole record of the next part of an input ends; 0 if none ends there.
CutOf = Callable[[bytes], int]


def line_blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines; the last line may lack its newline."""
    return cut_blocks(source, lambda part: part.rfind(b"\n") + 1)


def record_blocks(source: IO[bytes], delimiter: bytes) -> Iterator[bytes]:
    """Blocks of whole records of CSV, whose quoted fields may have newlines.

    Raises InvalidRequest if the last of them is not closed.
    """
    cutter = _RecordCutter(delimiter)
    return cut_blocks(source, cutter.cut, cutter.check_end)


def cut_blocks(
    source: IO[bytes], cut: CutOf, check_end: Callable[[bytes], None] = lambda rest: None
) -> Iterator[bytes]:
    """Blocks of whole records as ``cut`` finds them. ``check_end`` gets what follows the last whole record."""
    read = getattr(source, "read1", source.read)  # what a pipe has now, and not a full block
    waiting: list[bytes] = []  # joined once, because a record may be far larger than a part
    begun = False
    while part := read(BLOCK_BYTES):
        if not begun:
            refuse_compressed(part)
            begun = True
        end = cut(part)
        if end:
            yield b"".join([*waiting, part[:end]])
            waiting = []
        waiting.append(part[end:])
    if rest := b"".join(waiting):
        check_end(rest)
        yield rest


class _RecordCutter:
    """Knows from part to part whether it is inside of a quoted field. A quote opens a field only at its start."""

    def __init__(self, delimiter: bytes) -> None:
        self._opening = re.compile(rb"[\n\r" + re.escape(delimiter) + rb']"')
        self._quoted = False
        self._last = b"\n"
        """The last byte before this part that matters: a quote that may be the first of two, or what ends a field."""

    def cut(self, part: bytes) -> int:
        # With the byte before it, a part begins as if there were no parts. An opening quote that was seen is behind it.
        text = self._last + part
        at = 1 if self._quoted and self._last != b'"' else 0
        end = 0
        while True:
            if self._quoted:
                closing = text.find(b'"', at)
                if closing < 0:
                    self._last = b" "
                    break
                if closing + 1 == len(text):
                    self._last = b'"'  # the next part says whether it is the first of two
                    break
                if text[closing + 1 : closing + 2] == b'"':
                    at = closing + 2
                    continue
                self._quoted, at = False, closing + 1
            found = self._opening.search(text, at)
            stop = len(text) if found is None else found.end() - 1
            end = max(end, text.rfind(b"\n", at, stop) + 1)
            if found is None:
                self._last = text[-1:]
                break
            self._quoted, at = True, found.end()
        return max(0, end - 1)

    def check_end(self, rest: bytes) -> None:
        # All records after the quote would be one value, because a quoted field may have newlines.
        if self._quoted and self._last != b'"':
            text = rest[:60].decode(errors="backslashreplace")
            raise InvalidRequest(f"the input ends inside of a quoted field, in the record that begins with {text!r}")
