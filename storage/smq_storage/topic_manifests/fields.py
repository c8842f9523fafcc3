"""The shape of a Topic resource, field by field, with its defaults and limits. The names are those of the resource."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from smq_core.kafka_topics.names import MAX_CHARACTERS as MAX_KAFKA_NAME
from smq_core.kafka_topics.names import is_kafka_name
from smq_core.model.entities import TopicSpec
from smq_core.model.keyspace import MAX_KAFKA_PARTITIONS, MAX_PARTITIONS
from smq_core.model.names import is_label, shown
from smq_core.model.units import UNLIMITED, duration_text, parse_duration, parse_size
from smq_storage.chunks.column_types import arrow_type, zones
from smq_storage.chunks.schemas import RESERVED_COLUMNS

GROUP = "seaweedmq.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Topic"
MAX_REPLICAS = 7
MAX_COLUMNS = 400
MAX_TYPE = 256
MAX_RATE = 10**12
MAX_QUOTAS = 100
MAX_IDENTITY = 512
MAX_STREAMS = 10**6
TOGETHER = "fields_together"
NESTED_TYPES = ("list<", "struct<", "map<")

_DEFAULT = TopicSpec()
_OFFSET = re.compile(r"[+-]([01][0-9]|2[0-3]):[0-5][0-9]")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _dns_label(value: str) -> str:
    if not is_label(value):
        raise ValueError(
            f"{shown(value)} is not a DNS-1123 label: use 1 to 63 of a-z, 0-9 and '-', "
            "with a letter or digit at both ends"
        )
    return value


def _column_name(value: str) -> str:
    if not _COLUMN.fullmatch(value):
        raise ValueError(f"{shown(value)} is no column name: use letters, digits and '_', no digit first, at most 128")
    if value.lower() in RESERVED_COLUMNS:
        raise ValueError(f"{value!r} is a column that every topic has, or that tools add: choose another name")
    return value


def _type_name(value: str) -> str:
    if len(value) > MAX_TYPE:
        raise ValueError(f"the type is too long: use at most {MAX_TYPE} characters")
    for zone in sorted(zones(arrow_type(value))):
        _check_zone(zone)
    return value


def _identity(value: str) -> str:
    if not 0 < len(value) <= MAX_IDENTITY:
        raise ValueError(
            f"must be an identity of 1 to {MAX_IDENTITY} characters as `smq auth whoami` shows it, or '*' for all "
            "that have no entry"
        )
    return value


def _kafka_name(value: str) -> str:
    if not is_kafka_name(value):
        raise ValueError(
            f"{shown(value)} is no name of a Kafka topic: use letters, digits, '.', '_' and '-', "
            f"at most {MAX_KAFKA_NAME}"
        )
    if is_label(value):
        raise ValueError(f"{shown(value)} can be the name of the Topic itself: leave kafka.name out, and call it so")
    return value


def _check_zone(zone: str) -> None:
    if _OFFSET.fullmatch(zone):
        return
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {shown(zone)}: use a name such as Europe/Berlin, or +01:00") from None


def _positive(value: int) -> int:
    if value < 1:
        raise ValueError("must be more than 0")
    return value


def _or_unlimited(parse: Any) -> Any:
    return lambda value: None if value == UNLIMITED else parse(value)


Size = Annotated[int, AfterValidator(_positive), BeforeValidator(parse_size)]
Duration = Annotated[int, AfterValidator(_positive), BeforeValidator(parse_duration)]
SizeLimit = Annotated[Annotated[int, AfterValidator(_positive)] | None, BeforeValidator(_or_unlimited(parse_size))]
AgeLimit = Annotated[Annotated[int, AfterValidator(_positive)] | None, BeforeValidator(_or_unlimited(parse_duration))]
Label = Annotated[StrictStr, AfterValidator(_dns_label)]


class Strict(BaseModel):
    """Rejects unknown fields. A field that is null counts as not given, as in the API server."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: value for name, value in fields.items() if value is not None or name not in known}


class MetadataModel(BaseModel):
    """The fields that are used; the API server adds many others."""

    model_config = ConfigDict(extra="ignore")

    name: Label
    namespace: Label | None = None
    annotations: Any = None


class SchemaColumnModel(Strict):
    name: Annotated[StrictStr, AfterValidator(_column_name)]
    type: Annotated[StrictStr, AfterValidator(_type_name)]
    nullable: StrictBool = False


class SegmentsModel(Strict):
    min: Annotated[StrictInt, Field(ge=1)] = _DEFAULT.min_segments
    max: Annotated[StrictInt, Field(ge=1)] = _DEFAULT.max_segments


class TargetModel(Strict):
    messagesPerSecond: Annotated[StrictInt, Field(ge=1, le=MAX_RATE)] = _DEFAULT.target_messages_per_second
    bytesPerSecond: Size = _DEFAULT.target_bytes_per_second


class ScalingModel(Strict):
    target: TargetModel = TargetModel()
    splitAfter: Duration = _DEFAULT.split_after
    mergeAfter: Duration = _DEFAULT.merge_after


class FlushModel(Strict):
    bytes: Size = _DEFAULT.flush_bytes
    interval: Duration = _DEFAULT.flush_interval
    maxInterval: Duration | None = None


class RollModel(Strict):
    bytes: Size = _DEFAULT.roll_bytes
    age: Duration = _DEFAULT.roll_age


class RetentionModel(Strict):
    """``unlimited`` keeps messages of any age or size."""

    age: AgeLimit = _DEFAULT.retention_age
    bytes: SizeLimit = _DEFAULT.retention_bytes
    unread: Literal["Keep", "Expire"] = "Keep"
    abandonedAfter: AgeLimit = _DEFAULT.retention_abandoned_after


class KafkaModel(Strict):
    name: Annotated[StrictStr, AfterValidator(_kafka_name)] | None = None
    cleanupPolicy: Literal["Delete", "Compact"] = "Delete"


class QuotaModel(Strict):
    bytesPerSecond: Size | None = None
    messagesPerSecond: Annotated[StrictInt, Field(ge=1, le=MAX_RATE)] | None = None
    streams: Annotated[StrictInt, Field(ge=1, le=MAX_STREAMS)] | None = None


class TopicQuotaModel(Strict):
    """``*`` stands for each identity that has no entry."""

    identity: Annotated[StrictStr, AfterValidator(_identity)]
    produce: QuotaModel = QuotaModel()
    consume: QuotaModel = QuotaModel()


class SpecModel(Strict):
    partitions: Annotated[StrictInt, Field(ge=1, le=MAX_PARTITIONS)] = _DEFAULT.partitions
    partitioner: Literal["Hash", "Kafka"] = "Hash"
    key: StrictStr | None = None
    columns: Annotated[list[SchemaColumnModel], Field(alias="schema", max_length=MAX_COLUMNS)] = []
    durability: Literal["Replicated", "Stored"] = "Replicated"
    replicas: Annotated[StrictInt, Field(ge=1, le=MAX_REPLICAS)] = _DEFAULT.replicas
    segments: SegmentsModel = SegmentsModel()
    scaling: ScalingModel = ScalingModel()
    flush: FlushModel = FlushModel()
    roll: RollModel = RollModel()
    retention: RetentionModel = RetentionModel()
    deletionPolicy: Literal["Retain", "Delete"] = "Retain"
    kafka: KafkaModel = KafkaModel()
    quotas: Annotated[list[TopicQuotaModel], Field(max_length=MAX_QUOTAS)] = []

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if self.segments.max > self.partitions and "max" not in self.segments.model_fields_set:
            self.segments = self.segments.model_copy(update={"max": self.partitions})
        mistakes = [
            *self._partition_mistakes(),
            *self._segment_mistakes(),
            *self._flush_mistakes(),
            *self._schema_mistakes(),
            *self._quota_mistakes(),
        ]
        if self.durability == "Replicated" and self.replicas < 2:
            mistakes.append(
                ("replicas", "must be at least 2 with durability Replicated: write 2, or durability: Stored")
            )
        if mistakes:
            raise PydanticCustomError(TOGETHER, "fields do not fit together", {"mistakes": mistakes})
        return self

    def _partition_mistakes(self) -> list[tuple[str, str]]:
        if self.partitioner == "Kafka" and self.partitions > MAX_KAFKA_PARTITIONS:
            limit = f"must be at most {MAX_KAFKA_PARTITIONS} with partitioner Kafka, not {self.partitions}"
            return [("partitions", f"{limit}: Kafka's clients handle each partition by itself")]
        return []

    def _quota_mistakes(self) -> list[tuple[str, str]]:
        identities = [quota.identity for quota in self.quotas]
        twice = sorted({name for name in identities if identities.count(name) > 1})
        return [("quotas", f"the identity {name!r} appears twice: give each one entry") for name in twice]

    def _segment_mistakes(self) -> list[tuple[str, str]]:
        low, high = self.segments.min, self.segments.max
        if low > high:
            return [("segments.min", f"must be at most segments.max, which is {high}, not {low}")]
        if high > self.partitions:
            return [("segments.max", f"must be at most partitions, which is {self.partitions}, not {high}")]
        return []

    def _flush_mistakes(self) -> list[tuple[str, str]]:
        interval, longest = self.flush.interval, self.flush.maxInterval
        if longest is not None and longest < interval:
            at_least = f"must be at least flush.interval, which is {duration_text(interval)}"
            return [("flush.maxInterval", f"{at_least}, not {duration_text(longest)}")]
        return []

    def _schema_mistakes(self) -> list[tuple[str, str]]:
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        mistakes = [("schema", f"the column {name!r} appears twice: give each column its own name") for name in twice]
        by_case: dict[str, str] = {}
        for name in dict.fromkeys(names):
            if (other := by_case.setdefault(name.lower(), name)) != name:
                only = "differ in case only, and many tools take them for one: rename one of them"
                mistakes.append(("schema", f"the columns {other!r} and {name!r} {only}"))
        if {column.name: column.type for column in self.columns} == {"key": "binary", "value": "binary"}:
            plain = "are those of a topic without a schema: leave schema out, or use other names or types"
            mistakes.append(("schema", f"the columns key and value of the type binary {plain}"))
        if self.key is not None and not names:
            mistakes.append(("key", "names a column of schema, and there is none: take key out or add a schema"))
        elif self.key is not None and self.key not in names:
            mistakes.append(("key", f"{self.key!r} is no column of schema: use one of {', '.join(names)}"))
        elif any(column.name == self.key and column.type.startswith(NESTED_TYPES) for column in self.columns):
            problem = "is nested and cannot be a key: use a binary, text, number or time column"
            mistakes.append(("key", f"column {self.key} {problem}"))
        return mistakes


class ManifestModel(Strict):
    apiVersion: Literal["seaweedmq.io/v1alpha1"]
    kind: Literal["Topic"]
    metadata: MetadataModel
    spec: SpecModel = SpecModel()
    status: Annotated[Any, Field(exclude=True)] = None
