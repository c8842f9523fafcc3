"""Puts one leader together. Nothing here runs; ``leader_process`` and tests start what they need of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from smq_operator.api.admin import AdminService
from smq_operator.api.auth import AuthService
from smq_operator.api.brokers import BrokerService
from smq_operator.api.groups import GroupService
from smq_operator.api.publishes import PublishService
from smq_operator.api.server import LeaderServices
from smq_operator.api.topics import TopicService
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.brokers.connectivity import BrokerConnectivity
from smq_operator.brokers.dialer import OPEN, BrokerDialer
from smq_operator.brokers.liveness import LivenessProbes
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.cleanup.filer_clock import FilerClock
from smq_operator.cleanup.garbage_collection import GarbageCollector
from smq_operator.cleanup.kafka_silence import KafkaSilence
from smq_operator.cleanup.stale_segments import StaleSegments
from smq_operator.cleanup.topic_deletion import TopicDeletionManager
from smq_operator.compaction.small_file_merger import SmallFileMerger
from smq_operator.file_lists.namer import FileListNamer
from smq_operator.file_lists.topic_file_lists import CHECK_AGAIN_AFTER_US
from smq_operator.groups.group_changes import GroupChanges
from smq_operator.groups.group_coordinator import GroupCoordinator
from smq_operator.groups.group_lags import GroupLags
from smq_operator.groups.group_losses import GroupLosses
from smq_operator.groups.kafka_group_lags import KafkaGroupLags
from smq_operator.groups.kafka_groups import KafkaGroups
from smq_operator.groups.kafka_lag_samples import KafkaLagSamples
from smq_operator.groups.segment_reach import SegmentReach
from smq_operator.platform_port import Platform
from smq_operator.publishing.completer import PublishCompleter
from smq_operator.publishing.kept_files import has_unfinished_publish, unfinished_uploads
from smq_operator.reconcile.broker_assignments import BrokerAssignments
from smq_operator.reconcile.decision_log import DecisionLog
from smq_operator.reconcile.effects import EffectRunner
from smq_operator.reconcile.loop import LeaderLoop
from smq_operator.reconcile.loss_recorder import LossRecorder
from smq_operator.reconcile.manual_requests import ManualRequests
from smq_operator.reconcile.topic_recovery import TopicRecovery
from smq_operator.reconcile.topic_sync import TopicSync
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_operator.reconcile.warm_up import WARM_UP_US, WarmUp
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.clock import Clock, PauseAwareClock
from smq_operator.runtime.merge_settings import MergeSettings
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_operator.security.leader_security import LeaderSecurity
from smq_operator.status.health import WARM_UP_US as HEALTH_WARM_UP_US
from smq_operator.status.health import HealthMonitor
from smq_storage.compaction.file_list_switch import plan_small_files
from smq_storage.object_store.store import StoreSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The parts of one leader. Only code that puts parts together takes this; a part takes the parts that it needs."""

    platform: Platform
    readiness: Readiness
    clock: Clock
    tasks: TaskRunner
    store: StorePool
    registry: BrokerRegistry
    topics: TopicDirectory
    events: TopicEvents
    queue: WorkQueue
    decisions: DecisionLog
    assignments: BrokerAssignments
    sync: TopicSync
    effects: EffectRunner
    loop: LeaderLoop
    requests: ManualRequests
    groups: GroupCoordinator
    group_lags: GroupLags
    kafka_lag_samples: KafkaLagSamples
    topic_deletions: TopicDeletionManager
    filer_clock: FilerClock
    garbage_collector: GarbageCollector
    file_lists: FileListNamer
    merger: SmallFileMerger
    publishes: PublishCompleter
    health: HealthMonitor
    brokers_behind: Callable[[], Collection[str]]
    """The brokers that do not trust all authorities of the release yet."""
    services: LeaderServices


def build_leader(
    platform: Platform,
    brokers: BrokerCalls,
    store: StorePool,
    store_settings: StoreSettings,
    *,
    clock: Clock,
    readiness: Readiness,
    tasks: TaskRunner,
    owner: Callable[[], str],
    writer_id: str,
    cleanup: CleanupSettings,
    merge: MergeSettings,
    dialer: BrokerDialer = OPEN,
    security: LeaderSecurity | None = None,
    session_role: str = "",
    warm_up_us: int = WARM_UP_US,
    health_warm_up_us: int = HEALTH_WARM_UP_US,
    check_file_lists_after_us: int = CHECK_AGAIN_AFTER_US,
    effect_runner: type[EffectRunner] = EffectRunner,
) -> Leader:
    """``owner`` returns the platform's name for its topics; ``writer_id`` names this leader in seal chunks.

    ``store_settings`` is what clients get to reach the store. Without ``security`` the release is open, and without a
    ``session_role`` nobody gets temporary keys of the store.
    Call it on the event loop.
    """
    clock = pauses = PauseAwareClock(clock)
    registry, warm_up = BrokerRegistry(platform), WarmUp(clock, warm_up_us)
    topics, events, queue, decisions = TopicDirectory(), TopicEvents(), WorkQueue(), DecisionLog()
    assignments, requests = BrokerAssignments(topics, registry, clock), ManualRequests(topics, queue, clock)
    sealing = SealExecutor(store=store, brokers=brokers, receiver=registry.receiver, writer_id=writer_id)
    effects = effect_runner(
        store=store,
        brokers=brokers,
        sealing=sealing,
        clock=clock,
        problems=tasks.problems,
        max_upload_age=cleanup.max_upload_age_us,
        host_of=registry.host_of,
    )
    sync = TopicSync(
        platform=platform,
        topics=topics,
        assignments=assignments,
        decisions=decisions,
        events=events,
        queue=queue,
        tasks=tasks,
        store=store,
        warm_up=warm_up,
        clock=clock,
        owner=owner,
    )
    loop = LeaderLoop(
        platform=platform,
        registry=registry,
        topics=topics,
        sync=sync,
        assignments=assignments,
        effects=effects,
        decisions=decisions,
        events=events,
        queue=queue,
        tasks=tasks,
        warm_up=warm_up,
        clock=clock,
    )
    losses = LossRecorder(topics=topics, decisions=decisions, queue=queue, store=store, tasks=tasks, clock=clock)
    reach = SegmentReach(brokers, store)
    groups = GroupCoordinator(
        topics=topics,
        sync=sync,
        store=store,
        tasks=tasks,
        clock=clock,
        on_positions=losses.handle_positions,
        reach=reach,
    )
    group_lags = GroupLags(topics, groups, clock)
    topic_deletions = TopicDeletionManager(
        topics=topics,
        events=events,
        registry=registry,
        platform=platform,
        store=store,
        sealing=sealing,
        tasks=tasks,
        warm_up=warm_up,
        clock=clock,
    )
    filer_clock = FilerClock(store, clock)
    kafka_groups = KafkaGroups(store, clock, filer_clock, tasks.problems)
    kafka_lags = KafkaGroupLags(kafka_groups, store)
    kafka_lag_samples = KafkaLagSamples(topics=topics, groups=kafka_groups, store=store, clock=clock)
    garbage_collector = GarbageCollector(
        topics=topics,
        events=events,
        registry=registry,
        platform=platform,
        groups=groups,
        kafka_groups=kafka_groups,
        kafka_silence=KafkaSilence(registry),
        store=store,
        decisions=decisions,
        queue=queue,
        tasks=tasks,
        clock=clock,
        filer_clock=filer_clock,
        owner=owner,
        settings=cleanup,
        kept_uploads=[unfinished_uploads],
        is_held=has_unfinished_publish,
    )
    file_lists = FileListNamer(
        topics=topics,
        store=store,
        tasks=tasks,
        clock=clock,
        check_again_after_us=check_file_lists_after_us,
        has_small_files=lambda file_list: bool(plan_small_files(file_list, merge.policy)),
    )
    merger = SmallFileMerger(topics=topics, source=file_lists, store=store, tasks=tasks, clock=clock, settings=merge)
    publishes = PublishCompleter(topics=topics, store=store, tasks=tasks, clock=clock, dialer=dialer)
    health = HealthMonitor(
        topics=topics,
        registry=registry,
        clock=clock,
        warm_up_us=health_warm_up_us,
        leader_filer_problem=lambda: filer_clock.problem,
        problems=tasks.problems,
        is_open=security is None,
    )
    liveness_probes = LivenessProbes(
        registry=registry, brokers=brokers, tasks=tasks, on_suspected=queue.enqueue, clock=clock
    )

    def brokers_behind() -> Collection[str]:
        if security is None or not warm_up.over:
            return ["those that have not reported to the new leader yet"]
        return registry.with_other_authorities(security.authorities.known.id)

    for part in (registry, warm_up, groups, liveness_probes):
        pauses.on_pause(part.compensate_pause)
    pauses.on_pause(loop.pause_detected)
    broker_service = BrokerService(
        readiness=readiness,
        topics=topics,
        registry=registry,
        assignments=assignments,
        effects=effects,
        queue=queue,
        liveness_probes=liveness_probes,
        connectivity=BrokerConnectivity(requests.separate),
        stale_segments=StaleSegments(topics, store, sealing, tasks),
        losses=losses,
        topic_deletions=topic_deletions,
        clock=clock,
        authorities=lambda: security.authorities.known.id if security is not None else "",
    )
    topic_service = TopicService(
        readiness=readiness,
        topics=topics,
        sync=sync,
        liveness_probes=liveness_probes,
        store=store,
        store_settings=store_settings,
        session_role=session_role,
    )
    group_service = GroupService(
        readiness=readiness,
        groups=groups,
        losses=GroupLosses(groups, store),
        changes=GroupChanges(groups=groups, store=store, clock=clock, reach=reach, kafka=kafka_lags),
        lags=group_lags,
        kafka=kafka_lags,
    )
    recovery = TopicRecovery(
        topics=topics,
        registry=registry,
        brokers=brokers,
        assignments=assignments,
        decisions=decisions,
        warm_up=warm_up,
        store=store,
        clock=clock,
        owner=owner,
    )
    admin_service = AdminService(
        readiness=readiness,
        platform=platform,
        topics=topics,
        sync=sync,
        registry=registry,
        decisions=decisions,
        requests=requests,
        topic_deletions=topic_deletions,
        health=health,
        queue=queue,
        store=store,
        problems=tasks.problems,
        clock=clock,
        garbage_collector=garbage_collector,
        filer_clock=filer_clock,
        max_pin_age=cleanup.max_pin_age_us,
        recovery=recovery,
    )
    publish_service = PublishService(
        readiness=readiness,
        topics=topics,
        completer=publishes,
        store=store,
        clock=clock,
        max_upload_age=cleanup.max_upload_age_us,
        access=security.access if security is not None else None,
    )
    return Leader(
        platform=platform,
        readiness=readiness,
        clock=clock,
        tasks=tasks,
        store=store,
        registry=registry,
        topics=topics,
        events=events,
        queue=queue,
        decisions=decisions,
        assignments=assignments,
        sync=sync,
        effects=effects,
        loop=loop,
        requests=requests,
        groups=groups,
        group_lags=group_lags,
        kafka_lag_samples=kafka_lag_samples,
        topic_deletions=topic_deletions,
        filer_clock=filer_clock,
        garbage_collector=garbage_collector,
        file_lists=file_lists,
        merger=merger,
        publishes=publishes,
        health=health,
        brokers_behind=brokers_behind,
        services=LeaderServices(
            brokers=broker_service,
            topics=topic_service,
            groups=group_service,
            publishes=publish_service,
            admin=admin_service,
            auth=AuthService(
                readiness=readiness, topics=topics, clock=clock, security=security, brokers_behind=brokers_behind
            ),
        ),
    )
