"""A topic's settings as text: which are defaults, what changes, and what a change risks."""

from __future__ import annotations

import pytest

from smq.cli.setting_options import SETTING_OPTIONS
from smq_core.errors import InvalidRequest
from smq_core.model.entities import TopicSpec
from smq_storage.topic_manifests.parser import TopicManifest, parse_manifest
from smq_storage.topic_manifests.topic_settings import manifest_changes, nested_fields, settings_of

HEAD = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {name: t}\nspec: "
COLUMNS = "schema: [{name: id, type: int32}, {name: note, type: string, nullable: true}]"


def manifest(spec: str) -> TopicManifest:
    return parse_manifest(f"{HEAD}{{{spec}}}\n")


def changes(before: str, after: str) -> list[tuple[str, str]]:
    return [(it.text, it.risk) for it in manifest_changes(manifest(before), manifest(after))]


def test_every_field_is_shown_with_its_value_and_defaults_are_marked() -> None:
    found = {it.field: (it.value, it.is_default) for it in settings_of(manifest("partitions: 16, replicas: 3").spec)}
    assert found["partitions"] == ("16", False)
    assert found["replicas"] == ("3", False)
    assert found["segments.max"] == ("16", True), "there cannot be more segments than partitions"
    assert found["retention.age"] == ("7d", True)
    assert found["retention.bytes"] == ("unlimited", True)
    assert found["flush.maxInterval"] == ("none", True)
    assert found["key"] == ("none", True)
    assert len(found) == len(TopicSpec.__dataclass_fields__) - 1, "all fields of a spec but the columns"


def test_the_defaults_in_the_help_of_commands_are_those_of_a_manifest() -> None:
    defaults = {it.field: it.value for it in settings_of(manifest("").spec)}
    assert {it.field: it.default for it in SETTING_OPTIONS} == {
        field: value
        for field, value in defaults.items()
        if field not in ("partitions", "partitioner", "key", "quotas", "kafka.name")
    }


@pytest.mark.parametrize(
    ("before", "after", "text", "risk"),
    [
        ("retention: {age: 30d}", "", "retention.age: 30d → 7d (default)", "messages older than 7d are removed"),
        ("", "retention: {age: 30d}", "retention.age: 7d → 30d", ""),
        ("", "retention: {bytes: 1Gi}", "retention.bytes: unlimited → 1Gi", "the oldest messages beyond 1Gi are remov"),
        ("", "retention: {unread: Expire}", "retention.unread: Keep → Expire", "messages that groups have not read"),
        ("", "retention: {abandonedAfter: 1d}", "retention.abandonedAfter: 7d → 1d", "a group without members for 1d"),
        ("replicas: 3", "", "replicas: 3 → 2 (default)", "fewer brokers hold"),
        ("", "replicas: 3", "replicas: 2 → 3", ""),
        ("durability: Stored", "", "durability: Stored → Replicated (default)", "acked before they are in the filer"),
        ("", "durability: Stored", "durability: Replicated → Stored", ""),
        ("", "deletionPolicy: Delete", "deletionPolicy: Retain → Delete", "deletes its files"),
        ("", "scaling: {target: {messagesPerSecond: 9}}", "scaling.target.messagesPerSecond: 50000 → 9", ""),
        (
            COLUMNS,
            "schema: [{name: id, type: int32}]",
            "column 'note' (string, nullable) is gone",
            "never be used again",
        ),
    ],
)
def test_a_change_is_described_with_what_is_lost(before: str, after: str, text: str, risk: str) -> None:
    ((found, why),) = changes(before, after)
    assert found == text
    assert (risk in why) if risk else not why


def test_quotas_are_shown_and_compared_by_identity() -> None:
    before = "quotas: [{identity: ada, produce: {bytesPerSecond: 10Mi, streams: 2}}, {identity: '*', consume: {}}]"
    found = [(it.field, it.value) for it in settings_of(manifest(before).spec) if "quotas" in it.field]
    assert found == [
        ("quotas[ada].produce.bytesPerSecond", "10Mi"),
        ("quotas[ada].produce.streams", "2"),
        ("quotas[*]", "unlimited"),
    ]
    after = "quotas: [{identity: ada, produce: {bytesPerSecond: 1Mi}, consume: {messagesPerSecond: 5}}]"
    assert changes(before, after) == [
        ("quotas[ada].produce.bytesPerSecond: 10Mi → 1Mi", ""),
        ("quotas[ada].consume.messagesPerSecond: none → 5", ""),
        ("quotas[ada].produce.streams: 2 → none", ""),
        ("quotas[*]: unlimited → none", ""),
    ]
    assert changes(after, "") == [
        ("quotas[ada].produce.bytesPerSecond: 1Mi → none", ""),
        ("quotas[ada].consume.messagesPerSecond: 5 → none", ""),
    ]


def test_nothing_changes_if_a_default_is_written_out() -> None:
    assert changes("", "retention: {age: 168h}, segments: {max: 64}, replicas: 2") == []


def test_settings_by_path_are_the_fields_of_a_manifest() -> None:
    assert nested_fields({"retention.age": "3d", "retention.bytes": None, "replicas": 3}) == {
        "retention": {"age": "3d", "bytes": None},
        "replicas": 3,
    }
    with pytest.raises(InvalidRequest, match=r"retention\.age is inside of another"):
        nested_fields({"retention": "x", "retention.age": "3d"})
