"""What the leader knows of one topic at one moment, as far as conditions depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model.entities import Layout, SealedSegment, TopicSpec
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.status.health import NO_ISSUES, HealthIssues


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """The facts behind the conditions of one topic. It has no rates, because those change every second.

    ``layout`` is None if the topic has none yet, or if the leader has not read it (``layout_read`` is False).
    ``rejection`` is the reason why the spec is not followed; ``waiting_reason`` is what keeps the leader from adopting
    the topic; ``unreadable`` says which of its documents in the filer cannot be read. ``lost`` are the sealed segments
    that lost messages, ``unread_by`` the groups for which segments stay beyond retention. ``clock_skew_minutes`` is how
    far the leader's clock is ahead of the filer's; 0 if they agree.
    """

    name: str
    spec: TopicSpec
    layout: Layout | None = None
    layout_read: bool = True
    lost: tuple[SealedSegment, ...] = ()
    rejection: str | None = None
    waiting_reason: str | None = None
    unreadable: str | None = None
    paused: bool = False
    unread_by: tuple[str, ...] = ()
    clock_skew_minutes: int = 0
    issues: HealthIssues = NO_ISSUES

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    @property
    def short_name(self) -> str:
        return self.name.partition("/")[2]


def snapshot_of(managed: ManagedTopic, issues: HealthIssues) -> TopicSnapshot:
    """The topic as it is now."""
    adopted = managed.last_adopted == managed.desired
    return TopicSnapshot(
        name=managed.name,
        spec=managed.topic.spec if managed.topic is not None else managed.desired.spec,
        layout=managed.layout,
        layout_read=managed.reconciler is not None and managed.reconciler.layout_known,
        lost=tuple(entry for entry in managed.index.sealed.values() if entry.lost is not None),
        rejection=managed.rejection if adopted else None,
        waiting_reason=None if adopted else managed.problem,
        unreadable=managed.unreadable.message if managed.unreadable is not None else None,
        paused=managed.desired.paused,
        unread_by=unread_by(managed),
        clock_skew_minutes=_whole_minutes(managed.clock_skew_us),
        issues=issues,
    )


def unread_by(managed: ManagedTopic) -> tuple[str, ...]:
    """The groups that have not read segments which retention would remove."""
    return tuple(sorted({group for groups in managed.retention_held.values() for group in groups}))


def _whole_minutes(microseconds: int) -> int:
    """Rounded, so that a condition does not change with every measurement."""
    return round(microseconds / 60e6)
