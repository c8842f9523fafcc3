"""What layouts and load give each broker to do, as the placement of segments needs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from smq_core.scaling.placement import BrokerView
from smq_operator.brokers.registry import BrokerRegistry, assigned_work
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.clock import Clock


class BrokerAssignments:
    """Computed on demand, and kept until something that it depends on changes."""

    def __init__(self, topics: TopicDirectory, registry: BrokerRegistry, clock: Clock) -> None:
        self._topics = topics
        self._registry = registry
        self._now = clock
        self._loads: dict[str, float] = {}
        self._views: dict[str, BrokerView] | None = None
        self._assigned_work: Counter[str] = Counter()
        """By incarnation. A layout that is being written counts, so that the placement of the next topic sees it."""
        self._segments_by_incarnation: dict[str, list[str]] | None = None

    def views(self) -> dict[str, BrokerView]:
        """The brokers as core sees them now."""
        if self._views is None:
            self._views = self._registry.views(self._assigned_work, self._loads, self._now())
        return self._views

    def segments_of(self, incarnation: str) -> list[str]:
        """The segments that layouts give to this incarnation, or soon will."""
        if self._segments_by_incarnation is None:
            self._segments_by_incarnation = {}
            for managed in self._topics.values():
                found = {
                    (replica.incarnation, segment.name): None
                    for layout in (managed.layout, managed.pending_layout)
                    for segment in (layout.segments if layout is not None else ())
                    for replica in segment.replicas
                }
                for holder, name in found:
                    self._segments_by_incarnation.setdefault(holder, []).append(name)
        return self._segments_by_incarnation.get(incarnation, [])

    # ---- changes

    def forget_brokers(self, now: int, retention_us: int | None = None) -> list[str]:
        """Forgets brokers that are silent and that no layout names, once all layouts were read. Returns them."""
        if not self._topics.all_layouts_known:
            return []
        layouts = self._topics.pending_layouts()
        named = {r.incarnation for layout in layouts for s in layout.segments for r in s.replicas}
        return self._registry.forget(named, now, retention_us)

    def account(self, managed: ManagedTopic) -> None:
        """Takes in the layout that the topic has now, or soon will have."""
        layout = None if managed.deleted else managed.pending_layout or managed.layout
        if layout is not managed.counted_layout:
            self._assigned_work.subtract(
                assigned_work([managed.counted_layout] if managed.counted_layout is not None else [])
            )
            self._assigned_work.update(assigned_work([layout] if layout is not None else []))
            managed.counted_layout = layout
            self._views = self._segments_by_incarnation = None

    def set_loads(self, loads: dict[str, float]) -> None:
        """What each incarnation carries of all topics; see :func:`loads_of`."""
        self._loads, self._views = loads, None

    def brokers_changed(self) -> None:
        self._views = None

    def layouts_changed(self) -> None:
        self._segments_by_incarnation = None


def loads_of(managed: ManagedTopic) -> Mapping[str, float]:
    """What each incarnation carries of this topic, in multiples of the topic's target load for one segment."""
    if managed.reconciler is None or managed.layout is None:
        return {}
    return managed.reconciler.load.count_by_broker(managed.reconciler.topic.spec, managed.layout)
