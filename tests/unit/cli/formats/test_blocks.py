"""Inputs in blocks of whole lines and records."""

from __future__ import annotations

import io
import os
import random

import pytest

from smq.cli.files import blocks
from smq.cli.files.blocks import line_blocks, record_blocks

RECORDS = [
    b"plain,text\n",
    b'"quoted, text\nof two lines",x\n',
    b'"with ""quotes""\n""",x\n',
    b'stray 5" quote,"x\ny"\r\n',
    b'"",""\n',
    b"\n",
]


class Slow(io.RawIOBase):
    """Gives a few bytes at a time, as a pipe may."""

    def __init__(self, data: bytes, seed: int) -> None:
        self._data, self._random = data, random.Random(seed)

    def read1(self, _: int) -> bytes:
        size = self._random.randrange(1, 5)
        part, self._data = self._data[:size], self._data[size:]
        return part


@pytest.mark.parametrize("seed", range(30))
def test_a_block_has_whole_records_however_the_bytes_arrive(seed: int) -> None:
    chosen = random.Random(seed).choices(RECORDS, k=20)

    found = list(record_blocks(Slow(b"".join(chosen), seed), b","))  # type: ignore[arg-type]

    assert b"".join(found) == b"".join(chosen)
    ends, at = {0}, 0
    for record in chosen:
        ends.add(at := at + len(record))
    at = 0
    for block in found:
        at += len(block)
        assert at in ends, (seed, block)
    assert len(found) > 5


def test_each_byte_of_a_large_line_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4)
    line = b"0123456789" * 1000 + b"\n"
    looked_at = 0

    def cut(part: bytes) -> int:
        nonlocal looked_at
        looked_at += len(part)
        return part.rfind(b"\n") + 1

    assert list(blocks.cut_blocks(io.BytesIO(line + b"next"), cut)) == [line, b"next"]
    assert looked_at == len(line + b"next")
    assert list(line_blocks(io.BytesIO(line + b"next"))) == [line, b"next"]


def test_records_of_a_pipe_come_as_soon_as_they_are_written() -> None:
    out, into = os.pipe()
    with os.fdopen(out, "rb") as source, os.fdopen(into, "wb", buffering=0) as sink:
        found = record_blocks(source, b",")
        sink.write(b'a,b\n1,"half')
        assert next(found) == b"a,b\n"
        sink.write(b'"\n')
        assert next(found) == b'1,"half"\n'
