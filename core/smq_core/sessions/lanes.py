"""Which session may send on which lane now. Pure: no clock, IO or thread.

Two processes have one connection. Its small lane carries frames that many sessions share, its bulk lanes carry one
large batch in a frame, so that no small one waits behind it. Each lane keeps its order, two lanes keep none among
them. So a session uses another lane only when nothing of it is unanswered on the one before:

=============  ======================  ====================  =================================
the session's  next batch is small     next batch is bulk    the last unanswered frame is
unanswered                                                   answered
=============  ======================  ====================  =================================
nothing        small lane              bulk lane             --
on small lane  small lane              waits                 takes the lane that it waits for
on bulk lane   waits                   bulk lane             takes the lane that it waits for
=============  ======================  ====================  =================================

A frame on the small lane takes in all sessions that are ready. The next one goes when the last is answered, at most
``hold_seconds`` later, and not before the ``spacing``. A bulk lane gives each ready session one frame in turn, and
holds nothing. All lanes send a heartbeat each second. Frames are answered one by one, in order.

If a lane breaks, the connection has, with all sessions: ``clear``. The shell opens them again under new numbers, so
that nothing of before can be taken for a frame of theirs. What was not answered is then sent again, because the other
side says where each session ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

# The number of the small lane. Bulk lanes have greater ones.
SMALL = 0

# The time at which nothing is due.
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class LaneTimes:
    """All in seconds."""

    heartbeat_seconds: float
    hold_seconds: float
    """How long what is small waits at most for the answer to the last frame."""
    update_seconds: float
    """How long an update waits for a batch that takes it along."""


@dataclass(slots=True)
class _Session:
    lane: int = SMALL
    """Where it has sent last."""
    unanswered: int = 0
    """Its batches on this lane that are not answered."""
    waits_for: int | None = None
    """The lane for which it waits until nothing is unanswered."""


@dataclass(slots=True)
class _Lane:
    heartbeat_at: float
    used_at: float
    """When a session was last ready here."""
    is_open: bool = False
    ready: dict[int, None] = field(default_factory=dict)
    frames: deque[tuple[int, ...]] = field(default_factory=deque)
    """The sessions of each frame that is not answered."""
    sent_at: float = 0.0
    unanswered_since: float | None = None


class SessionLanes:
    """The sessions of one connection. ``now`` is in monotonic seconds; ``spacing`` in seconds."""

    def __init__(self, times: LaneTimes) -> None:
        self._times = times
        self._last_number = 0
        self._sessions: dict[int, _Session] = {}
        self._lanes: dict[int, _Lane] = {}
        self._updates: dict[int, float] = {}
        """Sessions with an update, and when it is sent alone; sorted by that time."""
        self._retries: list[tuple[float, int]] = []
        self._broken_since: float | None = None

    # ---- the connection

    def open_lane(self, lane: int, now: float) -> None:
        """The other side has answered on this lane."""
        state = self._lane(lane, now)
        state.is_open = True
        state.unanswered_since = None
        state.heartbeat_at = now + self._times.heartbeat_seconds
        if lane == SMALL:
            self._broken_since = None

    def opening_lane(self, lane: int, now: float) -> None:
        """The lane is being opened."""
        self._lane(lane, now).unanswered_since = now

    def close_if_unused(self, lane: int, now: float, seconds: float) -> bool:
        """Closes a bulk lane on which no session was ready for that long. False if it is still needed."""
        state = self._lanes.get(lane)
        if state is None or state.ready or any(state.frames) or now - state.used_at < seconds:
            return False
        del self._lanes[lane]
        for session in self._sessions.values():
            session.lane = SMALL if session.lane == lane else session.lane
            session.waits_for = SMALL if session.waits_for == lane else session.waits_for
        return True

    def clear(self, now: float) -> None:
        """The connection has broken, and all sessions with it."""
        self._broken_since = self._broken_since or self.unanswered_since or now
        self._sessions, self._lanes, self._updates, self._retries = {}, {}, {}, []

    @property
    def unanswered_since(self) -> float | None:
        """Since when the other side has answered nothing, although it should; also over a new connection."""
        times = [it.unanswered_since for it in list(self._lanes.values())]
        return min((it for it in (*times, self._broken_since) if it is not None), default=None)

    # ---- sessions

    def add(self, now: float) -> int:
        """A new session, which is opened on the small lane. Returns its number."""
        self._last_number += 1
        self._sessions[self._last_number] = _Session()
        self._lane(SMALL, now).ready[self._last_number] = None
        return self._last_number

    def remove(self, number: int) -> None:
        self._sessions.pop(number, None)
        self._updates.pop(number, None)
        for lane in self._lanes.values():
            lane.ready.pop(number, None)

    def fail(self, number: int, retry_at: float) -> None:
        """The other side has ended the session. It is opened again later, as another one: see ``take_retries``."""
        self.remove(number)
        heapq.heappush(self._retries, (retry_at, number))

    def take_retries(self, now: float) -> list[int]:
        """The former numbers of sessions that are to be added again now."""
        due = []
        while self._retries and self._retries[0][0] <= now:
            due.append(heapq.heappop(self._retries)[1])
        return due

    def lane_of(self, number: int) -> int:
        """Where the session has sent last."""
        session = self._sessions.get(number)
        return session.lane if session is not None else SMALL

    def mark_ready(self, number: int, now: float) -> int | None:
        """The session may have a batch. Returns the lane that should look; None if none does."""
        session = self._sessions.get(number)
        if session is None:
            return None
        self._make_ready(session.lane, number, now)
        return session.lane

    def mark_updated(self, number: int, now: float) -> bool:
        """The session has an update, which its next batch takes along. True if none had been noted."""
        if number in self._updates or number not in self._sessions:
            return False
        self._updates[number] = now + self._times.update_seconds
        return True

    # ---- sending

    def is_free(self, spacing: float, now: float) -> bool:
        """Whether a small frame can go at once, and the transport has room for it."""
        small = self._lanes.get(SMALL)
        return small is not None and small.is_open and not small.frames and now >= small.sent_at + spacing

    def take(self, lane: int, now: float, spacing: float = 0.0) -> tuple[int, ...]:
        """The sessions that may send on this lane now, in this order. They are no longer ready."""
        state = self._lanes.get(lane)
        if state is None or not state.is_open:
            return ()
        if lane == SMALL:
            self._ready_updates(state, now)
            taken = () if now < self.held_until(lane, now, spacing) else tuple(state.ready)
        else:
            taken = tuple(islice(state.ready, 1))
            state.used_at = now if taken else state.used_at
        for number in taken:
            del state.ready[number]
            self._updates.pop(number, None)
        return taken

    def take_heartbeat(self, lane: int, now: float) -> bool:
        """Whether a heartbeat is due on this lane. The next one is due a second later."""
        state = self._lanes.get(lane)
        if state is None or not state.is_open or now < state.heartbeat_at:
            return False
        state.heartbeat_at = now + self._times.heartbeat_seconds
        return True

    def begin(self, number: int, lane: int, wanted: int, now: float) -> bool:
        """Whether the session may send its next batch, which belongs on ``wanted``, on this lane now.

        If not, it is ready on ``wanted``, at once or when its last batch is answered.
        """
        session = self._sessions.get(number)
        if session is None:
            return False
        if session.unanswered and session.lane != wanted:
            session.waits_for = wanted
            return False
        session.lane, session.waits_for = wanted, None
        if wanted != lane:
            self._make_ready(wanted, number, now)
            return False
        session.unanswered += 1
        return True

    def sent(self, lane: int, numbers: Iterable[int], now: float) -> None:
        """A frame goes out with a batch of each of these sessions, which have begun it."""
        state = self._lanes.get(lane)
        if state is None:
            return  # the connection has broken
        if not state.frames:
            state.unanswered_since = now
        state.frames.append(tuple(numbers))
        state.sent_at = now

    def on_frame(self, lane: int, now: float) -> set[int]:
        """The oldest frame on this lane is answered. Returns the lanes on which a session is ready by that."""
        state = self._lanes.get(lane)
        if state is None or not state.frames:
            return set()
        numbers = state.frames.popleft()
        state.unanswered_since = now if state.frames else None
        ready = set()
        for number in numbers:
            session = self._sessions.get(number)
            if session is None:
                continue
            session.unanswered -= 1
            if not session.unanswered and session.waits_for is not None:
                ready.add(session.waits_for)
                self._make_ready(session.waits_for, number, now)
                session.lane, session.waits_for = session.waits_for, None
        return ready

    def held_until(self, lane: int, now: float, spacing: float = 0.0) -> float:
        """Until when what is ready on this lane waits, if the lane is open."""
        small = self._lanes.get(lane)
        if lane != SMALL or small is None:
            return now
        spaced_until = small.sent_at + spacing
        if now < spaced_until or not small.frames:
            return spaced_until
        return small.sent_at + self._times.hold_seconds

    def is_ready(self, lane: int) -> bool:
        state = self._lanes.get(lane)
        return state is not None and bool(state.ready)

    def due(self, lane: int, now: float, spacing: float = 0.0) -> float:
        """When the lane has to look again, unless something else happens before."""
        state = self._lanes.get(lane)
        if state is None or not state.is_open:
            return NEVER
        due = state.heartbeat_at
        if state.ready:
            due = min(due, self.held_until(lane, now, spacing))
        if lane != SMALL:
            return due
        if self._updates:
            due = min(due, next(iter(self._updates.values())))
        return min(due, self._retries[0][0]) if self._retries else due

    # ---- internal

    def _lane(self, lane: int, now: float) -> _Lane:
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(now + self._times.heartbeat_seconds, now)
        return self._lanes[lane]

    def _make_ready(self, lane: int, number: int, now: float) -> None:
        self._lane(lane, now).ready[number] = None

    def _ready_updates(self, small: _Lane, now: float) -> None:
        """All of them as soon as one is due, so that they share a frame."""
        if self._updates and next(iter(self._updates.values())) <= now:
            small.ready.update(dict.fromkeys(self._updates))
            self._updates = {}
