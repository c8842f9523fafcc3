"""Topic manifests: what they may contain, and the errors for mistakes in them."""

import json
from itertools import pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from smq_core.errors import SpecRejected
from smq_core.model.entities import MIB, SECOND, Column, Durability, Topic, TopicSpec
from smq_core.model.keyspace import Partitioner
from smq_storage.topic_manifests.fields import NESTED_TYPES
from smq_storage.topic_manifests.parser import (
    TopicManifest,
    check_change,
    parse_api_resource,
    parse_manifest,
    parse_resource,
    to_manifest,
)
from smq_storage.topic_manifests.yaml_documents import MAX_MANIFEST_BYTES

FULL = """
apiVersion: seaweedmq.io/v1alpha1
kind: Topic
metadata: {name: flights, namespace: travel}
spec:
  partitions: 1024              # size of the hash ring; cannot change
  key: tailnum                  # the column that is hashed
  schema:
    - {name: tailnum, type: string}
    - {name: dep_delay, type: float64, nullable: true}
  durability: Replicated
  replicas: 2
  segments: {min: 1, max: 64}
  scaling:
    target: {messagesPerSecond: 50000, bytesPerSecond: 32Mi}
    splitAfter: 5s
    mergeAfter: 5m
  flush: {bytes: 32Mi, interval: 10s, maxInterval: 2m}
  roll: {bytes: 8Gi, age: 24h}
  retention: {age: 7d, bytes: 1Ti}
  deletionPolicy: Retain
"""

SHORT = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {name: clicks}\n"


def with_spec(**fields: object) -> str:
    return json.dumps({**yaml.safe_load(SHORT), "spec": fields})  # YAML has an alias for what is there twice


def test_every_field_is_read() -> None:
    manifest = parse_manifest(FULL.replace("Retain", "Delete").replace("min: 1,", "min: 4,"))
    assert manifest.full_name == "travel/flights"
    assert manifest.spec == TopicSpec(
        partitions=1024,
        key="tailnum",
        schema=(Column("tailnum", "string"), Column("dep_delay", "float64", nullable=True)),
        durability=Durability.REPLICATED,
        replicas=2,
        min_segments=4,
        max_segments=64,
        target_messages_per_second=50_000,
        target_bytes_per_second=32 * MIB,
        split_after=5 * SECOND,
        merge_after=300 * SECOND,
        flush_bytes=32 * MIB,
        flush_interval=10 * SECOND,
        flush_max_interval=120 * SECOND,
        roll_bytes=8192 * MIB,
        roll_age=86_400 * SECOND,
        retention_age=7 * 86_400 * SECOND,
        retention_bytes=1024 * 1024 * MIB,
        delete_data=True,
    )


def test_what_is_left_out_has_the_defaults_of_the_spec() -> None:
    assert parse_manifest(SHORT) == TopicManifest("default", "clicks", TopicSpec())
    assert parse_manifest(SHORT, default_namespace="web").namespace == "web"
    assert parse_manifest(with_spec(retention={"bytes": "1Gi"})).spec.retention_age == TopicSpec().retention_age


def test_a_small_ring_lowers_the_default_number_of_segments() -> None:
    assert parse_manifest(with_spec(partitions=8)).spec.max_segments == 8


def test_unlimited_retention() -> None:
    unlimited = {"age": "unlimited", "bytes": "unlimited", "abandonedAfter": "unlimited"}
    spec = parse_manifest(with_spec(retention=unlimited)).spec
    assert (spec.retention_age, spec.retention_bytes, spec.retention_abandoned_after) == (None, None, None)


def test_what_a_group_has_not_read_is_kept_unless_the_manifest_says_so() -> None:
    assert parse_manifest(SHORT).spec.retention_keeps_unread
    assert not parse_manifest(with_spec(retention={"unread": "Expire"})).spec.retention_keeps_unread


def test_json_is_yaml() -> None:
    assert parse_manifest(json.dumps(yaml.safe_load(FULL))) == parse_manifest(FULL)


def test_what_the_kubernetes_api_adds_is_ignored() -> None:
    body = yaml.safe_load(FULL)
    body["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [], "labels": {"a": "b"}}
    body["status"] = {"conditions": []}
    assert parse_resource(body) == parse_manifest(FULL)


WRONG_SPECS = [
    ({"partitions": 0}, "spec.partitions", "at least 1"),
    ({"partitions": 65_537}, "spec.partitions", "at most 65536"),
    ({"partitions": "8"}, "spec.partitions", "whole number"),
    ({"partitions": True}, "spec.partitions", "whole number"),
    ({"partitions": 1.5}, "spec.partitions", "whole number"),
    ({"key": "tailnum"}, "spec.key", "schema"),
    ({"key": 5, "schema": [{"name": "a", "type": "int8"}]}, "spec.key", "quotes"),
    ({"key": "b", "schema": [{"name": "a", "type": "int8"}]}, "spec.key", "use one of a"),
    ({"schema": [{"name": "a", "type": "flot64"}]}, "spec.schema[0].type", "float64"),
    ({"schema": [{"name": "a"}]}, "spec.schema[0].type", "is missing"),
    ({"schema": [{"type": "int8"}]}, "spec.schema[0].name", "is missing"),
    ({"schema": [{"name": "a", "type": "int8", "nullable": "no"}]}, "spec.schema[0].nullable", "true or false"),
    ({"schema": [{"name": "partition", "type": "int8"}]}, "spec.schema[0].name", "choose another"),
    ({"schema": [{"name": "a b", "type": "int8"}]}, "spec.schema[0].name", "letters"),
    ({"schema": [{"name": "a", "type": "int8"}] * 2}, "spec.schema", "twice"),
    ({"schema": [{"name": "a", "type": "int8"}, {"name": "A", "type": "int8"}]}, "spec.schema", "differ in case only"),
    ({"schema": [{"name": n, "type": "binary"} for n in ("key", "value")]}, "spec.schema", "leave schema out"),
    *(
        ({"schema": [{"name": name, "type": "int8"}]}, "spec.schema[0].name", "tools add")
        for name in ("_offset", "_segment", "_OFFSET", "Partition", "file_row_number", "_smq_file")
    ),
    ({"schema": {"a": "int8"}}, "spec.schema", "a list"),
    ({"schema": ["a"]}, "spec.schema[0]", "mapping"),
    ({"durability": "Eventually"}, "spec.durability", "'Replicated' or 'Stored'"),
    ({"replicas": 0}, "spec.replicas", "at least 1"),
    ({"replicas": 8}, "spec.replicas", "at most 7"),
    ({"replicas": 1}, "spec.replicas", "durability: Stored"),
    ({"segments": {"min": 0}}, "spec.segments.min", "at least 1"),
    ({"segments": {"max": 0}}, "spec.segments.max", "at least 1"),
    ({"segments": {"min": 5, "max": 4}}, "spec.segments.min", "at most segments.max"),
    ({"segments": {"max": 2000}}, "spec.segments.max", "at most partitions"),
    ({"segments": 5}, "spec.segments", "mapping"),
    ({"scaling": {"target": {"messagesPerSecond": 0}}}, "spec.scaling.target.messagesPerSecond", "at least 1"),
    ({"scaling": {"target": {"bytesPerSecond": 0}}}, "spec.scaling.target.bytesPerSecond", "more than 0"),
    ({"scaling": {"target": {"bytesPerSecond": "32MiB"}}}, "spec.scaling.target.bytesPerSecond", "Mi"),
    ({"scaling": {"splitAfter": "5 s"}}, "spec.scaling.splitAfter", "such as 5s"),
    ({"scaling": {"splitAfter": 5}}, "spec.scaling.splitAfter", "such as 5s"),
    ({"scaling": {"mergeAfter": "5y"}}, "spec.scaling.mergeAfter", "unknown unit 'y'"),
    ({"flush": {"bytes": "0"}}, "spec.flush.bytes", "more than 0"),
    ({"flush": {"interval": "0s"}}, "spec.flush.interval", "more than 0"),
    ({"flush": {"maxInterval": "9s"}}, "spec.flush.maxInterval", "which is 10s, not 9s"),
    ({"flush": {"interval": "1d", "maxInterval": "86399s"}}, "spec.flush.maxInterval", "is 1d, not 23h59m59s"),
    ({"flush": {"maxInterval": "unlimited"}}, "spec.flush.maxInterval", "such as 5s"),
    ({"roll": {"bytes": "lots"}}, "spec.roll.bytes", "such as 32Mi"),
    ({"roll": {"age": "-1h"}}, "spec.roll.age", "such as 5s"),
    ({"retention": {"age": "0d"}}, "spec.retention.age", "more than 0"),
    ({"retention": {"bytes": -1}}, "spec.retention.bytes", "such as 32Mi"),
    ({"retention": {"bytes": True}}, "spec.retention.bytes", "such as 32Mi"),
    ({"deletionPolicy": "Keep"}, "spec.deletionPolicy", "'Retain' or 'Delete'"),
    ({"partition": 8}, "spec.partition", "no such field"),
    ({"scaling": {"target": {"messages": 8}}}, "spec.scaling.target.messages", "no such field"),
    ({"columns": []}, "spec.columns", "no such field"),
]


@pytest.mark.parametrize(("spec", "field", "advice"), WRONG_SPECS, ids=[json.dumps(w[0])[:50] for w in WRONG_SPECS])
def test_a_wrong_field_of_the_spec_is_named_with_what_to_write(spec, field: str, advice: str) -> None:
    with pytest.raises(SpecRejected) as caught:
        parse_manifest(with_spec(**spec))
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")
    assert advice in caught.value.message
    assert len(caught.value.message.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "field", "advice"),
    [
        (SHORT.replace("v1alpha1", "v9"), "apiVersion", "'seaweedmq.io/v1alpha1'"),
        (SHORT.replace("kind: Topic", "kind: Tropic"), "kind", "'Topic'"),
        (SHORT.replace("kind: Topic\n", ""), "kind", "is missing"),
        (SHORT.replace("metadata: {name: clicks}", ""), "metadata", "is missing"),
        (SHORT.replace("name: clicks", ""), "metadata.name", "is missing"),
        (SHORT.replace("clicks", "Clicks"), "metadata.name", "DNS-1123"),
        (SHORT.replace("clicks", "a_b"), "metadata.name", "DNS-1123"),
        (SHORT.replace("clicks", "-a"), "metadata.name", "DNS-1123"),
        (SHORT.replace("clicks", "a" * 64), "metadata.name", "DNS-1123"),
        (SHORT.replace("clicks", "7"), "metadata.name", "quotes"),
        (SHORT.replace("name: clicks", "name: clicks, namespace: A"), "metadata.namespace", "DNS-1123"),
        (SHORT + "specs: {}", "specs", "no such field"),
        (SHORT + "spec: [1]", "spec", "mapping"),
    ],
)
def test_a_wrong_field_of_the_resource_is_named_with_what_to_write(text: str, field: str, advice: str) -> None:
    with pytest.raises(SpecRejected) as caught:
        parse_manifest(text)
    assert caught.value.field == field
    assert advice in caught.value.message


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "empty"),
        ("# nothing\n---\n", "empty"),
        (f"{SHORT}---\n{SHORT}", "one Topic at a time"),
        ("{a: [", "not YAML"),
        ("a: b: c", "not YAML"),
        ("\t- x", "not YAML"),
        ("just text", "mapping"),
        ("[1, 2]", "mapping"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_what_is_no_single_resource_is_refused(text: str, advice: str) -> None:
    with pytest.raises(SpecRejected, match=advice):
        parse_manifest(text)


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(SpecRejected) as caught:
        parse_manifest(with_spec(partitions=0, replicas=0, flush={"bytes": "x"}))
    assert [line.split(":")[0] for line in caught.value.message.splitlines()] == [
        "spec.partitions",
        "spec.replicas",
        "spec.flush.bytes",
    ]


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("partitions", TopicSpec(partitions=8)),
        ("partitioner", TopicSpec(partitioner=Partitioner.KAFKA)),
        ("key", TopicSpec(key="a")),
    ],
)
def test_what_cannot_change_is_refused(field: str, changed: TopicSpec) -> None:
    with pytest.raises(SpecRejected, match=rf"spec\.{field} cannot change"):
        check_change(TopicSpec(), changed)


def test_everything_else_can_change() -> None:
    check_change(TopicSpec(), TopicSpec(durability=Durability.STORED, replicas=3, max_segments=9, delete_data=True))


amounts = st.integers(1, 2**50)
columns = st.lists(
    st.builds(
        Column,
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True).filter(
            lambda n: n not in ("partition", "timestamp", "appended", "headers")
        ),
        st.sampled_from(["string", "float64", "decimal128(9, 2)", "list<int32>", "timestamp[us, UTC]"]),
        st.booleans(),
    ),
    unique_by=lambda c: c.name,
    max_size=4,
).map(tuple)


@st.composite
def specs(draw: st.DrawFn) -> TopicSpec:
    schema = draw(columns)
    partitions = draw(st.integers(1, 65_536))
    most = draw(st.integers(1, partitions))
    interval = draw(amounts)
    return TopicSpec(
        partitions=partitions,
        key=draw(st.sampled_from([None, *(c.name for c in schema if not c.type.startswith(NESTED_TYPES))])),
        schema=schema,
        durability=draw(st.sampled_from(Durability)),
        replicas=draw(st.integers(2, 7)),
        min_segments=draw(st.integers(1, most)),
        max_segments=most,
        target_messages_per_second=draw(st.integers(1, 10**12)),
        target_bytes_per_second=draw(amounts),
        split_after=draw(amounts),
        merge_after=draw(amounts),
        flush_bytes=draw(amounts),
        flush_interval=interval,
        flush_max_interval=draw(st.none() | st.integers(interval, 2**51)),
        roll_bytes=draw(amounts),
        roll_age=draw(amounts),
        retention_age=draw(st.none() | amounts),
        retention_bytes=draw(st.none() | amounts),
        retention_keeps_unread=draw(st.booleans()),
        retention_abandoned_after=draw(st.none() | amounts),
        delete_data=draw(st.booleans()),
    )


@given(specs())
def test_any_spec_comes_back_from_its_manifest(spec: TopicSpec) -> None:
    topic = Topic("travel/flights", "u", spec)
    assert parse_manifest(to_manifest(topic)) == TopicManifest("travel", "flights", spec)


def test_a_manifest_is_written_in_readable_units() -> None:
    text = to_manifest(parse_manifest(FULL))
    assert "bytesPerSecond: 32Mi" in text and "mergeAfter: 5m" in text and "bytes: 1Ti" in text


def test_fields_of_a_newer_definition_are_left_out_and_named() -> None:
    columns = [{"name": "a", "type": "string", "unit": "m"}, {"name": "b", "type": "int64"}]
    body = yaml.safe_load(with_spec(partitions=8, tier="Cold", roll={"age": "1h", "to": {"where": 1}}, schema=columns))
    known = [{"name": "a", "type": "string"}, {"name": "b", "type": "int64"}]
    given = yaml.safe_dump(body)
    manifest, unknown = parse_api_resource(body)
    assert manifest == parse_manifest(with_spec(partitions=8, roll={"age": "1h"}, schema=known))
    assert unknown == ["spec.schema[0].unit", "spec.roll.to", "spec.tier"]
    assert yaml.safe_dump(body) == given, "the caller owns it"
    assert parse_api_resource(yaml.safe_load(SHORT)) == (parse_manifest(SHORT), [])


def test_a_mistake_beside_a_field_of_a_newer_definition_is_one() -> None:
    with pytest.raises(SpecRejected, match="must be at most partitions"):
        parse_api_resource(yaml.safe_load(with_spec(partitions=8, tier="Cold", segments={"max": 9})))


# A few hundred bytes that stand for a thousand million values.
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r"aliases \(\*name\) are not accepted.* in line 2|in line 2: aliases"),
        (SHORT + "spec: &x {segments: *x}", "aliases"),
        ("[" * 3000, "nested deeper than 16 levels"),
        ("{a: " * 3000, "nested deeper than 16 levels"),
        (SHORT + "#" * MAX_MANIFEST_BYTES, "65,6.. bytes, and 65,536 are accepted"),
        (SHORT + "# " + "ä" * (MAX_MANIFEST_BYTES // 2), "bytes, and 65,536 are accepted"),
        (SHORT + "spec: {partitions: " + "9" * 5000 + "}", "not YAML: Exceeds the limit"),
        (SHORT + "spec: {partitions: 0x" + "f" * 5000 + "}", "spec.partitions.*not a huge number"),
        (SHORT + "spec: {partitions: 2001-99-99}", "not YAML: month must be"),
        (SHORT + "spec: {key: [" + "x, " * 9000 + "]}", r"spec.key: must be text, not \['x', 'x'"),
        (SHORT + "spec: {" + ", ".join(f"f{n}: 1" for n in range(3000)) + "}", r"and 2990 more mistakes"),
        (SHORT + "spec: {? " + "f" * 50_000 + " : 1}", r"fff…$"),
        ("- " + "x" * 60_000, "not \\['xxx"),
        (SHORT.replace("clicks", '"' + "x" * 60_000 + '"'), "not a DNS-1123 label"),
        (SHORT.replace("clicks", r'"\e[2Jx"'), r"'\\x1b\[2Jx' is not a DNS-1123 label"),
        (SHORT + "? {a: b}\n: c", "not YAML in line 4"),
    ],
)
def test_a_manifest_costs_little_whatever_is_in_it(text: str, message: str) -> None:
    with pytest.raises(SpecRejected, match=message) as caught:
        parse_manifest(text)
    assert len(caught.value.message) < 4000 and len(caught.value.field) <= 300


def test_the_largest_manifest_is_accepted() -> None:
    text = with_spec(key="c0", schema=[{"name": f"c{n}", "type": "string", "nullable": n > 0} for n in range(400)])
    padded = text + "#" * (MAX_MANIFEST_BYTES - len(text))
    assert len(parse_manifest(padded).spec.schema) == 400


def test_a_template_of_columns_without_aliases_may_still_have_an_anchor() -> None:
    assert parse_manifest(SHORT + "spec: &all {partitions: 8}").spec.partitions == 8
