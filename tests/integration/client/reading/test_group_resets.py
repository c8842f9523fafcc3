"""Positions of groups on a real cluster: their lag, and where they are set to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import smq
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

EARLY, LATE = 5, 200


def read_all(client: smq.Client, topic: str, rows: int) -> None:
    """Reads and commits all messages, and waits until the leader knows how many there are and that nobody reads."""
    count = 0
    with client.consumer(topic, group="g") as consumer:
        while count < rows:
            batch = consumer.poll(HANG_GUARD)
            assert batch is not None
            count += len(batch)
            consumer.commit()
    eventually(lambda: sum(it.end for it in client.admin().group(topic, "g").segments) == LATE)
    eventually(lambda: not client.admin().group(topic, "g").members)


def reset(client: smq.Client, topic: str, *to: object, **options: object) -> smq.GroupReset:
    return client.admin().reset_group(topic, "g", *to, **options)  # type: ignore[arg-type]


def test_a_group_is_set_to_any_place_and_reads_from_there(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush={"interval": "1s"})
    admin = client.admin()
    with client.producer(topic) as producer:
        producer.send_many([b"early"] * EARLY).result()
        (old,) = (s.name for s in admin.segments(topic))
        admin.split(topic, old)
        eventually(lambda: len([s for s in admin.segments(topic) if s.phase == "open"]) == 2)
        low, high = sorted(s.name for s in admin.segments(topic))
        middle = datetime.now(UTC)
        producer.send_many([b"late"] * LATE, [b"%d" % n for n in range(LATE)]).result()
    read_all(client, topic, EARLY + LATE)
    behind = admin.group(topic, "g")
    assert behind.lag == behind.lag_seconds == 0 and behind.generation > 0
    ends = dict(behind.positions)
    assert set(ends) == {low, high}

    assert reset(client, topic, "earliest", dry_run=True).positions == {}
    assert admin.group(topic, "g").positions == ends, "that was a dry run"
    done = reset(client, topic, "earliest")
    assert (done.before, done.positions) == (ends, {})
    assert admin.group(topic, "g").lag == EARLY + LATE
    assert reset(client, topic, middle).positions == {low: 0, high: 0}
    assert admin.group(topic, "g").lag == LATE
    assert reset(client, topic, by=3).positions == {low: 3, high: 3}
    assert reset(client, topic, by=-1).positions == {low: 2, high: 2}
    assert reset(client, topic, {old: 4}).positions == {old: 4}
    with client.consumer(topic, group="g") as consumer:
        first = consumer.poll(HANG_GUARD)
        assert first is not None and (first.segment, first.first_offset) == (old, 4)
    eventually(lambda: not admin.group(topic, "g").members)
    assert reset(client, topic, "latest").positions == ends
    assert reset(client, topic, datetime(2100, 1, 1)).positions == ends, "there are no messages after that time"
    assert reset(client, topic, datetime(2000, 1, 1)).positions == {old: 0}

    with pytest.raises(smq.InvalidRequest, match=rf"{low} has no offset 999: it has messages up to {ends[low]}"):
        reset(client, topic, {low: 999})
    with pytest.raises(smq.InvalidRequest, match=f"{old} has no offset 6: it ends at 5, so 0 to 5 are possible"):
        reset(client, topic, {old: 6})
    with pytest.raises(smq.InvalidRequest, match="pass either"):
        reset(client, topic)
    admin.delete_group(topic, "g")
    assert admin.groups(topic) == []
    with pytest.raises(smq.InvalidRequest, match="has no group g"):
        reset(client, topic, "latest")
    assert reset(client, topic, {low: 1}, create=True).positions == {low: 1}
