"""A topic's settings: every field of its spec as text, which of them are defaults, and what a change of them risks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from smq_core.errors import InvalidRequest
from smq_core.model.entities import Durability, TopicSpec
from smq_core.model.schema_evolution import difference
from smq_core.model.units import UNLIMITED, duration_text, size_text
from smq_storage.topic_manifests.parser import TopicManifest, default_spec, spec_fields

# The value of a field that is not set, such as ``flush.maxInterval``.
UNSET = "none"


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a spec. ``field`` is its path in the manifest, such as ``retention.age``."""

    field: str
    value: str
    is_default: bool


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One change of a topic, as text. ``risk`` says what is lost by it; empty if nothing is."""

    text: str
    risk: str = ""


def settings_of(spec: TopicSpec) -> list[Setting]:
    """All settings but the columns, in the order of the manifest."""
    defaults = dict(_flat(spec_fields(default_spec(spec.partitions))))
    return [
        Setting(field, value, field != "partitions" and value == defaults.get(field))
        for field, value in _flat(spec_fields(spec))
    ]


def manifest_changes(old: TopicManifest, new: TopicManifest) -> list[TopicChange]:
    """What differs between two manifests of one topic, in their order; columns and autoscaling come last."""
    found = _spec_changes(old.spec, new.spec)
    if old.paused != new.paused:
        found.append(TopicChange(f"autoscaling is {'paused' if new.paused else 'active'}"))
    return found


def _spec_changes(old: TopicSpec, new: TopicSpec) -> list[TopicChange]:
    before = {setting.field: setting.value for setting in settings_of(old)}
    risks = dict(_risks(old, new))
    found = []
    for setting in settings_of(new):
        former = before.pop(setting.field, UNSET)
        if setting.value != former:
            text = f"{setting.field}: {former} → {setting.value}{' (default)' if setting.is_default else ''}"
            found.append(TopicChange(text, risks.get(setting.field, "")))
    found += [TopicChange(f"{field}: {value} → {UNSET}") for field, value in before.items() if value != UNSET]
    gone = {column.name for column in old.schema} - {column.name for column in new.schema}
    for text in difference(old.schema, new.schema):
        dropped = any(text.startswith(f"column {name!r} ") for name in gone)
        found.append(TopicChange(text, "its name can never be used again" if dropped else ""))
    return found


def nested_fields(settings: Mapping[str, object]) -> dict[str, object]:
    """``{"retention.age": "3d"}`` as the fields of a manifest. Raises InvalidRequest."""
    made: dict[str, object] = {}
    for path, value in settings.items():
        inside: Any = made
        *parents, name = path.split(".")
        for parent in parents:
            inside = inside.setdefault(parent, {})
            if not isinstance(inside, dict):
                raise InvalidRequest(f"the setting {path} is inside of another one that is given, too: give only one")
        inside[name] = value
    return made


def _risks(old: TopicSpec, new: TopicSpec) -> Iterator[tuple[str, str]]:
    if _is_lower(new.retention_age, old.retention_age):
        yield "retention.age", f"messages older than {duration_text(new.retention_age)} are removed"
    if _is_lower(new.retention_bytes, old.retention_bytes):
        yield "retention.bytes", f"the oldest messages beyond {size_text(new.retention_bytes)} are removed"
    if old.retention_keeps_unread and not new.retention_keeps_unread:
        yield "retention.unread", "retention also removes messages that groups have not read"
    if new.retention_keeps_unread and _is_lower(new.retention_abandoned_after, old.retention_abandoned_after):
        after = duration_text(new.retention_abandoned_after)
        yield "retention.abandonedAfter", f"a group without members for {after} no longer keeps unread messages"
    if new.replicas < old.replicas:
        yield "replicas", "fewer brokers hold the newest messages"
    if old.durability is Durability.STORED and new.durability is Durability.REPLICATED:
        yield "durability", "messages are acked before they are in the filer"
    if new.delete_data and not old.delete_data:
        yield "deletionPolicy", "deleting the topic deletes its files, too"


def _is_lower(new: int | None, old: int | None) -> bool:
    """None is unlimited."""
    return new is not None and (old is None or new < old)


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif name == "quotas":
            yield from [it for quota in value for it in _quota_settings(quota)] or [(name, UNSET)]
        elif name != "schema":
            yield prefix + name, UNSET if value is None else str(value)


def _quota_settings(quota: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The limits of one entry; or that it has none, so that its identity is free of those of all others."""
    field = f"quotas[{quota['identity']}]"
    rights = {name: value for name, value in quota.items() if name != "identity"}
    limits = [(name, value) for name, value in _flat(rights, f"{field}.") if value != UNSET]
    yield from limits or [(field, UNLIMITED)]
