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

from smq.transport.leader_client import LeaderClient
from smq_core.errors import InvalidRequest, SmqError, StaleGeneration
from smq_proto.v1 import leader_pb2 as lpb

log = logging.getLogger(__name__)

FIRST_HEARTBEAT_SECONDS = 1.0
RETRY_AFTER_SECONDS = 0.3

OnAssignment = Callable[[Mapping[str, int]], bool]
"""Takes in the assignment, ``{segment: next offset}``. True: the program still works on a revoked segment."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit has made durable."""

    positions: dict[str, int]
    losses: dict[str, int]


class GroupMembership:
    """Calls ``on_assignment`` after every heartbeat, in the heartbeat thread (the first time in the constructor).

    The constructor raises the leader's error if the group is refused for good, such as InvalidRequest for its name.
    """

    def __init__(
        self,
        leader: LeaderClient,
        topic: str,
        group: str,
        start: str | Mapping[str, int],
        on_assignment: OnAssignment,
    ) -> None:
        self._leader = leader
        self._topic = topic
        self._group = group
        self._start = start
        self._on_assignment = on_assignment
        self._lock = threading.Lock()
        self._member = f"member-{uuid.uuid4().hex[:12]}"
        self._generation = 0
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

    def acknowledge_revocation(self) -> None:
        """Lets the leader assign the revoked segments to other members, because the program is done with them."""
        with self._lock:
            changed = self._acknowledged_generation != self._generation
            self._acknowledged_generation = self._generation
        if changed:
            self.heartbeat_now()

    @property
    def revocation_pending(self) -> bool:
        """Whether a revoked segment is not acknowledged yet."""
        with self._lock:
            return self._acknowledged_generation != self._generation

    def heartbeat_now(self) -> None:
        """Sends a heartbeat now, without waiting for the interval."""
        self._wake.set()

    def commit(self, positions: Mapping[str, int], losses: Mapping[str, int] | None = None) -> Committed:
        """Returns what was committed, without the segments that now belong to other members. Raises Unavailable.

        ``losses`` are those that were reported to the program, ``{segment: upto}``; no later member gets them again.
        """
        uncommitted, reported = dict(positions), dict(losses or {})
        while uncommitted or reported:
            with self._lock:
                generation = self._generation
            request = lpb.CommitPositionsRequest(
                topic=self._topic,
                group=self._group,
                member=self._member,
                generation=generation,
                positions=uncommitted,
                known_losses=reported,
            )
            try:
                self._leader.call("CommitPositions", request)
                return Committed(uncommitted, reported)
            except StaleGeneration as error:
                reassigned = error.segments
                if not set(reassigned) & uncommitted.keys():
                    log.info("commit refused: %s", error.message)
                    self.heartbeat_now()
                    break
                uncommitted = {s: offset for s, offset in uncommitted.items() if s not in reassigned}
        return Committed({}, {})

    def leave(self) -> None:
        """Ends the heartbeats and leaves the group. If that call fails, the leader notices the missing heartbeats."""
        self._stop.set()
        self._wake.set()
        self._thread.join(5)
        request = lpb.LeaveGroupRequest(topic=self._topic, group=self._group, member=self._member)
        try:
            self._leader.call("LeaveGroup", request, timeout=1.0)
        except SmqError as error:
            log.info("could not leave group %s: %s", self._group, error.message)

    def _run(self) -> None:
        while not self._wake.wait(self._interval_seconds) or not self._stop.is_set():
            self._wake.clear()
            self._heartbeat()

    def _heartbeat(self) -> None:
        with self._lock:
            acknowledged_generation = self._acknowledged_generation
        request = lpb.JoinGroupRequest(
            topic=self._topic,
            group=self._group,
            member=self._member,
            start=self._start if isinstance(self._start, str) else "positions",
            start_positions=self._start if not isinstance(self._start, str) else {},
            generation=acknowledged_generation,
        )
        try:
            reply = self._leader.call("JoinGroup", request, timeout=2.0)
            self.failure = None
            self._interval_seconds = reply.heartbeat_ms / 1000 or FIRST_HEARTBEAT_SECONDS
            self._apply_assignment(reply)
        except InvalidRequest as error:
            self.failure = error
        except SmqError as error:
            log.info("heartbeat of group %s failed: %s", self._group, error.message)
            self._interval_seconds = RETRY_AFTER_SECONDS
        except Exception:
            log.exception("the assignment of group %s could not be applied", self._group)

    def _apply_assignment(self, reply: lpb.GroupAssignment) -> None:
        with self._lock:
            generation_changed = reply.generation != self._generation
            self._generation = reply.generation
        self.joined = True
        still_processing = self._on_assignment(dict(reply.positions))
        if generation_changed and not still_processing:
            self.acknowledge_revocation()
