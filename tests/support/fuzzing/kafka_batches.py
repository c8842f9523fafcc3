"""Record batches as a client could send them: most are valid, the others disagree with themselves somewhere.

Libraries write only what is right, so the records are written here, field by field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from crc32c import crc32c

from smq_broker.kafka.records.batch_header import CRC_END, HEADER, LENGTH_END, MAGIC
from support.fuzzing.mutator import Mutator

# How often a field has another value than it should have.
_WRONG = 0.01
_BOMB_BYTES = 64 << 20
_LENGTHS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 127, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 62), (1 << 63) - 1)
_TIMES = (-(1 << 63), -2, -1, 0, 1_700_000_000_000, 253_402_300_799_999, 253_402_300_800_000, (1 << 63) - 1)
_DELTAS = (0, 0, 0, 1, 5, -5, 1 << 31, -(1 << 63), (1 << 63) - 1)
_SHORTS = (-(1 << 15), -1, 0, 1, (1 << 15) - 1)
_INTS = (-(1 << 31), -2, -1, 0, 1, 10, (1 << 31) - 1)
_LONGS = (-(1 << 63), -1, 0, 1, 1 << 40, (1 << 63) - 1)
_KEYS = (None, b"", b"key", b"\xff\xfe", b"k" * 300)
_VALUES = (None, b"", b"value", b"\x00" * 100, b"v" * 3000)
_HEADERS: Sequence[tuple[bytes, bytes | None]] = (
    (b"h", b"1"),
    (b"h", None),
    (b"", b""),
    ("ü".encode(), b"x"),
    (b"\xff", b"x"),
)


def batch(mutator: Mutator) -> bytes:
    """One batch, with more changes now and then, and mostly with its right length and CRC."""
    rng = mutator.random
    if rng.random() < 0.002:
        return rng.choice(_bombs())
    made = bytearray(_batch(rng))
    if rng.random() < 0.3:
        made = bytearray(mutator.data([bytes(made)]))
    return bytes(signed(made)) if rng.random() < 0.95 else bytes(made)


def signed(made: bytearray) -> bytearray:
    """The same bytes with the right length and CRC, if they are long enough to have them."""
    if len(made) >= CRC_END:
        struct.pack_into(">i", made, 8, len(made) - LENGTH_END)
        struct.pack_into(">I", made, CRC_END - 4, crc32c(made[CRC_END:]))
    return made


def _batch(rng: Random) -> bytes:
    count = rng.choice((1, 1, 2, 3, 20))
    compression = rng.randrange(5)
    records = _compressed(rng, b"".join(_record(rng, number) for number in range(count)), compression)
    attributes = _or_wrong(rng, compression, _SHORTS)
    is_idempotent = rng.random() < 0.5
    header = HEADER.pack(
        *(rng.choice(_LONGS), 0, rng.choice(_INTS), _or_wrong(rng, MAGIC, (0, 1, 3, -1)), 0, attributes),
        *(_or_wrong(rng, count - 1, _INTS), rng.choice(_TIMES), rng.choice(_TIMES)),
        *((rng.choice((1, 1 << 40)), rng.choice((0, 1)), rng.choice((0, 0, 20))) if is_idempotent else (-1, -1, -1)),
        _or_wrong(rng, count, _INTS),
    )
    return header + records


def _record(rng: Random, number: int) -> bytes:
    headers = [rng.choice(_HEADERS) for _ in range(rng.choice((0, 0, 1, 3)))]
    body = b"".join(
        (
            bytes([_or_wrong(rng, 0, (1, 255))]),
            varint(rng.choice(_DELTAS)),
            varint(_or_wrong(rng, number, _LENGTHS)),
            _bytes(rng, rng.choice(_KEYS)),
            _bytes(rng, rng.choice(_VALUES)),
            varint(_or_wrong(rng, len(headers), _LENGTHS)),
            *(_bytes(rng, key) + _bytes(rng, value) for key, value in headers),
        )
    )
    return varint(_or_wrong(rng, len(body), (*_LENGTHS, len(body) + 1, len(body) - 1))) + body


def _bytes(rng: Random, value: bytes | None) -> bytes:
    size = -1 if value is None else len(value)
    return varint(_or_wrong(rng, size, (*_LENGTHS, size + 1, size - 1))) + (value or b"")


def varint(value: int) -> bytes:
    """Zigzag, 64 bits."""
    left = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1)
    encoded = bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _or_wrong(rng: Random, right: int, wrong: Sequence[int]) -> int:
    return right if rng.random() > _WRONG else rng.choice(wrong)


def _compressed(rng: Random, records: bytes, compression: int) -> bytes:
    if rng.random() < _WRONG:
        compression = rng.randrange(5)
    return _COMPRESSORS[compression](records)


_COMPRESSORS: Sequence[Callable[[bytes], bytes]] = (bytes, gzip_encode, snappy_encode, lz4_encode, zstd_encode)
_made_bombs: list[bytes] = []


def _bombs() -> list[bytes]:
    """Small batches of all compressions that are large once they are decompressed: zeros, and many records."""
    if not _made_bombs:
        tiny = varint(6) + bytes([0, 0, 0, 1, 1, 0])
        for content, records in (
            (bytes(_BOMB_BYTES), 1),
            (tiny * (_BOMB_BYTES // len(tiny)), _BOMB_BYTES // len(tiny)),
        ):
            for compression in range(1, 5):
                header = HEADER.pack(0, 0, 0, MAGIC, 0, compression, records - 1, 0, 0, -1, -1, -1, records)
                _made_bombs.append(bytes(signed(bytearray(header + _COMPRESSORS[compression](content)))))
    return _made_bombs
