"""One member of a consumer group: its heartbeats, its assignment and its commits.

When a segment moves to another member, it first leaves this member's assignment. The member stops reading it at once,
but acknowledges that to the leader only after the program has finished its batch (or committed it). Until then the
leader still accepts the commit, without which the next owner would read those messages again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from smq.lock_order import ClientLock
from smq_core.errors import (
    InvalidRequest,
    PermissionDenied,
    SmqError,
    StaleGeneration,
    Unauthenticated,
    Unavailable,
)
from smq_proto.enums import GROUP_START
from smq_proto.v1 import groups_pb2
from smq_proto.v1.groups_pb2_grpc import GroupsStub
from smq_storage.process.locks import make_lock

log = logging.getLogger(__name__)

FIRST_HEARTBEAT_SECONDS = 1.0
RETRY_AFTER_SECONDS = 0.3
# How often a refused commit joins again. Twice happens when a leader ends after the first time; more shows a fault.
COMMIT_ATTEMPTS = 5

# Takes in the assignment, ``{segment: next offset}``, and its epoch. In another one than before, the group's
# positions were set by an administrator. True: the program still works on a revoked segment.
OnAssignment = Callable[[Mapping[str, int], str], bool]
# The segments of which every message was returned, and their ends, which are not committed.
AwaitedCommits = Callable[[], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit has made durable. What it leaves out belongs to other members, or was read before a reset."""

    positions: dict[str, int]
    losses: dict[str, int]


class GroupMembership:
    """Calls ``on_assignment`` after every heartbeat, in the heartbeat thread (the first time in the constructor).

    The constructor raises the leader's error if the group is refused for good, such as InvalidRequest for its name.
    """

    def __init__(
        self,
        *,
        groups: GroupsStub,
        topic: str,
        group: str,
        start: str | Mapping[str, int],
        on_assignment: OnAssignment,
        awaited_commits: AwaitedCommits,
    ) -> None:
        self._groups = groups
        self._topic = topic
        self._group = group
        self._start = start
        self._on_assignment = on_assignment
        self._awaited_commits = awaited_commits
        self._lock = make_lock()
        # Held from the request to the end of its assignment, so that assignments are applied in their order.
        self._joining = make_lock(ClientLock.JOINING)
        self._member = f"member-{uuid.uuid4().hex[:12]}"
        self._generation = 0
        self._epoch = ""
        self._applied_generation = 0
        self._acknowledged_generation = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self.joined = False
        self.failure: SmqError | None = None
        """Why the leader no longer accepts this member."""
        self._interval_seconds = FIRST_HEARTBEAT_SECONDS
        self._heartbeat()
        if self.failure is not None:
            raise self.failure
        self._thread = threading.Thread(target=self._run, name=f"smq-group-{group}", daemon=True)
        self._thread.start()

    @property
    def applied_generation(self) -> int:
        """That of the last assignment that was taken in as a whole."""
        with self._lock:
            return self._applied_generation

    def acknowledge_revocation(self, generation: int) -> None:
        """Lets the leader assign revoked segments to other members, because the program is done with them.

        They are those that it does not have any more in the assignment of this ``generation``.
        """
        with self._lock:
            changed = self._acknowledged_generation != generation
            self._acknowledged_generation = generation
        if changed:
            self.heartbeat_now()

    @property
    def revocation_pending(self) -> bool:
        """Whether a revoked segment is not acknowledged yet."""
        with self._lock:
            return self._acknowledged_generation != self._applied_generation

    def heartbeat_now(self) -> None:
        """Sends a heartbeat now, without waiting for the interval."""
        self._wake.set()

    def commit(self, positions: Mapping[str, int], losses: Mapping[str, int], epoch: str) -> Committed:
        """Returns what was committed, without the segments that now belong to other members.

        ``losses`` are those that were reported to the program, ``{segment: upto}``; no later member gets them again.
        ``epoch`` is that in which the messages were read. A refused commit joins again: if nobody else has the segments
        (the leader is a new one, or had not heard of this member for long), it is made then. Raises Unavailable.
        """
        uncommitted, reported = dict(positions), dict(losses)
        attempts = 0
        while attempts < COMMIT_ATTEMPTS:
            if not uncommitted and not reported:
                return Committed({}, {})
            with self._lock:
                generation = self._generation
            request = groups_pb2.CommitPositionsRequest(
                topic=self._topic,
                group=self._group,
                member=self._member,
                generation=generation,
                positions=uncommitted,
                known_losses=reported,
                epoch=epoch,
            )
            try:
                self._groups.CommitPositions(request)
                return Committed(uncommitted, reported)
            except StaleGeneration as error:
                log.info("commit refused: %s", error.message)
                refused = set(error.segments)
            assigned = self._join()
            if self._epoch != epoch:
                return Committed({}, {})
            before = len(uncommitted)
            uncommitted = {s: offset for s, offset in uncommitted.items() if s not in refused or s in assigned}
            # An error names a part of many segments. So what leaves some of them out is not one more attempt.
            attempts = attempts + 1 if len(uncommitted) == before else 0
        raise Unavailable(f"the leader refused the commit of group {self._group} {COMMIT_ATTEMPTS} times: commit again")

    @property
    def has_left(self) -> bool:
        """Whether ``leave`` was called. A member that has left does not join again."""
        return self._stop.is_set()

    def leave(self) -> None:
        """Ends the heartbeats and leaves the group. If that call fails, the leader notices the missing heartbeats."""
        self._stop.set()
        self._wake.set()
        self._thread.join(5)
        request = groups_pb2.LeaveGroupRequest(topic=self._topic, group=self._group, member=self._member)
        try:
            self._groups.LeaveGroup(request, timeout=1.0)
        except SmqError as error:
            log.info("could not leave group %s: %s", self._group, error.message)

    def _run(self) -> None:
        while not self._wake.wait(self._interval_seconds) or not self._stop.is_set():
            self._wake.clear()
            self._heartbeat()

    def _heartbeat(self) -> None:
        try:
            self._join(timeout=2.0)
        except (InvalidRequest, PermissionDenied) as error:
            self.failure = error
        except SmqError as error:
            if isinstance(error, Unauthenticated) and not self.joined:
                self.failure = error
                return
            log.info("heartbeat of group %s failed: %s", self._group, error.message)
            self._interval_seconds = RETRY_AFTER_SECONDS
        except Exception:
            log.exception("the assignment of group %s could not be applied", self._group)

    def _join(self, timeout: float | None = None) -> Mapping[str, int]:
        """Sends a heartbeat, and applies the assignment that it brings. Returns that."""
        with self._joining:
            if self.has_left:
                raise InvalidRequest("the consumer is closed")
            with self._lock:
                acknowledged_generation = self._acknowledged_generation
            request = groups_pb2.JoinGroupRequest(
                topic=self._topic,
                group=self._group,
                member=self._member,
                start=GROUP_START.value(self._start if isinstance(self._start, str) else "positions"),
                start_positions=self._start if not isinstance(self._start, str) else {},
                generation=acknowledged_generation,
                ended=self._awaited_commits(),
            )
            reply = self._groups.JoinGroup(request, timeout=timeout)
            self.failure = None
            self._interval_seconds = reply.heartbeat_ms / 1000 or FIRST_HEARTBEAT_SECONDS
            return self._apply_assignment(reply)

    def _apply_assignment(self, reply: groups_pb2.GroupAssignment) -> Mapping[str, int]:
        positions = dict(reply.positions)
        with self._lock:
            generation_changed = reply.generation != self._generation
            self._generation, self._epoch = reply.generation, reply.epoch
        self.joined = True
        still_processing = self._on_assignment(positions, reply.epoch)
        with self._lock:
            self._applied_generation = reply.generation
        if generation_changed and not still_processing:
            self.acknowledge_revocation(reply.generation)
        return positions
