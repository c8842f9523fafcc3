"""Certificates and grants are renewed under running clients, which end only when the leader denies a right."""

from __future__ import annotations

import threading
import time

import pytest

import smq
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_nothing_is_lost_or_doubled_while_certificates_are_renewed(short_lived: SecureCluster, topic: str) -> None:
    short_lived.create(topic)
    identity = f"app-{topic}"
    short_lived.token_file(identity)
    short_lived.allow(identity, {"topics": [topic], "verbs": ["produce", "consume"]})
    with short_lived.connect_as(identity) as client:
        credentials = client._target.dialer.credentials
        assert credentials is not None
        seen: set[int] = set()
        sent = 0
        with client.producer(topic) as producer, client.consumer(topic, start="earliest") as consumer:
            found: list[bytes] = []
            while len(seen) < 5:
                producer.send(b"%d" % sent).result(HANG_GUARD)
                sent += 1
                seen.add(hash(credentials.certificate().chain))
                batch = consumer.poll(0)
                found += batch.table.column("value").to_pylist() if batch is not None else []
            while len(found) < sent:
                batch = consumer.poll(HANG_GUARD)
                assert batch is not None
                found += batch.table.column("value").to_pylist()
            assert found == [b"%d" % n for n in range(sent)]


def test_a_right_that_is_taken_away_ends_producer_and_consumer(short_lived: SecureCluster, topic: str) -> None:
    short_lived.create(topic)
    identity = f"app-{topic}"
    short_lived.token_file(identity)
    short_lived.allow(identity, {"topics": [topic], "verbs": ["produce", "consume"]})
    with short_lived.connect_as(identity) as client:
        producer = client.producer(topic)
        consumer = client.consumer(topic, start="earliest")
        producer.send(b"a").result(HANG_GUARD)
        assert consumer.poll(HANG_GUARD) is not None
        ended: list[BaseException] = []

        def poll() -> None:
            try:
                while True:
                    consumer.poll(1.0)
            except smq.SmqError as error:
                ended.append(error)

        thread = threading.Thread(target=poll)
        thread.start()
        short_lived.allow(identity)
        with pytest.raises(smq.PermissionDenied) as caught:
            deadline = time.monotonic() + HANG_GUARD
            while time.monotonic() < deadline:
                producer.send(b"b").result(HANG_GUARD)
                time.sleep(0.05)
        assert identity in caught.value.message and not isinstance(caught.value, smq.InvalidRequest)
        thread.join(HANG_GUARD)
        assert [type(error) for error in ended] == [smq.PermissionDenied]
        with pytest.raises(smq.PermissionDenied):
            consumer.poll(0)
        with pytest.raises(smq.PermissionDenied):
            producer.send(b"c")
        consumer.close()
        producer.close()


def test_a_token_that_is_replaced_in_its_file_is_used(short_lived: SecureCluster, topic: str) -> None:
    short_lived.create(topic)
    identity = f"app-{topic}"
    short_lived.token_file(identity)
    short_lived.allow(identity, {"topics": [topic], "verbs": ["produce"]})
    with short_lived.connect_as(identity) as client, client.producer(topic, producer_id="one") as producer:
        producer.send(b"a").result(HANG_GUARD)
        short_lived.replace_token(identity)
        await_new_certificates(client)
        for _ in range(20):
            producer.send(b"b").result(HANG_GUARD)
        assert client.admin().whoami().identity == identity


def test_a_producer_does_not_become_one_of_another_identity(short_lived: SecureCluster, topic: str) -> None:
    short_lived.create(topic)
    first, second = f"first-{topic}", f"second-{topic}"
    token_file = short_lived.token_file(first)
    for identity in (first, second):
        short_lived.allow(identity, {"topics": [topic], "verbs": ["produce"]})
    with short_lived.connect_as(first) as client:
        producer = client.producer(topic)
        producer.send(b"a").result(HANG_GUARD)
        token_file.write_text(short_lived.token_file(second).read_text())
        await_new_certificates(client)
        with pytest.raises(smq.PermissionDenied, match=f"is one of {first}, so {second} may not use it"):
            deadline = time.monotonic() + HANG_GUARD
            while time.monotonic() < deadline:
                producer.send(b"b").result(HANG_GUARD)
        producer.close()
        with client.producer(topic) as another:
            another.send(b"c").result(HANG_GUARD)


def await_new_certificates(client: smq.Client) -> None:
    """Waits for two: the first one may have been under way before."""
    credentials = client._target.dialer.credentials
    assert credentials is not None
    for _ in range(2):
        former = credentials.certificate()
        eventually(lambda former=former: credentials.certificate() is not former, what="a new certificate")  # type: ignore[misc]
