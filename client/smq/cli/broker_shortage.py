"""Warns when there are fewer brokers than replicas, before the user finds that in the condition ``Balanced``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from smq.cli.connection.session import print_warning
from smq.cli.output import formatting
from smq_core.errors import SmqError

if TYPE_CHECKING:
    from smq import Admin, BrokerInfo, TopicInfo

MAX_NAMED = 5


def warn_of_manifest(admin: Admin, text: str) -> None:
    """For a topic that was just created or changed by this manifest."""
    from smq_core.model.entities import Durability  # imported late: most commands read no manifests
    from smq_storage.topic_manifests.parser import parse_document

    with suppress(SmqError):  # the topic is there, and nothing but the warning failed
        topic = parse_document(text).topic
        if topic.spec.durability is Durability.REPLICATED:
            name = formatting.topic(topic.full_name)
            if message := shortage(topic.spec.replicas, available(admin.brokers())):
                print_warning(
                    f"{message}. `smq topic describe {name}` shows whether that is over: Balanced is True then"
                )


def warn_of_drain(admin: Admin, broker: str) -> None:
    """For a broker that is about to drain."""
    brokers = admin.brokers()
    others = [it for it in brokers if it.name != broker]
    if len(others) == len(brokers):
        return  # there is no such broker, as the leader will say
    if message := drain_shortage(admin.topics(), available(others)):
        print_warning(f"{message}. `smq broker undrain {broker}` brings it back")


def available(brokers: Iterable[BrokerInfo]) -> int:
    """How many brokers take segments."""
    return sum(broker.state == "alive" for broker in brokers)


def shortage(replicas: int, brokers: int) -> str:
    """What happens to a topic with that number of replicas; empty if there are enough brokers."""
    if brokers >= replicas or replicas < 2:
        return ""
    if not brokers:
        return f"the topic has {replicas} replicas, but no broker is alive: it accepts messages when one starts"
    alive = "1 broker is" if brokers == 1 else f"{brokers} brokers are"
    return f"the topic has {replicas} replicas, but {alive} alive: {_consequence(brokers)}"


def drain_shortage(topics: Sequence[TopicInfo], brokers: int) -> str:
    """What happens to segments with more replicas than there are other brokers; empty if there are none."""
    concerned = [
        formatting.topic(topic.name)
        for topic in topics
        if any(len(s.brokers) > brokers and not s.successors for s in topic.segments)
    ]
    if not concerned or not brokers:  # without any other broker the leader refuses
        return ""
    names = ", ".join(concerned[:MAX_NAMED])
    more = f" and {len(concerned) - MAX_NAMED} more" if len(concerned) > MAX_NAMED else ""
    left = formatting.plural(brokers, "other broker")
    return f"only {left} can take the replicas of {names}{more}: {_consequence(brokers)}"


def _consequence(brokers: int) -> str:
    until = "until there are more brokers"
    if brokers == 1:
        return f"segments have 1 replica, and acks wait for the filer, {until}"
    return f"segments have {brokers} replicas {until}"
