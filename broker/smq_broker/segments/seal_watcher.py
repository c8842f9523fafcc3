"""Reads seal chunks that others wrote for segments that are hosted here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import SimpleQueue

from smq_broker.runtime.pauses import PauseCounter
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError
from smq_core.model.chunk_info import ChunkInfo
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.chunks.chain import ChunkChain
from smq_storage.thread_runtime import make_queue, monotonic, sleep

MAX_SUSPENDED_POLL_SECONDS = 0.5
CHECK_SECONDS = 0.1
INITIAL_CHECK_PAUSE_SECONDS = 0.1
MAX_CHECK_PAUSE_SECONDS = 5.0
CHECK_THREADS = 2


class ChainEnd:
    """Follows a growing chain, with one GET at its end per call."""

    def __init__(self, chain: ChunkChain, start: int | None = None) -> None:
        self._chain = chain
        self._start = start
        self._at: int | None = None

    def sealed(self) -> ChunkInfo | None:
        """The seal chunk, or None if there is none yet. Raises StoreUnavailable, CorruptChunk."""
        if self._at is None:
            self._at = self._chain.latest_hint() if self._start is None else self._start
        for info in self._chain.walk(self._at):
            if info.sealed:
                return info
            self._at = info.end
        return None


class SealWatcher:
    """Reads from the filer whether another process sealed a segment, if there is a reason to suspect it.

    Suspects are followers that lost their primary, segments that the leader does not assign to this incarnation, and
    fenced ones, which another replica may seal. After a pause of this process they are all segments of which it is the
    primary, and those ack nothing before they were checked.
    ``on_seal_found`` is called with the seal chunk.
    """

    def __init__(
        self,
        hosted: Callable[[], Iterable[HostedSegment]],
        pauses: PauseCounter,
        threads: ThreadSupervisor,
        on_seal_found: Callable[[HostedSegment, ChunkInfo], None],
    ) -> None:
        self._hosted = hosted
        self._pauses = pauses
        self._on_seal_found = on_seal_found
        self._threads = threads
        self._queue: SimpleQueue[HostedSegment] = make_queue()
        self._unassigned: frozenset[str] = frozenset()
        self._checks: dict[str, _CheckSchedule] = {}

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        checkers = [
            Task(kind="seal-check", run=self._work, subject=str(number), endless=True)
            for number in range(CHECK_THREADS)
        ]
        self._threads.start_all([*checkers, Task(kind="seal-watcher", run=self._run, endless=True)])

    def enqueue(self, hosted: HostedSegment) -> None:
        self._queue.put(hosted)

    def set_assigned_segments(self, names: Iterable[str]) -> None:
        """The layouts assign these segments to this incarnation; any other hosted one may have been sealed."""
        assigned = set(names)
        self._unassigned = frozenset(hosted.key for hosted in self._hosted() if hosted.name not in assigned)

    def _run(self) -> None:
        while True:
            sleep(CHECK_SECONDS)
            self.poll(monotonic())

    def poll(self, now: float) -> None:
        """Queues the suspects whose check is due at ``now``, in seconds of a monotonic clock."""
        self._pauses.read()
        for hosted in self._hosted():
            state = hosted.machine.state
            if state is ReplicaState.SEALED:  # most of them, after many changes
                if self._checks:
                    self._checks.pop(hosted.key, None)
                continue
            fenced, acks_wait = state is ReplicaState.FENCED, hosted.awaits_seal_check
            suspect = fenced or acks_wait or hosted.key in self._unassigned or hosted.primary_lost
            if not suspect:
                self._checks.pop(hosted.key, None)
                continue
            # A fenced segment is usually sealed at once, by this broker.
            first_check_at = now + INITIAL_CHECK_PAUSE_SECONDS if fenced else now
            schedule = self._checks.setdefault(hosted.key, _CheckSchedule(first_check_at))
            if now >= schedule.due_at:
                schedule.due_at = now + schedule.pause
                schedule.pause = min(
                    schedule.pause * 2, MAX_SUSPENDED_POLL_SECONDS if acks_wait else MAX_CHECK_PAUSE_SECONDS
                )
                self.enqueue(hosted)

    def _work(self) -> None:
        while True:
            self.check_next()

    def check_next(self) -> None:
        """Waits for the next suspect in the queue and reads whether it is sealed. ``poll`` repeats a failed check."""
        hosted = self._queue.get()
        try:
            pauses = self._pauses.read()
            info = ChainEnd(hosted.chain, hosted.chain_hint()).sealed()
            if info is not None:
                self._on_seal_found(hosted, info)
            elif hosted.awaits_seal_check:
                hosted.confirm_unsealed(pauses)
        except SmqError as error:
            hosted.log.warning("seal_watcher.check_failed", error=error.message)
        except Exception:
            about = {"segment": hosted.name, "topic": hosted.topic.name}
            self._threads.record_failure("seal-check", "seal_watcher.check_failed", **about)


@dataclass(slots=True)
class _CheckSchedule:
    """When a suspect is checked next, and how long the pause after that is. Seconds."""

    due_at: float
    pause: float = INITIAL_CHECK_PAUSE_SECONDS
