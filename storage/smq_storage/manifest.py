"""Topic manifests: YAML (or JSON) from people to TopicSpec and back.

Every mistake is answered by InvalidManifest, which names the field, says what is wrong and what to write instead.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from smq_core.errors import InvalidManifest
from smq_core.model import Column, Durability, Topic, TopicSpec
from smq_storage.manifest_model import (
    API_VERSION,
    KIND,
    TOGETHER,
    FlushModel,
    ManifestModel,
    MetadataModel,
    RetentionModel,
    RollModel,
    ScalingModel,
    SchemaColumnModel,
    SegmentsModel,
    SpecModel,
    TargetModel,
)
from smq_storage.units import duration_text, size_text

DEFAULT_NAMESPACE = "default"
AUTOSCALING = "seaweedmq.io/autoscaling"
"""The annotation that pauses it: ``paused``; ``active``, or no such annotation, is the opposite."""
PAUSED, ACTIVE = "paused", "active"


@dataclass(frozen=True, slots=True)
class TopicManifest:
    """A Topic resource before it has a uid. ``autoscaling`` is the annotation of that name, whatever it says."""

    namespace: str
    name: str
    spec: TopicSpec
    autoscaling: str | None = None

    @property
    def paused(self) -> bool:
        """True when load shall change nothing of the topic."""
        return self.autoscaling == PAUSED

    @property
    def full_name(self) -> str:
        """``namespace/name``, the name of the Topic."""
        return f"{self.namespace}/{self.name}"


def parse_manifest(text: str, default_namespace: str = DEFAULT_NAMESPACE) -> TopicManifest:
    """One Topic resource from YAML or JSON. Raises InvalidManifest (``field``, where there is one)."""
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        raise InvalidManifest(f"the manifest is not YAML: {_one_line(str(error))}") from None
    if not documents:
        raise InvalidManifest("the manifest is empty: write one resource with apiVersion, kind, metadata and spec")
    if len(documents) > 1:
        raise InvalidManifest(
            f"the manifest has {len(documents)} documents: apply one Topic at a time (split it at the lines `---`)"
        )
    if not isinstance(documents[0], Mapping):
        raise InvalidManifest(
            f"the manifest must be a mapping with apiVersion, kind, metadata and spec, not {documents[0]!r:.80}"
        )
    return parse_resource(documents[0], default_namespace)


def parse_resource(body: Mapping[str, Any], default_namespace: str = DEFAULT_NAMESPACE) -> TopicManifest:
    """A Topic resource as the Kubernetes API gives it (its status and other metadata are ignored).

    Raises InvalidManifest.
    """
    try:
        model = ManifestModel.model_validate(body)
    except ValidationError as error:
        raise _explained(error) from None
    metadata = model.metadata
    annotations = metadata.annotations if isinstance(metadata.annotations, Mapping) else {}
    autoscaling = annotations.get(AUTOSCALING)
    return TopicManifest(
        metadata.namespace or default_namespace,
        metadata.name,
        _spec(model.spec),
        str(autoscaling) if autoscaling is not None else None,
    )


def parse_served(body: Mapping[str, Any]) -> tuple[TopicManifest, list[str]]:
    """A Topic resource that an API server took, and the fields of it that nobody here knows; the rest is followed.

    There are such fields while the definition is newer than this program: in the middle of an upgrade, or when only
    the program went back. Raises InvalidManifest for everything else.
    """
    try:
        return parse_resource(body), []
    except InvalidManifest:
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
    """Raises InvalidManifest when an annotation of ours says what nobody understands; it then counts as not there."""
    if manifest.autoscaling not in (None, PAUSED, ACTIVE):
        field = f"metadata.annotations[{AUTOSCALING}]"
        raise InvalidManifest(
            f"{field}: must be {PAUSED!r} or {ACTIVE!r}, not {_shown(manifest.autoscaling)}; without it, it is active",
            field=field,
        )


def check_change(old: TopicSpec, new: TopicSpec) -> None:
    """Raises InvalidManifest when a field differs that must stay as it is for a topic's whole life."""
    for field in ("partitions", "key", "schema"):
        if getattr(old, field) != getattr(new, field):
            before = "none" if getattr(old, field) in (None, ()) else _shown(getattr(old, field))
            raise InvalidManifest(
                f"spec.{field} cannot change (it is {before}): keep it, or make a topic of another name",
                field=f"spec.{field}",
            )


def to_manifest(topic: Topic | TopicManifest) -> str:
    """The topic as YAML, every field written out; :func:`parse_manifest` gives the same spec back."""
    if isinstance(topic, Topic):
        namespace, _, name = topic.name.rpartition("/")
    else:
        namespace, name = topic.namespace, topic.name
    model = ManifestModel.model_construct(
        apiVersion=API_VERSION,
        kind=KIND,
        metadata=MetadataModel.model_construct(name=name, namespace=namespace or DEFAULT_NAMESPACE),
        spec=_model(topic.spec),
    )
    body = model.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def _spec(model: SpecModel) -> TopicSpec:
    return TopicSpec(
        partitions=model.partitions,
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
        roll_bytes=model.roll.bytes,
        roll_age=model.roll.age,
        retention_age=model.retention.age,
        retention_bytes=model.retention.bytes,
        retention_keeps_unread=model.retention.unread == "Keep",
        retention_abandoned_after=model.retention.abandonedAfter,
        delete_data=model.deletionPolicy == "Delete",
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
            **build(bytes=size_text(spec.flush_bytes), interval=duration_text(spec.flush_interval))
        ),
        roll=RollModel.model_construct(**build(bytes=size_text(spec.roll_bytes), age=duration_text(spec.roll_age))),
        retention=retention,
        deletionPolicy="Delete" if spec.delete_data else "Retain",
    )


def _explained(error: ValidationError) -> InvalidManifest:
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
        lines.append(f"{field}: {_what(mistake)}" if field else _what(mistake))
        fields.append(field)
    return InvalidManifest("\n".join(lines), field=fields[0])


def _path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _what(mistake: Any) -> str:
    kind, given = mistake["type"], mistake.get("input")
    limits = mistake.get("ctx", {})
    simple = {
        "missing": "is missing: add it",
        "extra_forbidden": "there is no such field: check its name and its place, or take it out",
        "model_type": f"must be a mapping of fields, not {_shown(given)}",
        "list_type": f"must be a list, not {_shown(given)}",
        "tuple_type": f"must be a list, not {_shown(given)}",
        "string_type": f"must be text, not {_shown(given)}: put it in quotes",
        "bool_type": f"must be true or false, not {_shown(given)}",
        "bool_parsing": f"must be true or false, not {_shown(given)}",
    }
    if kind in simple:
        return simple[kind]
    if kind.startswith("int_"):
        return f"must be a whole number, not {_shown(given)}"
    if kind == "literal_error":
        return f"must be {limits['expected']}, not {_shown(given)}"
    if kind == "greater_than_equal":
        return f"must be at least {limits['ge']}, not {_shown(given)}"
    if kind == "less_than_equal":
        return f"must be at most {limits['le']}, not {_shown(given)}"
    return str(mistake["msg"]).removeprefix("Value error, ")


def _shown(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
