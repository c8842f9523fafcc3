"""One member of a consumer group: heartbeats, what is assigned to it, commits.

A segment that moves to another member goes missing from the assignment first. The member stops reading it at once, but
says so to the leader only when the batch that the program works on is done (or its commit is made): until then the
commit would still be taken, and the next owner would read those messages again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping

from smq.leader import LeaderLink
from smq_core.errors import InvalidRequest, SmqError, StaleGeneration
from smq_proto.v1 import leader_pb2 as lpb

log = logging.getLogger("smq")

FIRST_HEARTBEAT = 1.0
RETRY_AFTER = 0.3

Assigned = Callable[[Mapping[str, int]], bool]
"""Takes in what is assigned now, ``{segment: where to go on}``; True: what went away is not done with."""


class Membership:
    """``on_assignment`` is called after every heartbeat, from its thread (the first time from the maker's).

    Raises what the leader answers when it refuses the group for good, such as InvalidRequest for its name.
    """

    def __init__(self, leader: LeaderLink, topic: str, group: str, start: str, on_assignment: Assigned) -> None:
        self._leader = leader
        self._topic = topic
        self._group = group
        self._start = start
        self._on_assignment = on_assignment
        self._lock = threading.Lock()
        self._member = f"member-{uuid.uuid4().hex[:12]}"
        self._generation = 0
        self._agreed = 0
        self._kick = threading.Event()
        self._stop = threading.Event()
        self.joined = False
        self.failure: SmqError | None = None
        """Why the leader will not have this member any more."""
        self._pause = FIRST_HEARTBEAT
        self._beat()
        if self.failure is not None:
            raise self.failure
        self._thread = threading.Thread(target=self._run, name=f"smq-group-{group}", daemon=True)
        self._thread.start()

    def released(self) -> None:
        """What went away is worked on no more: the leader may give it to another member."""
        with self._lock:
            changed = self._agreed != self._generation
            self._agreed = self._generation
        if changed:
            self.beat()

    @property
    def holding(self) -> bool:
        """Whether something that went away was not released yet."""
        with self._lock:
            return self._agreed != self._generation

    def beat(self) -> None:
        """Sends a heartbeat now: there is news."""
        self._kick.set()

    def commit(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Returns what was committed: without the segments that belong to others by now. Raises Unavailable."""
        left = dict(positions)
        while left:
            with self._lock:
                generation = self._generation
            request = lpb.CommitPositions(
                topic=self._topic, group=self._group, member=self._member, generation=generation, positions=left
            )
            try:
                self._leader.call("Commit", request)
                return left
            except StaleGeneration as error:
                foreign = error.details.get("segments")
                if not isinstance(foreign, list) or not set(foreign) & left.keys():
                    log.info("commit refused: %s", error.message)
                    self.beat()
                    return {}
                left = {s: offset for s, offset in left.items() if s not in foreign}
        return {}

    def leave(self) -> None:
        """Ends the heartbeats and tells the leader; that it does not hear is fine: it finds out by itself."""
        self._stop.set()
        self._kick.set()
        self._thread.join(5)
        request = lpb.LeaveGroup(topic=self._topic, group=self._group, member=self._member)
        try:
            self._leader.call("Leave", request, timeout=1.0)
        except SmqError as error:
            log.info("leaving group %s was not heard: %s", self._group, error.message)

    def _run(self) -> None:
        while not self._kick.wait(self._pause) or not self._stop.is_set():
            self._kick.clear()
            self._beat()

    def _beat(self) -> None:
        with self._lock:
            agreed = self._agreed
        request = lpb.JoinGroup(
            topic=self._topic, group=self._group, member=self._member, start=self._start, generation=agreed
        )
        try:
            reply = self._leader.call("Join", request, timeout=2.0)
            self.failure = None
            self._pause = reply.heartbeat_ms / 1000 or FIRST_HEARTBEAT
            self._take(reply)
        except InvalidRequest as error:
            self.failure = error
        except SmqError as error:
            log.info("group %s: %s", self._group, error.message)
            self._pause = RETRY_AFTER
        except Exception:
            log.exception("the assignment of group %s could not be taken in", self._group)

    def _take(self, reply: lpb.GroupAssignment) -> None:
        with self._lock:
            news = reply.generation != self._generation
            self._generation = reply.generation
        self.joined = True
        unfinished = self._on_assignment(dict(reply.positions))
        if news and not unfinished:
            self.released()
