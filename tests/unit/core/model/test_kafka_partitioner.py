"""The hashes of Kafka's Java client, from its own tests (``UtilsTest.testMurmur2``)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.kafka_partitioner import kafka_partition_of, kafka_partitions_of, murmur2
from smq_core.model.keyspace import Partitioner, Ring, partition_of

HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), HASHES.items())
def test_hashes_are_those_of_kafka(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert kafka_partition_of(key, 7) == (signed & 0x7FFFFFFF) % 7
    assert kafka_partitions_of([key], 7).tolist() == [(signed & 0x7FFFFFFF) % 7]


@given(st.lists(st.binary(max_size=13), max_size=50), st.integers(1, 1024))
def test_many_keys_go_where_each_goes(keys: list[bytes], partitions: int) -> None:
    found = kafka_partitions_of(keys, partitions)
    assert found.dtype == "int32"
    assert found.tolist() == [kafka_partition_of(key, partitions) for key in keys]


def test_the_partitioner_of_a_ring_decides() -> None:
    keys = [b"%d" % n for n in range(100)]
    for partitioner, one in ((Partitioner.HASH, partition_of), (Partitioner.KAFKA, kafka_partition_of)):
        ring = Ring(16, partitioner)
        assert ring.partitions_of(keys).tolist() == [one(key, 16) for key in keys]
        assert [ring.partition_of(key) for key in keys] == [one(key, 16) for key in keys]
    assert Ring(16) == Ring(16, Partitioner.HASH)
