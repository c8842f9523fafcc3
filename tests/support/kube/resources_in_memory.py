"""What the projections write, applied to resources in memory as the API server applies it; and topics to project.

For tests of what is written only; that the API server takes it is tested on a real one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from smq_core.model import layout_transitions as layouts
from smq_core.model.entities import Durability, Layout, Reason, Replica, SealedSegment, TopicSpec
from smq_core.model.keyspace import KeyRange, split_evenly
from smq_core.model.layout_transitions import SealPlan, Successor
from smq_operator.kube.client.kinds import TOPICS, Resource
from smq_operator.kube.status.diff import Create, Delete, PatchMetadata, PatchStatus, Write, compute_writes
from smq_operator.kube.status.resource_snapshot import ResourceSnapshot
from smq_operator.status.topic_snapshot import TopicSnapshot

UID = "11111111-2222-3333-4444-555555555555"
NOW = 1_700_000_000_000_000


class FakeResources:
    """The Topic and the Segments of a namespace."""

    def __init__(self, name: str = "flights", uid: str = UID) -> None:
        self.topic: Resource = {
            "apiVersion": TOPICS.api_version,
            "kind": TOPICS.kind,
            "metadata": {"name": name, "namespace": "travel", "uid": uid, "generation": 1},
            "spec": {},
        }
        self.segments: dict[str, Resource] = {}
        self.made = 0

    def apply(self, write: Write) -> None:
        match write:
            case Create(body, status):
                name = body["metadata"]["name"]
                assert name not in self.segments, "made twice"
                self.made += 1
                made = copy.deepcopy(body)
                made["metadata"]["uid"] = f"segment-{self.made}"
                self.segments[name] = made | {"status": copy.deepcopy(status)}
            case PatchStatus(kind, _, name, change):
                resource = self.topic if kind is TOPICS else self.segments[name]
                resource["status"] = merged(resource.get("status") or {}, change)
            case PatchMetadata(_, name, change):
                self.segments[name]["metadata"] = merged(self.segments[name]["metadata"], change)
            case Delete(resource, _):
                del self.segments[resource["metadata"]["name"]]

    def apply_until_stable(self, snapshot: ResourceSnapshot, now: int = NOW) -> list[Write]:
        """Writes what is to be written, until nothing is; returns the first writes."""
        first = compute_writes(snapshot, self.topic, self.segments, now)
        todo, passes = first, 0
        while todo:
            for write in todo:
                self.apply(write)
            todo, passes = compute_writes(snapshot, self.topic, self.segments, now + 1_000_000), passes + 1
            assert passes < 3, f"it still has writes to make: {todo}"
        return first


def merged(old: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def replicas(*brokers: str) -> tuple[Replica, ...]:
    return tuple(Replica(name, f"{name}-incarnation", f"10.0.0.1:{7000 + i}") for i, name in enumerate(brokers))


def new_layout(parts: int = 1, partitions: int = 16, brokers: tuple[str, ...] = ("b0", "b1")) -> Layout:
    ranges = split_evenly(KeyRange(0, partitions), parts)
    made = [Successor(part, replicas(*brokers), Durability.REPLICATED) for part in ranges]
    return layouts.create("travel/flights", UID, partitions, made, now=NOW, writer="w")


def split(layout: Layout, name: str, reason: Reason = Reason.SPLIT) -> Layout:
    parts = split_evenly(layout.segment(name).range, 2)
    made = tuple(Successor(part, replicas("b1", "b2"), Durability.REPLICATED) for part in parts)
    return layouts.plan(layout, [SealPlan((name,), reason, made)], now=NOW, writer="w")


def finished(layout: Layout) -> tuple[Layout, list[SealedSegment]]:
    """All seals are done: the layout after it, and the entries of the index."""
    gone = layouts.activatable(layout, [s.name for s in layout.segments if s.successors])
    return layouts.activate(layout, gone, writer="w"), entries(layout, gone)


def entries(layout: Layout, names: Iterable[str]) -> list[SealedSegment]:
    found = []
    for name in sorted(names):
        segment = layout.segment(name)
        found.append(
            SealedSegment(
                name=name,
                number=segment.number,
                range=segment.range,
                end=100 + segment.number,
                predecessors=segment.predecessors,
                successors=segment.successors,
                opened_because=segment.opened_because,
                sealed_because=segment.sealed_because or Reason.MANUAL,
                opened_at=segment.opened_at,
                sealed_at=NOW + 1_000_000,
                bytes=1000,
            )
        )
    return found


def snapshot(layout: Layout | None, sealed: Iterable[SealedSegment] = (), **more: Any) -> ResourceSnapshot:
    """The snapshot of a topic that has these segments; ``more`` are fields of it, or of its TopicSnapshot."""
    kept = tuple(sealed)
    known: dict[str, Any] = {"generation": 1, "sealed_count": len(kept)} | more
    fields = {key: known.pop(key) for key in list(known) if key in TopicSnapshot.__dataclass_fields__}
    topic = topic_snapshot(layout, **fields)
    return ResourceSnapshot(topic=topic, uid=UID, sealed=kept, **known)


def topic_snapshot(layout: Layout | None, **more: Any) -> TopicSnapshot:
    return TopicSnapshot(**({"name": "travel/flights", "spec": TopicSpec(partitions=16), "layout": layout} | more))
