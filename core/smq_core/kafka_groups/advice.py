"""What an administrator of a group of Kafka clients is told to do."""

from __future__ import annotations


def of_kafka_clients(topic: str, group: str) -> str:
    """Only the broker that coordinates the group knows its members, so only it can change the group safely."""
    return (
        f"group {group} of {topic} is one of Kafka clients, whose members only their coordinator knows: end them, and "
        "use a tool of Kafka, which refuses while there are members. kafka-consumer-groups.sh --reset-offsets sets its "
        "offsets, --delete deletes the group, and --delete-offsets what it has committed for one topic"
    )
