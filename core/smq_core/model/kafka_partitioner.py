"""The partitions that Kafka's Java client chooses for keys: 32-bit murmur2, without its sign.

Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """The hash of a key, unsigned."""
    whole = len(key) & ~3
    hash_ = _SEED ^ len(key)
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        hash_ = (hash_ * _M & _MASK) ^ word
    if len(key) > whole:
        hash_ = (hash_ ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * _M & _MASK
    return hash_ ^ hash_ >> 15


def kafka_partition_of(key: bytes, partitions: int) -> int:
    """The partition of one key: ``(murmur2(key) & 0x7fffffff) % partitions``."""
    return (murmur2(key) & _POSITIVE) % partitions


def kafka_partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.int32]:
    """The partitions of many keys. Returns int32 of shape (len(keys),)."""
    import numpy as np

    found = np.empty(len(keys), np.int32)
    rows_by_length: defaultdict[int, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows_by_length[len(key)].append(row)
    for length, rows in rows_by_length.items():
        hashes = _hashes_of_equal_length(b"".join([keys[row] for row in rows]), len(rows), length)
        found[rows] = (hashes & np.uint32(_POSITIVE)) % np.uint32(partitions)
    return found


def _hashes_of_equal_length(keys: bytes, count: int, length: int) -> npt.NDArray[np.uint32]:
    """The hashes of ``count`` keys, one after the other. All sums of uint32 arrays drop what exceeds 32 bits."""
    import numpy as np

    words = np.zeros((count, (length + 3) // 4 * 4), np.uint8)
    words[:, :length] = np.frombuffer(keys, np.uint8).reshape(count, length)
    columns = words.view("<u4").T
    m, r = np.uint32(_M), np.uint32(_R)
    hashes = np.full(count, _SEED ^ length, np.uint32)
    for column in columns[: length // 4]:
        word = column * m
        hashes = hashes * m ^ (word ^ word >> r) * m
    if length % 4:
        hashes = (hashes ^ columns[-1]) * m
    hashes = (hashes ^ hashes >> np.uint32(13)) * m
    return hashes ^ hashes >> np.uint32(15)
