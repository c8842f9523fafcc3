"""Record batches are decoded exactly or refused with the right code, and a small one takes no unbounded memory."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from datetime import datetime

import cramjam
import pyarrow as pa
import pytest
from aiokafka import codec
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_broker.kafka.records.batch_header import HEADER, Compression, parse_batch
from smq_broker.kafka.records.decoding import DecodedRecords, decode_records
from smq_broker.kafka.records.decompression import decompress
from smq_broker.kafka.records.encoding import encode_records
from smq_broker.kafka.records.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
    RecordsTooLarge,
    TransactionalRecords,
    UnsupportedCompression,
    UnsupportedRecordFormat,
)
from smq_storage.chunks.schemas import HEADERS

MIB = 1 << 20
Header = tuple[str, bytes | None]
Record = tuple[int, bytes | None, bytes | None, list[Header]]
ONE: list[Record] = [(1_700_000_000_000, b"k", b"v", [("h", b"1")])]
NOW_MS = 1_700_000_000_000

binary = st.none() | st.binary(max_size=60)
record = st.tuples(
    st.integers(0, 4_000_000_000_000),
    binary,
    binary,
    st.lists(st.tuples(st.text(max_size=8), binary), max_size=3),
)
records = st.lists(record, min_size=1, max_size=30)


def library_batch(rows: Sequence[Record], compression: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """What aiokafka sends, and kafka-python, whose codec it is."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, *producer, 1 << 30)
    for number, (timestamp, key, value, headers) in enumerate(rows):
        builder.append(number, timestamp, key, value, headers)
    return bytes(builder.build())


def resealed(batch: bytes, **fields: int) -> bytes:
    """The batch with other values in its header and the right CRC; ``length`` follows unless it is given."""
    names = "base_offset length epoch magic crc attributes last base_ms max_ms pid producer_epoch sequence records"
    values = dict(zip(names.split(), HEADER.unpack_from(batch), strict=True))
    values = {**values, "length": len(batch) - 12, **fields}
    changed = HEADER.pack(*values.values()) + batch[HEADER.size :]
    return changed[:17] + struct.pack(">I", crc32c(changed[21:])) + changed[21:]


def with_records(data: bytes, number: int, compression: Compression = Compression.NONE, **fields: int) -> bytes:
    batch = library_batch(ONE)[: HEADER.size] + data
    return resealed(batch, attributes=int(compression), records=number, last=number - 1, **fields)


def decode(batch: bytes, max_bytes: int = MIB) -> DecodedRecords:
    view = memoryview(batch)
    return decode_records(view, parse_batch(view), max_bytes)


def rows_of(decoded: DecodedRecords) -> list[Record]:
    columns = (it.to_pylist() for it in decoded)
    return [
        (timestamp, key, value, [(it["key"], it["value"]) for it in headers or ()])
        for timestamp, key, value, headers in zip(*columns, strict=True)
    ]


# ---- what is right


@given(records, st.sampled_from(Compression))
@settings(max_examples=100)
def test_what_the_library_sends_is_decoded(rows: list[Record], compression: Compression) -> None:
    batch = library_batch(rows, compression, (7, 3, 11))
    header = parse_batch(memoryview(batch))
    assert (header.records, header.last_offset_delta, header.length) == (len(rows), len(rows) - 1, len(batch) - 12)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (rows[0][0], max(row[0] for row in rows))
    decoded = decode(batch)
    assert rows_of(decoded) == rows
    assert [it.type for it in decoded] == [pa.int64(), pa.binary(), pa.binary(), HEADERS]
    assert decoded.headers.null_count == sum(not row[3] for row in rows)


@given(records, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
@settings(max_examples=100)
def test_what_is_encoded_is_what_the_library_would_send(rows: list[Record], offset: int, epoch: int) -> None:
    decoded = decode(library_batch(rows))
    encoded = encode_records(offset, epoch, **decoded._asdict())
    assert rows_of(decode(bytes(encoded))) == rows
    header = parse_batch(memoryview(encoded))
    assert (header.base_offset, header.leader_epoch) == (offset, epoch)
    struct.pack_into(">q", encoded, 0, 0)
    struct.pack_into(">i", encoded, 12, -1)
    assert bytes(encoded) == library_batch(rows)
    assert DefaultRecordBatch(bytes(encoded)).validate_crc()


def test_a_large_batch_is_decoded_whole() -> None:
    rows: list[Record] = [(NOW_MS + it, b"%d" % it, None, []) for it in range(25_000)]
    assert rows_of(decode(library_batch(rows, Compression.LZ4), 10 * MIB)) == rows


def test_nulls_in_headers_of_a_chunk_become_empty_keys() -> None:
    headers = pa.array([[None, {"key": None, "value": b"v"}, {"key": "k", "value": None}]], HEADERS)
    columns = decode(library_batch(ONE))._replace(headers=headers)
    encoded = encode_records(0, 0, **columns._asdict())
    assert rows_of(decode(bytes(encoded)))[0][3] == [("", None), ("", b"v"), ("k", None)]


def test_a_batch_with_append_time_has_one_time() -> None:
    rows: list[Record] = [(NOW_MS, None, b"a", []), (NOW_MS + 5, None, b"b", [])]
    batch = resealed(library_batch(rows), attributes=1 << 3, max_ms=NOW_MS + 9)
    assert decode(batch).timestamps.to_pylist() == [NOW_MS + 9] * 2
    assert parse_batch(memoryview(batch)).has_append_time


def test_a_record_without_a_time_has_minus_one() -> None:
    assert decode(resealed(library_batch(ONE), base_ms=-1)).timestamps.to_pylist() == [-1]


@pytest.mark.parametrize("compression", Compression)
def test_data_is_decompressed_up_to_the_limit(compression: Compression) -> None:
    data = bytes(range(256)) * 2000
    packed = {
        Compression.NONE: lambda it: it,
        Compression.GZIP: gzip.compress,
        Compression.SNAPPY: codec.snappy_encode,
        Compression.LZ4: codec.lz4_encode,
        Compression.ZSTD: codec.zstd_encode,
    }[compression](data)
    assert bytes(decompress(compression, memoryview(packed), len(data))) == data
    with pytest.raises(RecordsTooLarge):
        decompress(compression, memoryview(packed), len(data) - 1)


def test_snappy_without_a_frame_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"a" * 1000))
    assert bytes(decompress(Compression.SNAPPY, memoryview(raw), MIB)) == b"a" * 1000


# ---- what is wrong


BATCH = library_batch([(NOW_MS, b"k", b"v", [])] * 3)
WRONG_BATCHES: dict[str, tuple[bytes, type[RecordError]]] = {
    "nothing": (b"", CorruptRecord),
    "cut header": (BATCH[:40], CorruptRecord),
    "cut records": (BATCH[:-1], CorruptRecord),
    "short length": (resealed(BATCH, length=10), CorruptRecord),
    "negative length": (resealed(BATCH, length=-1), CorruptRecord),
    "long length": (resealed(BATCH, length=2**31 - 1), CorruptRecord),
    "two batches": (BATCH + BATCH, InvalidRecord),
    "wrong CRC": (BATCH[:-1] + b"x", CorruptRecord),
    "magic 0": (BATCH[:16] + b"\0" + BATCH[17:], UnsupportedRecordFormat),
    "magic 1": (BATCH[:16] + b"\1" + BATCH[17:], UnsupportedRecordFormat),
    "short magic 1": (BATCH[:16] + b"\1", UnsupportedRecordFormat),
    "count": (resealed(BATCH, records=4), InvalidRecord),
    "last offset": (resealed(BATCH, last=1), InvalidRecord),
    "no records": (resealed(BATCH, records=0, last=-1), InvalidRecord),
    "negative count": (resealed(BATCH, records=-2, last=-3), InvalidRecord),
    "compression": (resealed(BATCH, attributes=5), UnsupportedCompression),
    "transaction": (resealed(BATCH, attributes=1 << 4), TransactionalRecords),
    "control": (resealed(BATCH, attributes=1 << 5), InvalidRecord),
    "control of a transaction": (resealed(BATCH, attributes=3 << 4), InvalidRecord),
    "delete horizon": (resealed(BATCH, attributes=1 << 6), InvalidRecord),
    "no sequence": (resealed(BATCH, pid=1, producer_epoch=0), InvalidRecord),
    "no epoch": (resealed(BATCH, pid=1, sequence=0), InvalidRecord),
}


@pytest.mark.parametrize("name", WRONG_BATCHES)
def test_a_wrong_batch_is_refused(name: str) -> None:
    batch, error = WRONG_BATCHES[name]
    with pytest.raises(error) as raised:
        parse_batch(memoryview(batch))
    assert type(raised.value) is error


def test_the_codes_are_those_of_kafka() -> None:
    codes = {
        CorruptRecord: 2,
        RecordsTooLarge: 10,
        UnsupportedRecordFormat: 87,
        TransactionalRecords: 53,
        UnsupportedCompression: 76,
        InvalidRecord: 87,
    }
    assert {kind: kind.error_code for kind in codes} == codes
    assert set(RecordError.__subclasses__()) == set(codes)


def encoded(offset: int = 0, rest: bytes = b"\x01\x01\x00", length: int | None = None, time: bytes = b"\0") -> bytes:
    """A record: by default without a key, a value and headers. All its varints have one byte."""
    body = b"\0" + time + bytes([offset * 2]) + rest
    return bytes([2 * (len(body) if length is None else length)]) + body


GOOD = encoded()
WRONG_RECORDS = {
    "second offset": (GOOD + encoded(2), 2, 1),
    "repeated offset": (GOOD + encoded(0), 2, 1),
    "short": (GOOD + encoded(1, length=5), 2, 1),
    "long": (GOOD + encoded(1, length=20), 2, 1),
    "too few": (GOOD + bytes(14), 2, 1),
    "too many": (GOOD + encoded(1), 1, 0),
    "trailing bytes": (GOOD + b"\0", 1, 0),
    "key beyond the end": (encoded(rest=b"\x7e\x01\x00"), 1, 0),
    "headers beyond the end": (encoded(rest=b"\x01\x01\x7e"), 1, 0),
    "negative headers": (encoded(rest=b"\x01\x01\x01"), 1, 0),
    "header key that is no UTF-8": (encoded(rest=b"\x01\x01\x02\x02\xff\x01"), 1, 0),
    "header key that is null": (encoded(rest=b"\x01\x01\x02\x01\x01"), 1, 0),
    "endless varint": (encoded(rest=b"\xff" * 12), 1, 0),
    "cut varint": (encoded(rest=b"\x01\x01\x80"), 1, 0),
    "headers of cut varints": (encoded(rest=b"\x01\x01\x7e\x00\x81", length=8), 1, 0),
    "huge key": (encoded(rest=b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"), 1, 0),
}


@pytest.mark.parametrize("name", WRONG_RECORDS)
def test_a_wrong_record_is_refused_with_its_index(name: str) -> None:
    data, number, index = WRONG_RECORDS[name]
    batch = with_records(data, number)
    with pytest.raises(InvalidRecord) as raised:
        decode(batch)
    assert raised.value.index == index
    assert f"record {index}: " in raised.value.message


def test_more_records_than_bytes_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(InvalidRecord, match="2000000000 records cannot have 7 bytes"):
        decode(with_records(GOOD, 2_000_000_000))


def test_a_time_that_python_does_not_have_is_refused() -> None:
    last = int((datetime(9999, 12, 31, 23, 59, 59) - datetime(1970, 1, 1)).total_seconds()) * 1000 + 999
    batch = with_records(GOOD + encoded(1, time=b"\x02"), 2, base_ms=last, max_ms=last)
    with pytest.raises(InvalidTimestamp, match="years 1 to 9999") as raised:
        decode(batch)
    assert (raised.value.index, raised.value.error_code) == (1, 32)
    assert decode(with_records(GOOD, 1, base_ms=last)).timestamps.to_pylist() == [last]


@pytest.mark.parametrize("compression", [it for it in Compression if it])
def test_data_of_another_compression_is_refused(compression: Compression) -> None:
    for data in (b"", b"no compression at all", library_batch(ONE, compression)[HEADER.size : -2]):
        with pytest.raises(InvalidRecord):
            decode(with_records(data, 1, compression))


def test_a_second_member_of_gzip_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="other bytes"):
        decode(with_records(gzip.compress(GOOD) * 2, 1, Compression.GZIP))


def test_wrong_blocks_of_snappy_are_refused() -> None:
    frame = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for blocks in (b"\0", struct.pack(">i", -1), struct.pack(">i", 0), struct.pack(">i", 9) + b"a"):
        with pytest.raises(InvalidRecord):
            decode(with_records(frame + blocks, 1, Compression.SNAPPY))


def test_lz4_that_kafka_clients_cannot_read_is_refused() -> None:
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=True)
    compressor.compress(GOOD)
    with pytest.raises(InvalidRecord, match="depend on each other"):
        decode(with_records(bytes(compressor.finish()), 1, Compression.LZ4))


BOMBS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, gzip.compress),
    "snappy": (Compression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "framed snappy": (Compression.SNAPPY, codec.snappy_encode),
    "lz4": (Compression.LZ4, codec.lz4_encode),
    "zstd": (Compression.ZSTD, codec.zstd_encode),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_more_memory_than_the_limit(name: str) -> None:
    compression, compress = BOMBS[name]
    batch = with_records(compress(bytes(64 * MIB)), 1, compression)
    tracemalloc.start()
    try:
        with pytest.raises(RecordsTooLarge):
            decode(batch, MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


@given(st.data())
@settings(max_examples=150)
def test_any_batch_is_decoded_or_refused(data: st.DataObject) -> None:
    rows = data.draw(records)
    batch = bytearray(library_batch(rows, data.draw(st.sampled_from(Compression))))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER.size - 4, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(resealed(bytes(batch)))
    except RecordError:
        return
    # What was accepted can be kept and sent again.
    assert rows_of(decode(bytes(encode_records(0, 0, **decoded._asdict())))) == rows_of(decoded)
