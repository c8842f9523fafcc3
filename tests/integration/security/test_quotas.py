"""Quotas of a secure release: an identity above its own waits, others do not, and all that was written is there."""

from __future__ import annotations

import json
import logging
import re
import time
import urllib.request

import pytest

import smq
from smq_core.access.quotas import BURST_SECONDS
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

SLOW_BYTES_PER_SECOND = 1_000_000
VALUE_BYTES = 20_000


@pytest.fixture
def limited(short_lived: SecureCluster, topic: str) -> str:
    """A topic on which ``slow`` has a quota, and ``free`` none. Grants live for four seconds."""
    short_lived.create(topic)
    for identity in ("slow", "free"):
        short_lived.token_file(identity)
        short_lived.allow(identity, {"topics": [topic], "verbs": ["produce", "consume"]})
    set_quotas(short_lived, topic, {"bytesPerSecond": SLOW_BYTES_PER_SECOND})
    return topic


def set_quotas(cluster: SecureCluster, topic: str, *produce: dict[str, object]) -> None:
    quotas = [{"identity": "slow", "produce": limits} for limits in produce]
    with cluster.connect() as administrator:
        administrator.admin().alter_topic(topic, settings={"quotas": quotas})


def throttled_seconds(cluster: SecureCluster, topic: str) -> float:
    """As the metrics of all brokers say it."""
    total = 0.0
    for log in (cluster.folder / "logs").glob("*.log"):
        ready = [json.loads(line) for line in log.read_text().splitlines() if "broker.ready" in line]
        with urllib.request.urlopen(f"http://{ready[-1]['http']}/metrics") as reply:
            text = reply.read().decode()
        found = rf'^smq_quota_throttled_seconds_total{{right="produce",topic="default/{topic}"}} (\S+)$'
        total += sum(float(value) for value in re.findall(found, text, re.MULTILINE))
    return total


def value(identity: str, number: int) -> bytes:
    return b"%s %06d".ljust(VALUE_BYTES) % (identity.encode(), number)


def read(cluster: SecureCluster, topic: str, count: int) -> list[tuple[bytes, float]]:
    """Values without their padding, and when each was appended, by the clock of this machine."""
    found: list[tuple[bytes, float]] = []
    with cluster.connect() as client, client.consumer(topic, start="earliest") as consumer:
        while len(found) < count:
            batch = consumer.poll(HANG_GUARD)
            assert batch is not None, f"only {len(found)} messages came"
            times = [it.timestamp() for it in batch.table.column("appended").to_pylist()]
            found += zip(map(bytes.rstrip, batch.table.column("value").to_pylist()), times, strict=True)
    return found


def test_an_identity_above_its_quota_waits_and_others_do_not(
    short_lived: SecureCluster, limited: str, caplog: pytest.LogCaptureFixture
) -> None:
    count = 1500  # for which ``slow`` would take half a minute
    others = 300
    with short_lived.connect_as("slow") as one, short_lived.connect_as("free") as another:
        slow, free = one.producer(limited), another.producer(limited)
        with caplog.at_level(logging.WARNING):
            waiting = [slow.send(value("slow", n), key=b"k") for n in range(count)]
            waiting[0].result(HANG_GUARD)
            for n in range(others):
                free.send(value("free", n), key=b"k")
            free.flush(HANG_GUARD)
            eventually(lambda: throttled_seconds(short_lived, limited) > 1, what="the metric says that it waits")
            waiting[150].result(HANG_GUARD)
        assert not waiting[-1].done()
        warnings = [it.message for it in caplog.records if "quota" in it.message]
        assert warnings and limited in warnings[0]
        lifted_at = time.time()
        set_quotas(short_lived, limited)
        for delivery in waiting:
            delivery.result(HANG_GUARD)
    found = read(short_lived, limited, count + others)
    for identity, sent in ((b"slow", count), (b"free", others)):
        mine = [it for it, _ in found if it.startswith(identity)]
        assert mine == [b"%s %06d" % (identity, n) for n in range(sent)], "in order, each once"
    times = [at for it, at in found if it.startswith(b"slow") and at < lifted_at]
    paid = sum(at < times[-1] for at in times) * VALUE_BYTES  # when the broker took the last frame
    assert 0 < paid <= SLOW_BYTES_PER_SECOND * (times[-1] - times[0] + BURST_SECONDS) * 1.05


def test_a_stream_above_the_quota_is_refused_with_who_and_what(short_lived: SecureCluster, limited: str) -> None:
    set_quotas(short_lived, limited, {"streams": 1})
    with short_lived.connect_as("slow") as one, short_lived.connect_as("slow") as another:
        first = one.producer(limited)
        first.send(b"a").result(HANG_GUARD)
        with pytest.raises(smq.DeliveryTimeout, match="slow has used up its quota of streams to produce default/"):
            another.producer(limited, timeout=1).send(b"b").result(HANG_GUARD)
        first.close()
        one.close()
        another.producer(limited).send(b"c").result(HANG_GUARD)
