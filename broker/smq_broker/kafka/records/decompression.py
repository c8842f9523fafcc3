"""Decompresses records into memory whose size is bounded before it is allocated."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

import cramjam

from smq_broker.kafka.records.batch_header import Compression
from smq_broker.kafka.records.errors import InvalidRecord, RecordsTooLarge

Decompressed: TypeAlias = bytes | bytearray | memoryview

# The frame that Java's library puts around blocks of snappy; other libraries send one block without a frame.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
# zlib reads a header of gzip.
_GZIP_WINDOW_BITS = 31
# Kafka's clients cannot read LZ4 frames whose blocks depend on each other.
_LZ4_INDEPENDENT_BLOCKS = 1 << 5
_LZ4_FLAGS_AT = 4
# The first guess at the size of what was compressed by LZ4 or Zstandard, whose frames need not say it.
_MIN_GUESS_BYTES = 64 * 1024
_GUESSED_RATIO = 4
# What cramjam says if the output is too small.
_OUTPUT_IS_FULL = "failed to write whole buffer"


def decompress(compression: Compression, data: memoryview, max_bytes: int) -> Decompressed:
    """Raises RecordsTooLarge above ``max_bytes``, InvalidRecord if the data is not of this compression."""
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    if compression is Compression.NONE:
        return data
    try:
        return _DECOMPRESSORS[compression](data, max_bytes)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise InvalidRecord(f"the records are not compressed with {compression.name.lower()}: {error}") from None


def _gzip(data: memoryview, max_bytes: int) -> Decompressed:
    """One member: no client sends more, and each would cost a copy of all that follow."""
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    decompressed = member.decompress(data, max_bytes + 1)
    if len(decompressed) > max_bytes:
        raise _too_large(max_bytes)
    if not member.eof:
        raise InvalidRecord("compressed records end too early")
    if member.unused_data:
        raise InvalidRecord("other bytes follow the compressed records")
    return decompressed


def _snappy(data: memoryview, max_bytes: int) -> Decompressed:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    decompressed = bytearray()
    start = _XERIAL_HEADER_BYTES
    while start < len(data):
        size = int.from_bytes(data[start : start + 4], "big")
        start += 4
        if not 0 < size <= len(data) - start:
            raise InvalidRecord(f"a block of snappy has {size} bytes, and {len(data) - start} are there")
        decompressed += _snappy_block(data[start : start + size], max_bytes - len(decompressed))
        start += size
    return decompressed


def _snappy_block(data: memoryview, max_bytes: int) -> Decompressed:
    if cramjam.snappy.decompress_raw_len(data) > max_bytes:
        raise _too_large(max_bytes)
    return memoryview(cramjam.snappy.decompress_raw(data))


def _lz4(data: memoryview, max_bytes: int) -> Decompressed:
    if len(data) > _LZ4_FLAGS_AT and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT_BLOCKS:
        raise InvalidRecord("LZ4 blocks depend on each other, which Kafka's clients cannot read")
    return _into_growing(cramjam.lz4.decompress_into, data, max_bytes)


def _zstd(data: memoryview, max_bytes: int) -> Decompressed:
    return _into_growing(cramjam.zstd.decompress_into, data, max_bytes)


def _into_growing(decompress_into: Any, data: memoryview, max_bytes: int) -> Decompressed:
    size = min(max(_MIN_GUESS_BYTES, _GUESSED_RATIO * len(data)), max_bytes)
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise
        if size == max_bytes:
            raise _too_large(max_bytes)
        size = min(4 * size, max_bytes)


def _too_large(max_bytes: int) -> RecordsTooLarge:
    return RecordsTooLarge(f"the records of a batch have more than {max_bytes} bytes")


_DECOMPRESSORS: dict[Compression, Callable[[memoryview, int], Decompressed]] = {
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
