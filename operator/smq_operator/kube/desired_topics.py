"""The desired topics, from Topic resources. A Topic with an invalid spec keeps its last good one, with the reason.

If a Topic has fields that only a newer operator supports, the rest of its spec is followed. Otherwise nobody would lead
the topic, and its segments would not move when brokers are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from smq_core.errors import SpecRejected
from smq_operator.kube.client.kinds import Key, Resource
from smq_operator.platform_port import DesiredTopic, Problem
from smq_storage.topic_manifests.parser import parse_api_resource


class DesiredTopics:
    """Converts Topics one at a time as they change."""

    def __init__(self) -> None:
        self._desired_topics: dict[str, DesiredTopic] = {}
        self._problems: dict[str, Problem] = {}

    def update(self, key: Key, topic: Resource | None) -> None:
        """Takes the Topic as it is now; None if it is gone. A Topic that is being deleted is not desired."""
        name = "/".join(key)
        if topic is None or topic["metadata"].get("deletionTimestamp"):
            self._desired_topics.pop(name, None)
            self._problems.pop(name, None)
            return
        uid: str = topic["metadata"]["uid"]
        try:
            manifest, unknown = parse_api_resource(topic)
        except Exception as error:
            # Also what the parser did not expect: such a Topic must affect no other one.
            message = error.message if isinstance(error, SpecRejected) else f"the spec cannot be parsed: {error!r}"
            self._problems[name] = Problem(f"topic {name}", message)
            old = self._desired_topics.get(name)
            if old is not None and old.uid == uid:
                self._desired_topics[name] = replace(old, problem=message)
            else:
                self._desired_topics.pop(name, None)
            return
        self._problems.pop(name, None)
        problem = _unknown_fields_message(unknown) if unknown else None
        self._desired_topics[name] = DesiredTopic(
            name,
            manifest.spec,
            uid=uid,
            problem=problem,
            paused=manifest.paused,
            generation=topic["metadata"].get("generation", 0),
            was_created=bool((topic.get("status") or {}).get("segments")),
        )

    def all(self) -> Mapping[str, DesiredTopic]:
        return self._desired_topics

    def problems(self) -> list[Problem]:
        return [self._problems[name] for name in sorted(self._problems)]


def _unknown_fields_message(fields: list[str]) -> str:
    which = ", ".join(fields)
    return (
        f"this operator is older than the definition of Topic and does not support {which}; it follows the rest of the "
        "spec. Upgrade the operator, or remove the field"
    )
