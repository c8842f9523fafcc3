"""What the projections write, applied to resources in memory as the API server applies it; and topics to project.

For tests of what is written only; that the API server takes it is tested on a real one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from smq_core import layout as layouts
from smq_core.keyspace import KeyRange, even_split
from smq_core.layout import SealPlan, Successor
from smq_core.model import Durability, Layout, Reason, Replica, SealedSegment, TopicSpec
from smq_operator.kube.facts import TopicFacts
from smq_operator.kube.kinds import TOPICS, Resource
from smq_operator.kube.projection import Create, Delete, PatchMetadata, PatchStatus, Write, writes

UID = "11111111-2222-3333-4444-555555555555"
NOW = 1_700_000_000_000_000


class Shelf:
    """The Topic and the Segments of a namespace."""

    def __init__(self, name: str = "flights", uid: str = UID) -> None:
        self.topic: Resource = {
            "apiVersion": TOPICS.api,
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

    def settle(self, facts: TopicFacts, now: int = NOW) -> list[Write]:
        """Writes what is to be written, until nothing is; returns the first writes."""
        first = writes(facts, self.topic, self.segments, now)
        todo, rounds = first, 0
        while todo:
            for write in todo:
                self.apply(write)
            todo, rounds = writes(facts, self.topic, self.segments, now + 1_000_000), rounds + 1
            assert rounds < 3, f"it does not come to rest: {todo}"
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
    ranges = even_split(KeyRange(0, partitions), parts)
    made = [Successor(part, replicas(*brokers), Durability.REPLICATED) for part in ranges]
    return layouts.create("travel/flights", UID, partitions, made, now=NOW, writer="w")


def split(layout: Layout, name: str, reason: Reason = Reason.SPLIT) -> Layout:
    parts = even_split(layout.segment(name).range, 2)
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
                name,
                segment.number,
                segment.range,
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


def facts(layout: Layout | None, sealed: Iterable[SealedSegment] = (), **more: Any) -> TopicFacts:
    kept = tuple(sealed)
    known: dict[str, Any] = {"generation": 1, "spec": TopicSpec(partitions=16), "sealed_count": len(kept)} | more
    return TopicFacts("travel/flights", UID, layout=layout, sealed=kept, **known)
