"""Topic manifests, good and bad, for whoever reads them: the parser and the API server must agree on every one.

A bad one says which field is named and what each of the two readers says about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

API = "seaweedmq.io/v1alpha1"
Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InvalidManifestCase:
    """``field`` is named by both; ``parser`` and ``api`` are parts of what the two say."""

    id: str
    manifest: Mapping[str, Any]
    field: str
    parser: str
    api: str


@dataclass(frozen=True, slots=True)
class SpecChange:
    """A spec and what it must, or may, not become. ``field`` is the one that is named, empty for an allowed change."""

    id: str
    old: Spec
    new: Spec
    field: str = ""
    said: str = ""


def manifest(spec: Spec | None = None, *, name: str = "clicks") -> dict[str, Any]:
    resource = {"apiVersion": API, "kind": "Topic", "metadata": {"name": name}}
    return resource | ({"spec": dict(spec)} if spec is not None else {})


def _bad(id: str, spec: Spec, field: str, parser: str, api: str = "") -> InvalidManifestCase:
    return InvalidManifestCase(id, manifest(spec), f"spec.{field}" if field else "spec", parser, api or parser)


def _column(**column: object) -> Spec:
    return {"schema": [column]}


def _quota(identity: object = "ada", **limits: object) -> Spec:
    return {"identity": identity, "produce": limits}


def _limited(**quota: object) -> Spec:
    return {"quotas": [_quota(**quota)]}


def _typed(type_: object) -> Spec:
    return _column(name="a", type=type_)


A = {"name": "a", "type": "int8"}
B = {"name": "b", "type": "string"}
NULLABLE = A | {"nullable": True}
NO_FIELD = "no such field"
WHOLE = "whole number"

NUMBERS = [
    _bad("no partitions", {"partitions": 0}, "partitions", "at least 1", "greater than or equal to 1"),
    _bad("less than none", {"partitions": -8}, "partitions", "at least 1", "greater than or equal to 1"),
    _bad("a ring too large", {"partitions": 65_537}, "partitions", "at most 65536", "less than or equal to 65536"),
    _bad("a number as text", {"partitions": "8"}, "partitions", WHOLE, "type integer"),
    _bad("a number as a word", {"partitions": "many"}, "partitions", WHOLE, "type integer"),
    _bad("a truth for a number", {"partitions": True}, "partitions", WHOLE, "type integer"),
    _bad("half a partition", {"partitions": 1.5}, "partitions", WHOLE, "type integer"),
    _bad("a list for a number", {"partitions": [8]}, "partitions", WHOLE, "type integer"),
    _bad("no replicas", {"replicas": 0}, "replicas", "at least 1", "greater than or equal to 1"),
    _bad("many replicas", {"replicas": 8}, "replicas", "at most 7", "less than or equal to 7"),
    _bad("no segments", {"segments": {"min": 0}}, "segments.min", "at least 1", "greater than or equal to 1"),
    _bad("none at most", {"segments": {"max": 0}}, "segments.max", "at least 1", "greater than or equal to 1"),
    _bad(
        "no messages",
        {"scaling": {"target": {"messagesPerSecond": 0}}},
        "scaling.target.messagesPerSecond",
        "at least 1",
        "greater than or equal to 1",
    ),
    _bad(
        "too many messages",
        {"scaling": {"target": {"messagesPerSecond": 10**12 + 1}}},
        "scaling.target.messagesPerSecond",
        "at most 1000000000000",
        "less than or equal to 1000000000000",
    ),
]

TOGETHER = [
    _bad("one replica replicated", {"replicas": 1}, "replicas", "durability: Stored"),
    _bad("min above max", {"segments": {"min": 5, "max": 4}}, "segments.min", "at most segments.max"),
    _bad("min above the default max", {"segments": {"min": 65}}, "segments.min", "at most segments.max"),
    _bad("max above partitions", {"segments": {"max": 2000}}, "segments", "at most partitions"),
    _bad("max above a small ring", {"partitions": 8, "segments": {"max": 9}}, "segments", "at most partitions"),
    _bad(
        "too many partitions for Kafka", {"partitioner": "Kafka", "partitions": 1025}, "partitions", "at most 1024 with"
    ),
    _bad("a space in a name for Kafka", {"kafka": {"name": "a b"}}, "kafka.name", "no name of a Kafka topic"),
    _bad("an empty name for Kafka", {"kafka": {"name": ""}}, "kafka.name", "no name of a Kafka topic"),
    _bad("points for Kafka", {"kafka": {"name": ".."}}, "kafka.name", "no name of a Kafka topic"),
    _bad("a long name for Kafka", {"kafka": {"name": "a_" * 125}}, "kafka.name", "at most 249", "more than 249"),
    _bad("the name of a topic for Kafka", {"kafka": {"name": "orders"}}, "kafka.name", "name of the Topic itself"),
    _bad(
        "a policy of nobody",
        {"kafka": {"cleanupPolicy": "Shred"}},
        "kafka.cleanupPolicy",
        "'Delete' or 'Compact'",
        '"Delete", "Compact"',
    ),
    _bad("min above partitions", {"partitions": 8, "segments": {"min": 9}}, "segments", "at most"),
    _bad("a key without a schema", {"key": "tailnum"}, "", "there is none: take key out or add a schema"),
    _bad("an empty key", {"key": ""}, "", "there is none: take key out or add a schema"),
    _bad("a key that is no column", {"key": "b", "schema": [A]}, "", "is no column of schema: use"),
    _bad("a nested key", {"key": "a", "schema": [A | {"type": "list<int64>"}]}, "", "is nested and cannot be a key"),
    _bad("a key in other case", {"key": "A", "schema": [A]}, "", "is no column of schema: use"),
    _bad(
        "a longest interval below the interval", {"flush": {"maxInterval": "9s"}}, "flush.maxInterval", "which is 10s"
    ),
    _bad(
        "such a longest interval in parts",
        {"flush": {"interval": "1m1ms", "maxInterval": "30s30s"}},
        "flush.maxInterval",
        "must be at least flush.interval, which is 1m1ms, not",
    ),
    _bad("a column twice", {"schema": [A, A]}, "schema", "appears twice: give each", "Duplicate value"),
    _bad(
        "a column twice, of two types",
        {"schema": [A, B, A | {"type": "string"}]},
        "schema",
        "appears twice",
        "Duplicate value",
    ),
]

SHAPES = [
    _bad("a field that is not", {"partition": 8}, "partition", NO_FIELD, 'unknown field "spec.partition"'),
    _bad("a field of the parser", {"columns": []}, "columns", NO_FIELD, "unknown field"),
    _bad(
        "a deep field that is not",
        {"scaling": {"target": {"messages": 8}}},
        "scaling.target.messages",
        NO_FIELD,
        "unknown field",
    ),
    _bad("a column's field that is not", _column(**A, key=True), "schema[0].key", NO_FIELD, "unknown field"),
    _bad("segments as a number", {"segments": 5}, "segments", "a mapping", "type object"),
    _bad("flush as text", {"flush": "10s"}, "flush", "a mapping", "type object"),
    _bad("a schema as text", {"schema": "a"}, "schema", "a list", "type array"),
    _bad("a schema as a mapping", {"schema": {"a": "int8"}}, "schema", "a list", "unknown field"),
    _bad("columns as text", {"schema": ["a"]}, "schema[0]", "a mapping", "type object"),
    _bad("too many columns", {"schema": [A | {"name": f"c{i}"} for i in range(401)]}, "schema", "400", "400"),
    _bad("a key as a number", {"key": 5, "schema": [A]}, "key", "quotes", "type string"),
]

COLUMNS = [
    _bad("a column without type", _column(name="a"), "schema[0].type", "missing", "Required value"),
    _bad("a column without name", _column(type="int8"), "schema[0].name", "missing", "Required value"),
    _bad("a null name", _column(name=None, type="int8"), "schema[0].name", "missing", "Required value"),
    _bad("nullable as text", _column(**A, nullable="no"), "schema[0].nullable", "true or false", "type boolean"),
    _bad("a reserved column", _column(name="partition", type="int8"), "schema[0].name", "choose another name"),
    _bad("a column with a space", _column(name="a b", type="int8"), "schema[0].name", "use letters, digits"),
    _bad("a column with a digit first", _column(name="1a", type="int8"), "schema[0].name", "use letters, digits"),
    _bad("a column without letters", _column(name="", type="int8"), "schema[0].name", "use letters, digits"),
    _bad("a long column", _column(name="a" * 129, type="int8"), "schema[0].name", "at most 128", "more than 128"),
    _bad("a type that is not", _typed("flot64"), "schema[0].type", "float64"),
    _bad("a type in capitals", _typed("String"), "schema[0].type", "float64"),
    _bad("a type as a number", _typed(8), "schema[0].type", "quotes", "type string"),
    _bad("a list not closed", _typed("list<string"), "schema[0].type", "list<type>"),
    _bad("a list closed twice", _typed("list<string>>"), "schema[0].type", "list<type>"),
    _bad("a list of nothing", _typed("list<>"), "schema[0].type", "list<type>"),
    _bad("lists too deep", _typed("list<" * 99 + "int8" + ">" * 99), "schema[0].type", "at most 256", "more than 256"),
    _bad("a decimal of none", _typed("decimal128(0, 0)"), "schema[0].type", "precision"),
    _bad("a decimal too wide", _typed("decimal128(39, 2)"), "schema[0].type", "precision"),
    _bad("a decimal's scale too large", _typed("decimal128(9, 10)"), "schema[0].type", "at most"),
    _bad("a list of such decimals", _typed("list<decimal128(9, 10)>"), "schema[0].type", "at most"),
    _bad("a decimal without scale", _typed("decimal128(9)"), "schema[0].type", "decimal128(precision, scale)"),
    _bad("a decimal256 too wide", _typed("decimal256(77, 2)"), "schema[0].type", "precision"),
    _bad("a timestamp of another unit", _typed("timestamp[m]"), "schema[0].type", "timestamp[s|ms|us|ns]"),
    _bad("a time of no such width", _typed("time32[us]"), "schema[0].type", "time32[ms]"),
    _bad("a dictionary of numbers", _typed("dictionary<int8>"), "schema[0].type", "dictionary<string>"),
    _bad("a struct not closed", _typed("struct<a: int8"), "schema[0].type", "struct<name: type"),
    _bad("a struct of nothing", _typed("struct<>"), "schema[0].type", "struct<name: type"),
    _bad("a struct of no such type", _typed("struct<a: flot64>"), "schema[0].type", "float64"),
    _bad("a map of no such type", _typed("map<string, flot64>"), "schema[0].type", "float64"),
]

WORDS = [
    _bad("another durability", {"durability": "Eventually"}, "durability", "'Replicated' or 'Stored'", '"Stored"'),
    _bad("durability in small letters", {"durability": "stored"}, "durability", "'Stored'", '"Stored"'),
    _bad("another policy", {"deletionPolicy": "Keep"}, "deletionPolicy", "'Retain' or 'Delete'", '"Retain", "Delete"'),
    _bad(
        "another rule for the unread",
        {"retention": {"unread": "keep"}},
        "retention.unread",
        "'Keep' or 'Expire'",
        '"Keep", "Expire"',
    ),
]


def _amounts(id: str, value: object, parser: str, api: str, *, of: str) -> list[InvalidManifestCase]:
    """The same wrong amount at the fields of its kind."""
    fields = {
        "size": ["flush.bytes", "roll.bytes", "scaling.target.bytesPerSecond", "retention.bytes"],
        "duration": [
            *("flush.interval", "flush.maxInterval", "roll.age", "scaling.splitAfter", "scaling.mergeAfter"),
            *("retention.age", "retention.abandonedAfter"),
        ],
    }
    return [_bad(f"{id} as {field}", nested(field, value), field, parser, api) for field in fields[of]]


def nested(field: str, value: object) -> dict[str, Any]:
    """``a.b`` as a mapping within a mapping."""
    first, _, rest = field.partition(".")
    return {first: nested(rest, value) if rest else value}


SIZE_SAID = "4096"
DURATION_SAID = "24h"

AMOUNTS = [
    *_amounts("nothing", 0, "more than 0", SIZE_SAID, of="size"),
    *_amounts("no time", "0s", "more than 0", DURATION_SAID, of="duration"),
    *_amounts("a unit of people", "32MiB", "Mi", SIZE_SAID, of="size"),
    *_amounts("no unit", 5, "such as 5s", "type string", of="duration"),
    _bad("nothing in a unit", {"flush": {"bytes": "0Mi"}}, "flush.bytes", "more than 0", SIZE_SAID),
    _bad("nothing in parts", {"flush": {"bytes": "0.0Ki"}}, "flush.bytes", "more than 0", SIZE_SAID),
    _bad("less than nothing", {"retention": {"bytes": -1}}, "retention.bytes", "such as 32Mi", SIZE_SAID),
    _bad("half a byte", {"flush": {"bytes": "0.5"}}, "flush.bytes", "such as 32Mi", SIZE_SAID),
    _bad("half a byte as a number", {"flush": {"bytes": 1.5}}, "flush.bytes", "such as 32Mi", "type integer,string"),
    _bad("a truth for a size", {"retention": {"bytes": True}}, "retention.bytes", "such as 32Mi", "integer,string"),
    _bad("a word for a size", {"roll": {"bytes": "lots"}}, "roll.bytes", "such as 32Mi", SIZE_SAID),
    _bad("a size with a space", {"roll": {"bytes": "8 Gi"}}, "roll.bytes", "such as 32Mi", SIZE_SAID),
    _bad("a size in small letters", {"roll": {"bytes": "8gi"}}, "roll.bytes", "unknown unit", SIZE_SAID),
    _bad("an unlimited flush", {"flush": {"bytes": "unlimited"}}, "flush.bytes", "such as 32Mi", SIZE_SAID),
    _bad("more than all disks", {"roll": {"bytes": "889Pi"}}, "roll.bytes", "at most 999P", SIZE_SAID),
    _bad("a size too exact", {"roll": {"bytes": "1.2345Gi"}}, "roll.bytes", "too exact", SIZE_SAID),
    _bad("a size in other digits", {"roll": {"bytes": "٣Gi"}}, "roll.bytes", "such as 32Mi", SIZE_SAID),
    _bad("time without unit", {"scaling": {"splitAfter": "5"}}, "scaling.splitAfter", "such as 5s", DURATION_SAID),
    _bad("time with a space", {"scaling": {"splitAfter": "5 s"}}, "scaling.splitAfter", "such as 5s", DURATION_SAID),
    _bad("time in capitals", {"roll": {"age": "24H"}}, "roll.age", "such as 5s", DURATION_SAID),
    _bad("time in years", {"scaling": {"mergeAfter": "5y"}}, "scaling.mergeAfter", "unknown unit 'y'", DURATION_SAID),
    _bad("time that runs back", {"roll": {"age": "-1h"}}, "roll.age", "such as 5s", DURATION_SAID),
    _bad("time without end", {"roll": {"age": "unlimited"}}, "roll.age", "such as 5s", DURATION_SAID),
    _bad("half a microsecond", {"roll": {"age": "0.5us"}}, "roll.age", "too exact", DURATION_SAID),
    _bad("many days", {"retention": {"age": "100000d"}}, "retention.age", "at most 99999d", DURATION_SAID),
    _bad("time that is empty", {"flush": {"interval": ""}}, "flush.interval", "such as 5s", DURATION_SAID),
    _bad("time with many parts", {"flush": {"interval": "1s" * 17}}, "flush.interval", "too long", "more than 32"),
]

_LIMIT = "quotas[0].produce"
QUOTAS = [
    _bad("a quota of nobody", {"quotas": [{"produce": {}}]}, "quotas[0].identity", "is missing", "Required"),
    _bad("a quota without a name", _limited(identity=""), "quotas[0].identity", "1 to 512", "at least 1 chars"),
    _bad("a quota with a long name", _limited(identity="a" * 513), "quotas[0].identity", "1 to 512", "than 512"),
    _bad("two quotas of one", {"quotas": [_quota(), _quota()]}, "quotas", "appears twice", "Duplicate"),
    _bad("too many quotas", {"quotas": [_quota(f"i{n}") for n in range(101)]}, "quotas", "100", "100"),
    _bad("a rate of nothing", _limited(bytesPerSecond=0), f"{_LIMIT}.bytesPerSecond", "more than 0", SIZE_SAID),
    _bad("a rate in no unit", _limited(bytesPerSecond="1MB"), f"{_LIMIT}.bytesPerSecond", "Mi", SIZE_SAID),
    _bad("no messages a second", _limited(messagesPerSecond=0), f"{_LIMIT}.messagesPerSecond", "least 1", "equal to 1"),
    _bad("no streams", _limited(streams=0), f"{_LIMIT}.streams", "at least 1", "greater than or equal to 1"),
    _bad("a limit of something else", _limited(connections=1), f"{_LIMIT}.connections", NO_FIELD, "unknown field"),
]

_NAMED = "metadata.name"
_LABEL = "DNS-1123"
RESOURCES = [
    InvalidManifestCase("another version", manifest() | {"apiVersion": "seaweedmq.io/v9"}, "", "v1alpha1", "v1alpha1"),
    InvalidManifestCase("another kind", manifest() | {"kind": "Tropic"}, "kind", "'Topic'", "Topic"),
    InvalidManifestCase("a field beside spec", manifest() | {"specs": {}}, "specs", NO_FIELD, "unknown field"),
    InvalidManifestCase("a spec that is a list", manifest() | {"spec": [1]}, "spec", "a mapping", "type object"),
    InvalidManifestCase("a name in capitals", manifest(name="Clicks"), _NAMED, _LABEL, "lowercase"),
    InvalidManifestCase("a name with an underscore", manifest(name="a_b"), _NAMED, _LABEL, "lowercase"),
    InvalidManifestCase("a name with a dash first", manifest(name="-a"), _NAMED, _LABEL, "must start and end"),
    InvalidManifestCase("a name with a dot", manifest(name="a.b"), "", _LABEL, _LABEL),
    InvalidManifestCase("a long name", manifest(name="a" * 64), _NAMED, _LABEL, "63"),
    InvalidManifestCase("no name", manifest(name=""), _NAMED, _LABEL, "required"),
]

INVALID_MANIFESTS = [*NUMBERS, *TOGETHER, *SHAPES, *COLUMNS, *WORDS, *AMOUNTS, *QUOTAS, *RESOURCES]

TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"),
    *("string", "binary", "date32", "timestamp[us, UTC]", "timestamp[us]"),
    *("date", "time", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]", "timestamp[s]", "timestamp[ns]"),
    *("timestamp[ms, Europe/Berlin]", "timestamp[s, +05:30]", "dictionary<string>", "list<dictionary<binary>>"),
    *(
        "decimal256(76, 76)",
        "struct<a: int8, b: list<struct<c: decimal256(50,2)>>>",
        "map<string, list<timestamp[ns]>>",
    ),
    *("map<decimal128(9, 2), map<date, struct<x: bool>>>",),
    *("decimal128(1, 0)", "decimal128(38, 38)", "decimal128(9,2)", "list<int8>", "list<list<decimal128(9, 2)>>"),
)

VALID_SPECS: dict[str, dict[str, Any]] = {
    "no spec": manifest(),
    "a null spec": manifest() | {"spec": None},
    "an empty spec": manifest({}),
    "nulls": manifest({"partitions": None, "key": None, "schema": None, "flush": {"bytes": None}, "roll": None}),
    "a small ring": manifest({"partitions": 8}),
    "the smallest ring": manifest({"partitions": 1, "segments": {"min": 1, "max": 1}}),
    "the largest ring": manifest({"partitions": 65_536, "segments": {"min": 64}}),
    "the partitioner of Kafka": manifest({"partitions": 1024, "partitioner": "Kafka"}),
    "a name for Kafka": manifest({"kafka": {"name": "Order_Events.v1", "cleanupPolicy": "Compact"}}),
    "the longest name for Kafka": manifest({"kafka": {"name": "a" * 249}}),
    "a null name for Kafka": manifest({"kafka": {"name": None}}),
    "stored": manifest({"durability": "Stored", "replicas": 1}),
    "unlimited": manifest({"retention": {"age": "unlimited", "bytes": "unlimited", "abandonedAfter": "unlimited"}}),
    "a key": manifest({"key": "b", "schema": [A, B | {"nullable": True}]}),
    "every type": manifest({"schema": [{"name": f"c{i}", "type": t} for i, t in enumerate(TYPES)]}),
    "many columns": manifest({"schema": [A | {"name": f"c{i}"} for i in range(400)]}),
    "a long column": manifest(_column(name="a" * 128, type="int8")),
    "sizes": manifest({"flush": {"bytes": 4096}, "roll": {"bytes": "1.5Gi"}, "retention": {"bytes": "1T"}}),
    "small sizes": manifest({"flush": {"bytes": 1}, "roll": {"bytes": "0.001k"}, "retention": {"bytes": "1"}}),
    "large sizes": manifest({"flush": {"bytes": 10**18 - 1}, "roll": {"bytes": "888.001Pi"}}),
    "times": manifest({"flush": {"interval": "500ms"}, "roll": {"age": "1h30m"}, "retention": {"age": "0.5d"}}),
    "a longest interval": manifest({"flush": {"maxInterval": "2m"}}),
    "the same interval in other units": manifest({"flush": {"interval": "1d0.5h", "maxInterval": "24.5h"}}),
    "parts of a longest interval": manifest({"flush": {"interval": "1500ms", "maxInterval": "1s500ms1us"}}),
    "a null longest interval": manifest({"flush": {"maxInterval": None}}),
    "small times": manifest({"flush": {"interval": "1us"}, "roll": {"age": "0.001ms"}}),
    "quotas": manifest(
        {
            "quotas": [
                {"identity": "system:serviceaccount:travel:spark", "produce": {"bytesPerSecond": "10Mi", "streams": 4}},
                {"identity": "oidc:alice", "produce": {}, "consume": {"messagesPerSecond": 10**12}},
                {"identity": "*", "consume": {"bytesPerSecond": 1, "messagesPerSecond": None, "streams": 10**6}},
                {"identity": "a" * 512},
            ]
        }
    ),
    "many quotas": manifest({"quotas": [_quota(identity=f"i{n}", streams=1) for n in range(100)]}),
    "everything": manifest(
        {
            "partitions": 1024,
            "key": "tailnum",
            "schema": [{"name": "tailnum", "type": "string"}, {"name": "delay", "type": "float64", "nullable": True}],
            "durability": "Replicated",
            "replicas": 3,
            "segments": {"min": 2, "max": 64},
            "scaling": {
                "target": {"messagesPerSecond": 50000, "bytesPerSecond": "32Mi"},
                "splitAfter": "5s",
                "mergeAfter": "5m",
            },
            "flush": {"bytes": "32Mi", "interval": "10s", "maxInterval": "2m"},
            "roll": {"bytes": "8Gi", "age": "24h"},
            "retention": {"age": "7d", "bytes": "1Ti", "unread": "Expire", "abandonedAfter": "1d"},
            "deletionPolicy": "Delete",
        },
        name="a" * 63,
    ),
}

SPEC_CHANGES = [
    SpecChange("other partitions", {"partitions": 8}, {"partitions": 16}, "spec.partitions", "cannot change"),
    SpecChange("another partitioner", {}, {"partitioner": "Kafka"}, "spec.partitioner", "cannot change"),
    SpecChange("another name for Kafka", {"kafka": {"name": "A"}}, {"kafka": {"name": "B"}}, "spec", "cannot change"),
    SpecChange("a name for Kafka", {}, {"kafka": {"name": "A"}}, "spec", "kafka.name cannot change"),
    SpecChange("a name for Kafka less", {"kafka": {"name": "A"}}, {}, "spec", "kafka.name cannot change"),
    SpecChange("partitions left out", {"partitions": 8}, {}, "spec.partitions", "cannot change"),
    SpecChange(
        "another key", {"key": "a", "schema": [A, B]}, {"key": "b", "schema": [A, B]}, "spec", "key cannot change"
    ),
    SpecChange("a key more", {"schema": [A]}, {"key": "a", "schema": [A]}, "spec", "key cannot change"),
    SpecChange("a key less", {"key": "a", "schema": [A]}, {"schema": [A]}, "spec", "key cannot change"),
    SpecChange("a schema more", {}, {"schema": [A]}, "spec.schema", "make a topic of another name"),
    SpecChange("a schema less", {"schema": [A]}, {}, "spec.schema", "make a topic of another name"),
    SpecChange("a full column more", {"schema": [A]}, {"schema": [A, B]}, "spec.schema", "b.*older messages have no"),
    SpecChange("a full column less", {"schema": [A, B]}, {"schema": [A]}, "spec.schema", "b.* make it nullable first"),
    SpecChange("a narrower type", _typed("int16"), _typed("int8"), "spec.schema", "a.* column of another name"),
    SpecChange("another sign", _typed("uint8"), _typed("int16"), "spec.schema", "a.* column of another name"),
    SpecChange("an integer to a float", _typed("int8"), _typed("float64"), "spec.schema", "a.* another name"),
    SpecChange("a float to text", _typed("float32"), _typed("string"), "spec.schema", "a.* column of another name"),
    SpecChange("wider elements", _typed("list<int8>"), _typed("list<int16>"), "spec.schema", "a.* another name"),
    SpecChange("no longer nullable", {"schema": [NULLABLE]}, {"schema": [A]}, "spec.schema", "a.*stays"),
    SpecChange(
        "a wider key",
        {"key": "a", "schema": [A]},
        {"key": "a", "schema": [A | {"type": "int64"}]},
        "spec",
        "a.* its hash would change",
    ),
    SpecChange("columns in another order", {"schema": [A, B]}, {"schema": [B, A]}),
    SpecChange("a nullable column more", {"schema": [B]}, {"schema": [NULLABLE, B]}),
    SpecChange("a nullable column less", {"schema": [NULLABLE, B]}, {"schema": [B]}),
    SpecChange("a column becomes nullable", {"schema": [A, B]}, {"schema": [NULLABLE, B]}),
    SpecChange("a nullable key", {"key": "a", "schema": [A]}, {"key": "a", "schema": [NULLABLE]}),
    *(
        SpecChange(f"{old} to {new}", _typed(old), _typed(new))
        for types in (
            ("int8", "int16", "int32", "int64"),
            ("uint8", "uint16", "uint32", "uint64"),
            ("float32", "float64"),
        )
        for old, new in combinations(types, 2)
    ),
    SpecChange("the same", {"partitions": 8, "schema": [A], "key": "a"}, {"partitions": 8, "schema": [A], "key": "a"}),
    SpecChange("a default written out", {}, {"partitions": 1024, "schema": []}),
    SpecChange("acked when stored", {}, {"durability": "Stored", "replicas": 1}),
    SpecChange("compacted", {"kafka": {"name": "A"}}, {"kafka": {"name": "A", "cleanupPolicy": "Compact"}}),
    SpecChange("other bounds", {"partitions": 8}, {"partitions": 8, "segments": {"min": 4, "max": 8}}),
    SpecChange("other limits", {}, {"roll": {"age": "1h"}, "retention": {"bytes": "1Gi"}, "deletionPolicy": "Delete"}),
]
