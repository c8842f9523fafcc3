"""Kafka clients of a secure release that reach nothing but the proxy: it has no rights, and they have their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from integration.security.test_kafka_clients import MECHANISMS, app, check_error, closing, read, sent, settings
from smq_operator.security.identities.tokens import BrokerTokens
from support.processes.kafka_proxy import kafka_proxy
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD, eventually

__all__ = ["app", "closing"]

pytestmark = pytest.mark.integration

INCARNATION = "f" * 32


@pytest.fixture(scope="module")
def proxy(short_lived: SecureCluster) -> Iterator[str]:
    """It logs in at the leader as a broker does."""
    key = (short_lived.security / "brokers.key").read_bytes()
    token = short_lived.folder / "proxy.token"
    token.write_text(BrokerTokens(key, lambda _: False).issue(INCARNATION))
    flags = ("--incarnation", INCARNATION, "--ca-file", str(short_lived.ca_file), "--token-file", str(token))
    with kafka_proxy(short_lived.folder, short_lived.address, *flags) as address:
        yield address


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_has_its_own_rights_through_the_proxy(
    short_lived: SecureCluster,
    proxy: str,
    topic: str,
    app: str,
    mechanism: str,
    closing: Callable[..., confluent_kafka.Consumer],
) -> None:
    values = settings(short_lived, app, mechanism, **{"bootstrap.servers": proxy})
    producer = confluent_kafka.Producer(values | {"enable.idempotence": True})
    assert sent(producer, topic, b"hello") is None
    consumer = closing(values, "team.readers")
    message = read(consumer, topic)
    assert message.error() is None and message.value() == b"hello"
    consumer.commit(message, asynchronous=False)
    listed = AdminClient(values).list_topics(timeout=HANG_GUARD)
    assert set(listed.topics) == {topic}, "and none of others"
    assert [f"{it.host}:{it.port}" for it in listed.brokers.values()] == [proxy]
    other = read(closing(values, "others.readers"), topic)
    assert other.error() is not None and other.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED

    stranger = f"stranger-{topic}"
    short_lived.token_file(stranger)
    strange = settings(short_lived, stranger, mechanism, **{"bootstrap.servers": proxy})
    refused = sent(confluent_kafka.Producer(strange), topic)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_whoever_has_no_token_learns_that_at_the_proxy(
    short_lived: SecureCluster, proxy: str, topic: str, app: str
) -> None:
    wrong = {"bootstrap.servers": proxy, "sasl.password": "wrong"}
    values = settings(short_lived, app, **wrong)
    check_error(
        lambda note: confluent_kafka.Producer(values | {"error_cb": note}), "this release does not know this token"
    )


def test_a_client_above_its_quota_learns_it_through_the_proxy(
    short_lived: SecureCluster, proxy: str, topic: str, app: str
) -> None:
    with short_lived.connect() as administrator:
        quotas = [{"identity": app, "produce": {"bytesPerSecond": 20_000}}]
        administrator.admin().alter_topic(topic, settings={"quotas": quotas})
    throttled: list[float] = []
    notified = {"bootstrap.servers": proxy, "throttle_cb": lambda event: throttled.append(event.throttle_time)}
    producer = confluent_kafka.Producer(settings(short_lived, app, **notified))

    def is_throttled() -> bool:
        assert sent(producer, topic, b"x" * 15_000) is None
        producer.poll(0)
        return bool(throttled)

    eventually(is_throttled, what="a response tells the client to wait")
