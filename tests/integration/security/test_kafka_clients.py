"""Kafka clients of a secure release: who gets in and what it may do, with librdkafka, on real processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from integration.kafka.java_tools import JavaTools
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

PARTITIONS = 4
MECHANISMS = ("PLAIN", "OAUTHBEARER")


@pytest.fixture
def app(short_lived: SecureCluster, topic: str) -> str:
    """An identity that may write and read one topic, with groups of one name. Grants live for four seconds."""
    short_lived.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 4})
    identity = f"app-{topic}"
    short_lived.token_file(identity)
    short_lived.allow(identity, rule(topic))
    return identity


def rule(topic: str) -> dict[str, Any]:
    return {"topics": [topic], "verbs": ["produce", "consume"], "consumerGroups": ["team.*"]}


def settings(cluster: SecureCluster, identity: str, mechanism: str = "PLAIN", **changes: Any) -> dict[str, Any]:
    """Of a client with the token of this identity."""
    token = cluster.token_file(identity).read_text()
    addresses = [eventually(lambda it=it: cluster.kafka_address(it)) for it in cluster.pids()]  # type: ignore[misc]
    common = {
        "bootstrap.servers": ",".join(addresses),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.ca_file),
        "sasl.mechanisms": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return common | {"oauth_cb": lambda _: (token, time.time() + 3600)} | changes
    return common | {"sasl.username": identity, "sasl.password": token} | changes


def sent(producer: confluent_kafka.Producer, topic: str, value: bytes = b"v") -> KafkaError | None:
    """What became of one message."""
    errors: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(HANG_GUARD) == 0
    return errors[0]


def read(consumer: confluent_kafka.Consumer, topic: str) -> confluent_kafka.Message:
    """The first message, or the first error that is not one of a connection."""
    consumer.subscribe([topic])
    return eventually(lambda: consumer.poll(0.2), what="a message")


def check_error(make: Callable[[Callable[[KafkaError], None]], Any], words: str) -> None:
    """Waits until a client that connects says this of itself."""
    errors: list[KafkaError] = []
    client = make(errors.append)
    eventually(lambda: client.poll(0.1) or any(words in it.str() for it in errors), what=words)


@pytest.fixture
def closing() -> Iterator[Callable[..., confluent_kafka.Consumer]]:
    made: list[confluent_kafka.Consumer] = []

    def consumer(values: dict[str, Any], group: str) -> confluent_kafka.Consumer:
        made.append(confluent_kafka.Consumer(values | {"group.id": group, "auto.offset.reset": "earliest"}))
        return made[-1]

    yield consumer
    for it in made:
        it.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_whoever_has_a_token_and_the_rights_writes_and_reads_in_a_group(
    short_lived: SecureCluster, topic: str, app: str, mechanism: str, closing: Callable[..., confluent_kafka.Consumer]
) -> None:
    values = settings(short_lived, app, mechanism)
    producer = confluent_kafka.Producer(values | {"enable.idempotence": True})
    assert sent(producer, topic, b"hello") is None
    consumer = closing(values, "team.readers")
    message = read(consumer, topic)
    assert message.error() is None and message.value() == b"hello"
    consumer.commit(message, asynchronous=False)
    listed = AdminClient(values).list_topics(timeout=HANG_GUARD).topics
    assert set(listed) == {topic}, "and none of others"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_whoever_has_no_such_token_learns_that(
    short_lived: SecureCluster, topic: str, app: str, mechanism: str
) -> None:
    values = settings(short_lived, app, mechanism)
    wrong = (
        {"oauth_cb": lambda _: ("wrong", time.time() + 3600)}
        if mechanism == "OAUTHBEARER"
        else {"sasl.password": "wrong"}
    )
    check_error(
        lambda note: confluent_kafka.Producer(values | wrong | {"error_cb": note}),
        "this release does not know this token",
    )


def test_a_right_that_is_missing_is_an_error_of_the_topic_or_the_group(
    short_lived: SecureCluster, topic: str, app: str, closing: Callable[..., confluent_kafka.Consumer]
) -> None:
    stranger = f"stranger-{topic}"
    short_lived.token_file(stranger)
    values = settings(short_lived, stranger)
    refused = sent(confluent_kafka.Producer(values), topic)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert AdminClient(values).list_topics(timeout=HANG_GUARD).topics == {}
    reader = read(closing(settings(short_lived, app), "others.readers"), topic)
    assert reader.error() is not None and reader.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED

    short_lived.allow(stranger, {"topics": [topic], "verbs": ["produce"]})
    assert eventually(lambda: sent(confluent_kafka.Producer(values), topic) is None)
    unread = read(closing(values, "team.readers"), topic)
    assert unread.error() is not None
    assert unread.error().code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


def test_a_right_that_is_taken_away_ends_with_its_grant(short_lived: SecureCluster, topic: str, app: str) -> None:
    producer = confluent_kafka.Producer(settings(short_lived, app))
    assert sent(producer, topic) is None
    short_lived.allow(app)
    refused = eventually(lambda: sent(producer, topic), what="the grant ends")
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_token_that_is_removed_ends_the_session(short_lived: SecureCluster, topic: str, app: str) -> None:
    producer = confluent_kafka.Producer(settings(short_lived, app, **{"message.timeout.ms": 60_000}))
    assert sent(producer, topic) is None
    short_lived.replace_token(app)
    logs = [short_lived.folder / "logs" / f"{name}.log" for name in short_lived.pids()]

    def has_ended() -> bool:
        producer.produce(topic, b"v")
        producer.poll(0.1)
        return any(f"does not take the token of {app} any more" in it.read_text() for it in logs)

    eventually(has_ended, what="the session ends")
    producer.purge()


def test_clients_do_not_talk_to_brokers_whose_root_they_do_not_know(
    short_lived: SecureCluster, topic: str, app: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(CertificateAuthority.create("another", now=time.time()).roots)
    values = settings(short_lived, app)
    check_error(
        lambda note: confluent_kafka.Producer(values | {"ssl.ca.location": str(other), "error_cb": note}),
        "certificate verify failed",
    )


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL"])
def test_without_tls_or_without_a_login_nothing_works(
    short_lived: SecureCluster, topic: str, app: str, protocol: str
) -> None:
    values = settings(short_lived, app, **{"security.protocol": protocol})
    with pytest.raises(KafkaException) as caught:
        AdminClient(values).list_topics(timeout=2)
    assert caught.value.args[0].code() == KafkaError._TRANSPORT


def test_a_client_above_its_quota_learns_how_long_to_wait(short_lived: SecureCluster, topic: str, app: str) -> None:
    with short_lived.connect() as administrator:
        quotas = [{"identity": app, "produce": {"bytesPerSecond": 20_000}}]
        administrator.admin().alter_topic(topic, settings={"quotas": quotas})
    throttled: list[float] = []
    values = settings(short_lived, app, throttle_cb=lambda event: throttled.append(event.throttle_time))
    producer = confluent_kafka.Producer(values)

    def is_throttled() -> bool:
        assert sent(producer, topic, b"x" * 15_000) is None
        producer.poll(0)
        return bool(throttled)

    eventually(is_throttled, what="a response tells the client to wait")
    assert 0 < throttled[0] <= 30


def test_topics_are_created_and_deleted_by_whoever_may_do_that(
    short_lived: SecureCluster, topic: str, app: str
) -> None:
    admin, new = AdminClient(settings(short_lived, app)), f"new-{topic}"

    def create() -> None:
        admin.create_topics([NewTopic(new, 3, 2)])[new].result(HANG_GUARD)

    with pytest.raises(KafkaException) as refused:
        create()
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    short_lived.allow(app, {"topics": [new], "verbs": ["create", "delete", "consume"]})
    eventually(lambda: create() or True, what="the right is known")
    assert new in admin.list_topics(timeout=HANG_GUARD).topics
    admin.delete_topics([new])[new].result(HANG_GUARD)


@pytest.mark.slow
def test_java_logs_in_too(short_lived: SecureCluster, topic: str, app: str, tmp_path: Path) -> None:
    values = settings(short_lived, app)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={short_lived.ca_file}\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{app}" password="{values["sasl.password"]}";\n'
    )
    with JavaTools(values["bootstrap.servers"]) as tools:
        listed = tools.run("org.apache.kafka.tools.TopicCommand", "--command-config", config, "--list")
        assert listed.splitlines()[0] == topic
        sent = tools.run_alone(
            "org.apache.kafka.tools.VerifiableProducer",
            *("--topic", topic, "--max-messages", 100, "--command-config", config),
        )
    assert sent.count("producer_send_success") == 100, sent


async def test_aiokafka_logs_in_too(short_lived: SecureCluster, topic: str, app: str) -> None:
    values = settings(short_lived, app)
    options = {
        "bootstrap_servers": values["bootstrap.servers"],
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=str(short_lived.ca_file)),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": app,
        "sasl_plain_password": values["sasl.password"],
    }
    async with asyncio.timeout(HANG_GUARD):
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"v")
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=None, auto_offset_reset="earliest", **options)
        async with consumer:
            assert (await consumer.getone()).value == b"v"
