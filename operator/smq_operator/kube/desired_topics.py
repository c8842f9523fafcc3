"""The desired topics, from Topic resources. A Topic with an invalid spec keeps its last good one, with the reason.

If a Topic has fields that only a newer operator supports, the rest of its spec is followed. Otherwise nobody would lead
the topic, and its segments would not move when brokers are replaced.

A Topic is parsed in the thread that received it, because 500 Topics, or one with 400 columns of large types, would hold
up the leader's event loop. A change of its status alone, the most frequent one, parses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from smq_core.errors import SpecRejected
from smq_operator.kube.client.kinds import Key, Resource, key_of
from smq_operator.platform_port import DesiredTopic, Problem
from smq_storage.topic_manifests.parser import TopicManifest, parse_api_resource


@dataclass(frozen=True, slots=True)
class ParsedTopic:
    """What the parser made of a Topic: the topic, and the fields that are unknown here; or why it refused it."""

    source: Mapping[str, Any]
    """All that the parser reads."""
    manifest: TopicManifest | None
    unknown: tuple[str, ...] = ()
    rejection: str = ""


class DesiredTopics:
    """Converts Topics one at a time as they change. Use it on the leader's event loop, but for ``parse``."""

    def __init__(self) -> None:
        self._desired_topics: dict[str, DesiredTopic] = {}
        self._problems: dict[str, Problem] = {}
        self._parsed: dict[str, ParsedTopic] = {}

    def parse(self, topics: Iterable[Resource]) -> None:
        """Parses Topics that ``update`` will get, so that it does not have to. Call it in any thread."""
        for topic in topics:
            self._parse("/".join(key_of(topic)), topic)

    def update(self, key: Key, topic: Resource | None) -> None:
        """Takes the Topic as it is now; None if it is gone. A Topic that is being deleted is not desired."""
        name = "/".join(key)
        if topic is None or topic["metadata"].get("deletionTimestamp"):
            self._desired_topics.pop(name, None)
            self._problems.pop(name, None)
            # Also of Topics in a list that was older than their deletion.
            for former in set(self._parsed.copy()) - self._desired_topics.keys() - self._problems.keys():
                self._parsed.pop(former, None)
            return
        uid: str = topic["metadata"]["uid"]
        parsed = self._parse(name, topic)
        if parsed.manifest is None:
            self._problems[name] = Problem(f"topic {name}", parsed.rejection)
            old = self._desired_topics.get(name)
            if old is not None and old.uid == uid:
                self._desired_topics[name] = replace(old, problem=parsed.rejection)
            else:
                self._desired_topics.pop(name, None)
            return
        self._problems.pop(name, None)
        problem = _unknown_fields_message(parsed.unknown) if parsed.unknown else None
        self._desired_topics[name] = DesiredTopic(
            name=name,
            spec=parsed.manifest.spec,
            uid=uid,
            problem=problem,
            paused=parsed.manifest.paused,
            generation=topic["metadata"].get("generation", 0),
            was_created=bool((topic.get("status") or {}).get("segments")),
        )

    def _parse(self, name: str, topic: Resource) -> ParsedTopic:
        source, parsed = _source(topic), self._parsed.get(name)
        if parsed is None or parsed.source != source:
            parsed = self._parsed[name] = _parse(source)
        return parsed

    def all(self) -> Mapping[str, DesiredTopic]:
        return self._desired_topics

    def problems(self) -> list[Problem]:
        return [self._problems[name] for name in sorted(self._problems)]


def _source(topic: Resource) -> dict[str, Any]:
    metadata = topic["metadata"]
    read = {field: metadata[field] for field in ("name", "namespace", "annotations") if field in metadata}
    return {key: value for key, value in topic.items() if key != "status"} | {"metadata": read}


def _parse(source: Mapping[str, Any]) -> ParsedTopic:
    try:
        manifest, unknown = parse_api_resource(source)
    except Exception as error:
        # Also what the parser did not expect: such a Topic must affect no other one.
        message = error.message if isinstance(error, SpecRejected) else f"the spec cannot be parsed: {error!r}"
        return ParsedTopic(source, None, rejection=message)
    return ParsedTopic(source, manifest, tuple(unknown))


def _unknown_fields_message(fields: tuple[str, ...]) -> str:
    which = ", ".join(fields)
    return (
        f"this operator is older than the definition of Topic and does not support {which}; it follows the rest of the "
        "spec. Upgrade the operator, or remove the field"
    )
