"""Puts one leader together. Nothing here runs; ``leader_process`` and tests start what they need of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smq_operator.api.admin import AdminService
from smq_operator.api.brokers import BrokerService
from smq_operator.api.groups import GroupService
from smq_operator.api.publishes import PublishService
from smq_operator.api.server import LeaderServices
from smq_operator.api.topics import TopicService
from smq_operator.brokers.calls import BrokerCalls
from smq_operator.brokers.connectivity import BrokerConnectivity
from smq_operator.brokers.liveness import LivenessProbes
from smq_operator.brokers.registry import BrokerRegistry
from smq_operator.brokers.sealing import SealExecutor
from smq_operator.cleanup.filer_clock import FilerClock
from smq_operator.cleanup.garbage_collection import GarbageCollector
from smq_operator.cleanup.stale_segments import StaleSegments
from smq_operator.cleanup.topic_deletion import TopicDeletionManager
from smq_operator.compaction.small_file_merger import SmallFileMerger
from smq_operator.file_lists.namer import FileListNamer
from smq_operator.file_lists.topic_file_lists import CHECK_AGAIN_AFTER_US
from smq_operator.groups.group_changes import GroupChanges
from smq_operator.groups.group_coordinator import GroupCoordinator
from smq_operator.groups.group_lags import GroupLags
from smq_operator.groups.group_losses import GroupLosses
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
from smq_operator.reconcile.topics.events import TopicEvents
from smq_operator.reconcile.warm_up import WARM_UP_US, WarmUp
from smq_operator.reconcile.work_queue import WorkQueue
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.clock import Clock, PauseAwareClock
from smq_operator.runtime.merge_settings import MergeSettings
from smq_operator.runtime.readiness import Readiness
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_operator.status.health import WARM_UP_US as HEALTH_WARM_UP_US
from smq_operator.status.health import HealthMonitor
from smq_storage.compaction.file_list_switch import plan_small_files
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import StoreSettings


@dataclass(frozen=True, slots=True)
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
    topic_deletions: TopicDeletionManager
    filer_clock: FilerClock
    garbage_collector: GarbageCollector
    file_lists: FileListNamer
    merger: SmallFileMerger
    publishes: PublishCompleter
    health: HealthMonitor
    services: LeaderServices


def build_leader(
    platform: Platform,
    brokers: BrokerCalls,
    store: StorePool,
    store_settings: StoreSettings,
    *,
    clock: Clock,
    retry_policy: RetryPolicy,
    readiness: Readiness,
    tasks: TaskRunner,
    owner: Callable[[], str],
    writer_id: str,
    cleanup: CleanupSettings,
    merge: MergeSettings,
    warm_up_us: int = WARM_UP_US,
    health_warm_up_us: int = HEALTH_WARM_UP_US,
    check_file_lists_after_us: int = CHECK_AGAIN_AFTER_US,
    effect_runner: type[EffectRunner] = EffectRunner,
) -> Leader:
    """``owner`` returns the platform's name for its topics; ``writer_id`` names this leader in seal chunks.

    ``store_settings`` is what clients get to reach the store. Call it on the event loop.
    """
    clock = pauses = PauseAwareClock(clock)
    registry, warm_up = BrokerRegistry(platform), WarmUp(clock, warm_up_us)
    topics, events, queue, decisions = TopicDirectory(), TopicEvents(), WorkQueue(), DecisionLog()
    assignments, requests = BrokerAssignments(topics, registry, clock), ManualRequests(topics, queue)
    sealing = SealExecutor(store, brokers, registry.receiver, retry_policy, writer_id)
    effects = effect_runner(
        store, brokers, sealing, clock, retry_policy, tasks.problems, cleanup.max_upload_age_us, registry.host_of
    )
    sync = TopicSync(
        platform,
        topics,
        assignments,
        decisions,
        events,
        queue,
        tasks,
        store,
        retry_policy,
        warm_up,
        clock,
        owner,
    )
    loop = LeaderLoop(
        platform,
        registry,
        topics,
        sync,
        assignments,
        effects,
        decisions,
        events,
        queue,
        tasks,
        warm_up,
        clock,
    )
    losses = LossRecorder(topics, decisions, queue, store, tasks, clock, retry_policy)
    reach = SegmentReach(brokers, store)
    groups = GroupCoordinator(topics, sync, store, tasks, clock, retry_policy, losses.handle_positions, reach)
    group_lags = GroupLags(topics, groups, clock)
    topic_deletions = TopicDeletionManager(
        topics, events, registry, platform, store, sealing, tasks, warm_up, clock, retry_policy
    )
    filer_clock = FilerClock(store, clock)
    garbage_collector = GarbageCollector(
        topics,
        events,
        registry,
        platform,
        groups,
        store,
        decisions,
        queue,
        tasks,
        clock,
        filer_clock,
        owner,
        cleanup,
        retry_policy,
        [unfinished_uploads],
        has_unfinished_publish,
    )
    file_lists = FileListNamer(
        topics,
        store,
        tasks,
        clock,
        retry_policy,
        check_file_lists_after_us,
        lambda file_list: bool(plan_small_files(file_list, merge.policy)),
    )
    merger = SmallFileMerger(topics, file_lists, store, tasks, clock, retry_policy, merge)
    publishes = PublishCompleter(topics, store, tasks, clock, retry_policy)
    health = HealthMonitor(topics, registry, clock, health_warm_up_us, lambda: filer_clock.problem, tasks.problems)
    liveness_probes = LivenessProbes(registry, brokers, tasks, queue.enqueue, clock)
    for part in (registry, warm_up, groups, liveness_probes):
        pauses.on_pause(part.compensate_pause)
    pauses.on_pause(loop.pause_detected)
    broker_service = BrokerService(
        readiness,
        topics,
        registry,
        assignments,
        effects,
        queue,
        liveness_probes,
        BrokerConnectivity(requests.separate),
        StaleSegments(topics, store, sealing, tasks),
        losses,
        topic_deletions,
        clock,
    )
    topic_service = TopicService(readiness, topics, sync, liveness_probes, store, store_settings)
    group_service = GroupService(
        readiness,
        groups,
        GroupLosses(groups, store),
        GroupChanges(groups, store, clock, retry_policy, reach),
        group_lags,
    )
    recovery = TopicRecovery(
        topics, registry, brokers, assignments, decisions, warm_up, store, retry_policy, clock, owner
    )
    admin_service = AdminService(
        readiness,
        platform,
        topics,
        sync,
        registry,
        decisions,
        requests,
        topic_deletions,
        health,
        queue,
        store,
        tasks.problems,
        clock,
        garbage_collector,
        filer_clock,
        cleanup.max_pin_age_us,
        recovery,
    )
    publish_service = PublishService(
        readiness, topics, publishes, store, clock, retry_policy, cleanup.max_upload_age_us
    )
    return Leader(
        platform,
        readiness,
        clock,
        tasks,
        store,
        registry,
        topics,
        events,
        queue,
        decisions,
        assignments,
        sync,
        effects,
        loop,
        requests,
        groups,
        group_lags,
        topic_deletions,
        filer_clock,
        garbage_collector,
        file_lists,
        merger,
        publishes,
        health,
        LeaderServices(broker_service, topic_service, group_service, publish_service, admin_service),
    )
