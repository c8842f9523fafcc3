"""The logs of former incarnations, which this process holds until they are sealed or nobody needs them any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from smq_broker.journal.folder import FormerIncarnation
from smq_broker.journal.journal_files import segment_folder
from smq_broker.journal.segment_journal import remove_folder
from smq_broker.recovery.recovered_segment import RecoveredSegment
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import NotHosted, SmqError
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.wire import segment_from_pb, topic_from_pb
from smq_storage.catalog.layouts import read_layout
from smq_storage.catalog.topics import read_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.process.locks import make_lock
from smq_storage.thread_runtime import monotonic, sleep

POLL_SECONDS = 1.0
CHECK_SECONDS = 10.0
# How long a former incarnation whose journal is whole is reported after its last log, if it had any.
WITHOUT_LOGS_SECONDS = 600.0

log = structlog.get_logger(__name__)

# Incarnation, uid of the topic, segment.
Key = tuple[str, str, str]


@dataclass(slots=True)
class _UnsealedLog:
    segment: RecoveredSegment
    former: FormerIncarnation
    checked_at: float = float("-inf")


class RecoveredLogs:
    """Safe from many threads. ``on_change`` is called when the leader should get a report soon."""

    def __init__(
        self, formers: Iterable[FormerIncarnation], store: Store, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._on_change = on_change
        self._lock = make_lock()
        self._held: dict[Key, _UnsealedLog] = {}
        self._sealed: dict[Key, RecoveredSegment] = {}
        """They answer repeated requests, and say what was acked beyond their end."""
        self._formers = {former.incarnation: former for former in formers}
        for former in self._formers.values():
            self._add(former, clock)
        self._reported = {name for name, former in self._formers.items() if former.whole}
        """The former incarnations with whole journals, which say what these did not host."""
        self._without_logs_since: dict[str, float] = {}

    def start(self, threads: ThreadSupervisor) -> None:
        """Raises Unavailable if the system starts no more threads."""
        if self._held or self._reported:
            threads.start(Task(kind="recovered-logs", run=self._run, endless=True))

    def incarnations(self) -> list[str]:
        """The former incarnations in whose place this process answers the leader: those of which a log is not sealed.

        A segment may have been planned on an incarnation that never opened it. So those with whole journals are listed
        for some time without logs, to prove it.
        """
        unsealed = {incarnation for incarnation, _, _ in self._unsealed()}
        with self._lock:
            return sorted(unsealed | self._reported)

    def unsealed(self) -> list[HostedSegment]:
        return list(self._unsealed().values())

    def acked_beyond_end(self) -> list[HostedSegment]:
        """The sealed ones of which only this process knows that more messages were acked than the seal chunk says."""
        with self._lock:
            found = [*self._sealed.values(), *(held.segment for held in self._held.values())]
        return [segment for segment in found if segment.acked_beyond_end]

    def waiting(self) -> list[str]:
        """The segments that this process can seal by itself, because their logs are complete."""
        return [segment.name for segment in self._unsealed().values() if segment.complete]

    def seal_complete(self, start: Callable[[HostedSegment], object]) -> None:
        """Passes each unsealed segment to ``start`` that needs no leader's consent. Those that fail are tried again."""
        for segment in self._unsealed().values():
            try:
                segment.check_complete()
                start(segment)
            except SmqError as error:
                segment.log.warning("journal.not_sealed", error=error.message)

    def holds(self, incarnation: str) -> bool:
        """Whether this process found the journal of that incarnation when it started."""
        return incarnation in self._formers

    def find(self, incarnation: str, uid: str, segment: str) -> RecoveredSegment:
        """Raises NotHosted: this process has nothing of that segment and never will.

        In a whole journal that is certain: the incarnation never hosted the segment, or the segment is sealed.
        """
        key = incarnation, uid, segment
        with self._lock:
            found = self._held[key].segment if key in self._held else self._sealed.get(key)
        if found is None:
            whole = self._formers[incarnation].whole
            raise NotHosted(
                f"the journal of {incarnation} has nothing of {segment}" + ("" if whole else ", and may be incomplete"),
                segment=segment,
                certain=whole,
            )
        return found

    def poll(self) -> None:
        """Drops logs that are sealed, and those of segments that are gone. The seal watcher finds seal chunks.

        Incarnations without logs follow later.
        """
        self.drop_sealed()
        now = monotonic()
        with self._lock:
            held = list(self._held.items())
        for key, it in held:
            if now - it.checked_at >= CHECK_SECONDS:
                it.checked_at = now
                try:
                    reason = self._gone_reason(it)
                except SmqError as error:
                    it.segment.log.warning("journal.check_failed", error=error.message)
                    continue
                if reason is not None:
                    self._drop(key, it, reason)
        self._drop_without_logs(now)

    def drop_sealed(self) -> None:
        """Deletes the logs of which the seal chunk was found."""
        with self._lock:
            held = list(self._held.items())
        for key, it in held:
            if it.segment.machine.state is ReplicaState.SEALED:
                self._drop(key, it, "it is sealed")

    def _run(self) -> None:
        while True:
            self.poll()
            sleep(POLL_SECONDS)

    def _unsealed(self) -> dict[Key, RecoveredSegment]:
        with self._lock:
            held = list(self._held.items())
        return {key: it.segment for key, it in held if it.segment.machine.state is not ReplicaState.SEALED}

    def _add(self, former: FormerIncarnation, clock: Clock) -> None:
        for recovered in former.logs:
            try:
                topic, segment = topic_from_pb(recovered.opened.topic), segment_from_pb(recovered.opened.segment)
            except (ValueError, SmqError) as error:
                log.error("journal.unusable", folder=str(recovered.folder), error=str(error))
                former.whole = False
                continue
            chain = ChunkChain(self._store, topic.name, topic.uid, segment.name)
            hosted = RecoveredSegment(
                incarnation=former.incarnation, topic=topic, segment=segment, log=recovered, chain=chain, clock=clock
            )
            self._held[former.incarnation, topic.uid, segment.name] = _UnsealedLog(hosted, former)
            report = hosted.log.info if recovered.complete else hosted.log.warning
            report(
                "journal.recovered",
                incarnation=former.incarnation,
                first=recovered.first,
                end=recovered.end,
                bytes=recovered.size,
                problem=recovered.problem,
            )

    def _gone_reason(self, held: _UnsealedLog) -> str | None:
        """Why nobody needs this log any more, or None. A seal chunk may be gone with the segment's other files."""
        topic, segment = held.segment.topic, held.segment.segment
        found = read_layout(self._store, topic.name, topic.uid)
        if found is not None:
            layout = found[0]
            named = any(it.name == segment.name for it in layout.segments)
            return "no layout has it any more" if layout.next_number > segment.number and not named else None
        if held.former.same_root and read_topic(self._store, topic.name, topic.uid) is None:
            return "its topic was deleted"
        return None

    def _drop(self, key: Key, held: _UnsealedLog, reason: str) -> None:
        segment = held.segment
        with self._lock:
            if self._held.pop(key, None) is None:
                return  # another thread dropped it
            if segment.machine.state is ReplicaState.SEALED:
                self._sealed[key] = segment
            is_last = all(it.former is not held.former for it in self._held.values())
        segment.log.info("journal.dropped", incarnation=segment.incarnation, reason=reason)
        segment.release()
        try:
            if is_last and not held.former.whole:
                held.former.remove()
            else:
                remove_folder(segment_folder(held.former.folder, segment.topic.uid, segment.name))
        except OSError as error:
            segment.log.warning("journal.remove_failed", error=str(error))
        self._on_change()

    def _drop_without_logs(self, now: float) -> None:
        """Deletes the journals whose last log was dropped long enough ago, and reports them no more."""
        expired = []
        with self._lock:
            with_logs = {incarnation for incarnation, _, _ in self._held}
            for incarnation in self._reported - with_logs:
                if now - self._without_logs_since.setdefault(incarnation, now) >= WITHOUT_LOGS_SECONDS:
                    self._reported.remove(incarnation)
                    expired.append(self._formers[incarnation])
        for former in expired:
            former.remove()
        if expired:
            self._on_change()
