"""Positions of groups on a real cluster: their lag, and where they are set to."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

import smq
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration


def read_all(client: smq.Client, topic: str, group: str, rows: int) -> None:
    with client.consumer(topic, group=group) as consumer:
        assert sum(len(batch) for batch in read_back(consumer, rows)) == rows
        consumer.commit()
    eventually(lambda: not client.admin().group(topic, group).members)


def reset(client: smq.Client, topic: str, *to: object, **options: object) -> smq.GroupReset:
    return client.admin().reset_group(topic, "g", *to, **options)  # type: ignore[arg-type]


def test_a_group_is_set_to_any_place_and_reads_from_there(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush={"interval": "1s"})
    admin = client.admin()
    with client.producer(topic) as producer:
        producer.send_many([b"early"] * 5).result()
        (old,) = (s.name for s in admin.segments(topic))
        admin.split(topic, old)
        eventually(lambda: len([s for s in admin.segments(topic) if s.phase == "open"]) == 2)
        low, high = sorted(s.name for s in admin.segments(topic))
        time.sleep(0.002)  # so that the time is after all messages of before
        middle = datetime.now(UTC)
        producer.send_many([b"late"] * 20, [b"%d" % n for n in range(20)]).result()
    read_all(client, topic, "g", 25)
    behind = eventually(lambda: (g := admin.group(topic, "g")).lag == 0 and g)
    assert behind.lag_seconds == 0 and not behind.members and behind.generation > 0
    ends = dict(behind.positions)
    assert set(ends) == {low, high}

    assert reset(client, topic, "earliest", dry_run=True).positions == {}
    assert admin.group(topic, "g").positions == ends, "that was a dry run"
    done = reset(client, topic, "earliest")
    assert (done.before, done.positions) == (ends, {})
    assert admin.group(topic, "g").lag == 25
    assert reset(client, topic, middle).positions == {low: 0, high: 0}
    assert admin.group(topic, "g").lag == 20
    assert reset(client, topic, by=3).positions == {low: 3, high: 3}
    assert reset(client, topic, by=-1).positions == {low: 2, high: 2}
    assert reset(client, topic, {old: 4}).positions == {old: 4}
    with client.consumer(topic, group="g") as consumer:
        first = consumer.poll(30)
        assert first is not None and (first.segment, first.first_offset) == (old, 4)
        with pytest.raises(smq.InvalidRequest, match="stop them first"):
            reset(client, topic, "latest")
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
