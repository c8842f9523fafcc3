"""Topic manifest files, YAML or JSON, to TopicSpec and back.

Every mistake raises SpecRejected, which names the field, says what is wrong and what to write instead.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from smq_core.access.quotas import Quota, TopicQuota
from smq_core.errors import SpecRejected
from smq_core.model.entities import Column, Durability, Topic, TopicSchema, TopicSpec
from smq_core.model.keyspace import Partitioner
from smq_core.model.names import DEFAULT_NAMESPACE, bounded, shown
from smq_core.model.schema_evolution import violations
from smq_core.model.units import duration_text, size_text
from smq_storage.topic_manifests.fields import (
    API_VERSION,
    KIND,
    TOGETHER,
    FlushModel,
    KafkaModel,
    ManifestModel,
    MetadataModel,
    QuotaModel,
    RetentionModel,
    RollModel,
    ScalingModel,
    SchemaColumnModel,
    SegmentsModel,
    SpecModel,
    TargetModel,
    TopicQuotaModel,
)
from smq_storage.topic_manifests.yaml_documents import load_documents

# ``paused`` pauses autoscaling; ``active`` or no such annotation resumes it.
AUTOSCALING_ANNOTATION = "seaweedmq.io/autoscaling"
PAUSED, ACTIVE = "paused", "active"

# What cannot change, as a spec and as a manifest has it.
_FIXED_FIELDS = {"partitions": "partitions", "partitioner": "partitioner", "key": "key", "kafka_name": "kafka.name"}

# How many mistakes of a manifest an error lists. More of them have one cause, such as a wrong indentation.
MAX_MISTAKES = 10
# Of one mistake: room for the list of all column types, the longest advice that there is.
MAX_MISTAKE_CHARACTERS = 500
# Of the path of a field, which a manifest can make as long as it likes.
MAX_FIELD_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class TopicManifest:
    """A Topic resource before it has a uid. ``autoscaling`` is the annotation of that name, with any value."""

    namespace: str
    name: str
    spec: TopicSpec
    autoscaling: str | None = None

    @property
    def paused(self) -> bool:
        """Whether autoscaling of the topic is paused."""
        return self.autoscaling == PAUSED

    @property
    def full_name(self) -> str:
        """``namespace/name``, the name of the Topic."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """A Topic manifest file that was parsed once: its text, the mapping that the text says, and the topic."""

    text: str
    body: Mapping[str, Any]
    topic: TopicManifest


def parse_manifest(text: str, default_namespace: str = DEFAULT_NAMESPACE) -> TopicManifest:
    """One Topic resource from YAML or JSON. Raises SpecRejected."""
    return parse_document(text, default_namespace).topic


def parse_document(text: str, default_namespace: str = DEFAULT_NAMESPACE) -> ManifestDocument:
    """The same, with the text and the mapping. Raises SpecRejected."""
    documents = load_documents(text)
    if not documents:
        raise SpecRejected("the manifest is empty: write one resource with apiVersion, kind, metadata and spec")
    if len(documents) > 1:
        raise SpecRejected(
            f"the manifest has {len(documents)} documents: apply one Topic at a time (split it at the lines `---`)"
        )
    if not isinstance(documents[0], Mapping):
        raise SpecRejected(
            f"the manifest must be a mapping with apiVersion, kind, metadata and spec, not {shown(documents[0])}"
        )
    return ManifestDocument(text, documents[0], parse_resource(documents[0], default_namespace))


def parse_resource(body: Mapping[str, Any], default_namespace: str = DEFAULT_NAMESPACE) -> TopicManifest:
    """A Topic resource as the Kubernetes API returns it; its status and other metadata are ignored.

    Raises SpecRejected.
    """
    try:
        model = ManifestModel.model_validate(body)
    except ValidationError as error:
        raise _to_rejection(error) from None
    metadata = model.metadata
    annotations = metadata.annotations if isinstance(metadata.annotations, Mapping) else {}
    autoscaling = annotations.get(AUTOSCALING_ANNOTATION)
    return TopicManifest(
        metadata.namespace or default_namespace,
        metadata.name,
        _spec(model.spec),
        str(autoscaling) if autoscaling is not None else None,
    )


def parse_api_resource(body: Mapping[str, Any]) -> tuple[TopicManifest, list[str]]:
    """A Topic resource that an API server accepted, without the fields that are unknown here, and the paths of those.

    There are such fields while the CRD is newer than this program: during an upgrade, or when only the program was
    rolled back. Raises SpecRejected for every other mistake.
    """
    try:
        return parse_resource(body), []
    except SpecRejected:
        unknown = _unknown(body)
        if not unknown:
            raise
    known = copy.deepcopy({key: value for key, value in body.items() if key != "status"})
    for path in unknown:
        inside: Any = known
        for part in path[:-1]:
            inside = inside[part]
        del inside[path[-1]]
    return parse_resource(known), [_path(path) for path in unknown]


def _unknown(body: Mapping[str, Any]) -> list[tuple[int | str, ...]]:
    try:
        ManifestModel.model_validate(body)
    except ValidationError as error:
        return [mistake["loc"] for mistake in error.errors(include_url=False) if mistake["type"] == "extra_forbidden"]
    return []


def check_annotations(manifest: TopicManifest) -> None:
    """Raises SpecRejected if an annotation of ours has an invalid value; otherwise such an annotation is ignored."""
    if manifest.autoscaling not in (None, PAUSED, ACTIVE):
        field = f"metadata.annotations[{AUTOSCALING_ANNOTATION}]"
        raise SpecRejected(
            f"{field}: must be {PAUSED!r} or {ACTIVE!r}, not {_abbreviated(manifest.autoscaling)}; "
            "without the annotation it is active",
            field=field,
        )


def check_change(old: TopicSpec, new: TopicSpec, schema: TopicSchema | None = None) -> None:
    """Raises SpecRejected if a field differs that cannot change, or if the schema cannot change in this way.

    ``schema`` is the newest version of the topic's schema; without it the columns of ``old`` are taken for it.
    """
    for attribute, field in _FIXED_FIELDS.items():
        former = getattr(old, attribute)
        if former != getattr(new, attribute):
            before = "none" if former in (None, ()) else _abbreviated(former)
            raise SpecRejected(
                f"spec.{field} cannot change (it is {before}): keep it, or make a topic of another name",
                field=f"spec.{field}",
            )
    if problems := violations(schema or TopicSchema(0, old.schema), new.schema, old.key):
        raise SpecRejected("\n".join(f"spec.schema: {problem}" for problem in problems), field="spec.schema")


def to_manifest(topic: Topic | TopicManifest) -> str:
    """The topic as YAML with every field; :func:`parse_manifest` returns the same spec."""
    return yaml.safe_dump(to_resource(topic), sort_keys=False, allow_unicode=True)


def to_resource(topic: Topic | TopicManifest) -> dict[str, Any]:
    """The topic as a Topic resource with every field, without those that are not set."""
    if isinstance(topic, Topic):
        namespace, _, name = topic.name.rpartition("/")
        autoscaling = None
    else:
        namespace, name, autoscaling = topic.namespace, topic.name, topic.autoscaling
    model = ManifestModel.model_construct(
        apiVersion=API_VERSION,
        kind=KIND,
        metadata=MetadataModel.model_construct(
            name=name,
            namespace=namespace or DEFAULT_NAMESPACE,
            annotations=None if autoscaling is None else {AUTOSCALING_ANNOTATION: autoscaling},
        ),
        spec=_model(topic.spec),
    )
    body = model.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    for name in ("schema", "quotas"):
        if not body["spec"][name]:
            del body["spec"][name]
    return body


def spec_fields(spec: TopicSpec) -> dict[str, Any]:
    """Every field of the spec as a manifest has it; None if it is not set."""
    return _model(spec).model_dump(mode="json", by_alias=True, warnings=False)


def default_spec(partitions: int) -> TopicSpec:
    """The spec of a topic with that number of partitions whose manifest has no other field."""
    return _spec(SpecModel(partitions=partitions))


def schema_fields(columns: Sequence[Column]) -> list[dict[str, object]]:
    """The columns as ``spec.schema`` has them."""
    return [{"name": c.name, "type": c.type} | ({"nullable": True} if c.nullable else {}) for c in columns]


def _spec(model: SpecModel) -> TopicSpec:
    return TopicSpec(
        partitions=model.partitions,
        partitioner=Partitioner(model.partitioner),
        key=model.key,
        schema=tuple(Column(c.name, c.type, c.nullable) for c in model.columns),
        durability=Durability(model.durability),
        replicas=model.replicas,
        min_segments=model.segments.min,
        max_segments=model.segments.max,
        target_messages_per_second=model.scaling.target.messagesPerSecond,
        target_bytes_per_second=model.scaling.target.bytesPerSecond,
        split_after=model.scaling.splitAfter,
        merge_after=model.scaling.mergeAfter,
        flush_bytes=model.flush.bytes,
        flush_interval=model.flush.interval,
        flush_max_interval=model.flush.maxInterval,
        roll_bytes=model.roll.bytes,
        roll_age=model.roll.age,
        retention_age=model.retention.age,
        retention_bytes=model.retention.bytes,
        retention_keeps_unread=model.retention.unread == "Keep",
        retention_abandoned_after=model.retention.abandonedAfter,
        delete_data=model.deletionPolicy == "Delete",
        kafka_name=model.kafka.name,
        kafka_compacts=model.kafka.cleanupPolicy == "Compact",
        quotas=tuple(
            TopicQuota(identity=it.identity, produce=_quota(it.produce), consume=_quota(it.consume))
            for it in model.quotas
        ),
    )


def _quota(model: QuotaModel) -> Quota:
    return Quota(
        bytes_per_second=model.bytesPerSecond, messages_per_second=model.messagesPerSecond, streams=model.streams
    )


def _quota_model(quota: Quota) -> QuotaModel:
    size = None if quota.bytes_per_second is None else size_text(quota.bytes_per_second)
    build = dict[str, Any]
    return QuotaModel.model_construct(
        **build(bytesPerSecond=size, messagesPerSecond=quota.messages_per_second, streams=quota.streams)
    )


def _model(spec: TopicSpec) -> SpecModel:
    """The reverse of :func:`_spec`, with units as text."""
    build = dict[str, Any]
    retention = RetentionModel.model_construct(
        **build(
            age=duration_text(spec.retention_age),
            bytes=size_text(spec.retention_bytes),
            unread="Keep" if spec.retention_keeps_unread else "Expire",
            abandonedAfter=duration_text(spec.retention_abandoned_after),
        )
    )
    columns = [
        SchemaColumnModel.model_construct(**build(name=c.name, type=c.type, nullable=c.nullable)) for c in spec.schema
    ]
    return SpecModel.model_construct(
        partitions=spec.partitions,
        partitioner=spec.partitioner.value,
        key=spec.key,
        **build(schema=columns),
        durability=spec.durability.value,
        replicas=spec.replicas,
        segments=SegmentsModel.model_construct(min=spec.min_segments, max=spec.max_segments),
        scaling=ScalingModel.model_construct(
            target=TargetModel.model_construct(
                **build(
                    messagesPerSecond=spec.target_messages_per_second,
                    bytesPerSecond=size_text(spec.target_bytes_per_second),
                )
            ),
            **build(splitAfter=duration_text(spec.split_after), mergeAfter=duration_text(spec.merge_after)),
        ),
        flush=FlushModel.model_construct(
            **build(
                bytes=size_text(spec.flush_bytes),
                interval=duration_text(spec.flush_interval),
                maxInterval=duration_text(spec.flush_max_interval) if spec.flush_max_interval is not None else None,
            )
        ),
        roll=RollModel.model_construct(**build(bytes=size_text(spec.roll_bytes), age=duration_text(spec.roll_age))),
        retention=retention,
        deletionPolicy="Delete" if spec.delete_data else "Retain",
        kafka=KafkaModel.model_construct(
            name=spec.kafka_name, cleanupPolicy="Compact" if spec.kafka_compacts else "Delete"
        ),
        quotas=[
            TopicQuotaModel.model_construct(
                identity=it.identity, produce=_quota_model(it.produce), consume=_quota_model(it.consume)
            )
            for it in spec.quotas
        ],
    )


def _to_rejection(error: ValidationError) -> SpecRejected:
    """All mistakes of one manifest, a line each; ``field`` is the first one's."""
    lines: list[str] = []
    fields: list[str] = []
    for mistake in error.errors(include_url=False):
        field = _path(mistake["loc"])
        if mistake["type"] == TOGETHER:
            found = mistake["ctx"]["mistakes"]
            lines += [f"{field}.{name}: {text}" for name, text in found]
            fields += [f"{field}.{name}" for name, _ in found]
            continue
        lines.append(f"{field}: {_describe_mistake(mistake)}" if field else _describe_mistake(mistake))
        fields.append(field)
    more = [f"and {len(lines) - MAX_MISTAKES} more mistakes"] if len(lines) > MAX_MISTAKES else []
    lines = [bounded(line, MAX_MISTAKE_CHARACTERS) for line in lines[:MAX_MISTAKES]]
    return SpecRejected("\n".join([*lines, *more]), field=bounded(fields[0], MAX_FIELD_CHARACTERS))


def _path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _describe_mistake(mistake: Any) -> str:
    kind, given = mistake["type"], mistake.get("input")
    limits = mistake.get("ctx", {})
    simple = {
        "missing": "is missing: add it",
        "extra_forbidden": "there is no such field: check its name and its place, or take it out",
        "model_type": f"must be a mapping of fields, not {_abbreviated(given)}",
        "list_type": f"must be a list, not {_abbreviated(given)}",
        "tuple_type": f"must be a list, not {_abbreviated(given)}",
        "string_type": f"must be text, not {_abbreviated(given)}: put it in quotes",
        "bool_type": f"must be true or false, not {_abbreviated(given)}",
        "bool_parsing": f"must be true or false, not {_abbreviated(given)}",
    }
    if kind in simple:
        return simple[kind]
    if kind.startswith("int_"):
        return f"must be a whole number, not {_abbreviated(given)}"
    if kind == "literal_error":
        return f"must be {limits['expected']}, not {_abbreviated(given)}"
    if kind == "greater_than_equal":
        return f"must be at least {limits['ge']}, not {_abbreviated(given)}"
    if kind == "less_than_equal":
        return f"must be at most {limits['le']}, not {_abbreviated(given)}"
    return str(mistake["msg"]).removeprefix("Value error, ")


def _abbreviated(value: object) -> str:
    return "nothing" if value is None else shown(value)
