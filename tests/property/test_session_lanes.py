"""Sessions on the lanes of a connection, every event in any order: what must hold after each step."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from smq_core.sessions.lanes import SMALL, LaneTimes, SessionLanes

TIMES = LaneTimes(heartbeat_seconds=1.0, hold_seconds=0.02, update_seconds=0.03)
BULK = 5
LANES = (SMALL, BULK)
SPACING = 0.01
SEGMENTS = (0, 1, 2)
# What a session has to send: (its offset, whether it is bulk).
Batch = tuple[int, bool]


class TwoProcesses(RuleBasedStateMachine):
    """The lanes are two queues of frames, which the other side reads at any time, in any order between the lanes.

    The other side appends a batch only at a session's end, as a follower does, and says after a break where it ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.machine = SessionLanes(TIMES)
        self.logs: dict[int, list[Batch]] = {segment: [] for segment in SEGMENTS}
        self.sent: dict[int, int] = {}
        """How much of each log was sent on this connection."""
        self.ends: dict[int, int] = dict.fromkeys(SEGMENTS, 0)
        """What the other side has."""
        self.numbers: dict[int, int] = {}
        self.used: set[int] = set()
        self.frames: dict[int, deque[list[tuple[int, Batch]]]] = {}
        self.answers: dict[int, deque[list[tuple[int, Batch]]]] = {}
        self._connect()

    def _connect(self) -> None:
        self.frames = {lane: deque() for lane in LANES}
        self.answers = {lane: deque() for lane in LANES}
        self.sent = dict(self.ends)
        self.last_small = 0.0
        for lane in LANES:
            self.machine.opening_lane(lane, self.now)
            self.machine.open_lane(lane, self.now)
        for segment in SEGMENTS:
            number = self.machine.add(self.now)
            assert number not in self.used, "a number is used once"
            self.used.add(number)
            self.numbers[segment] = number

    def _segment(self, number: int) -> int:
        (segment,) = (segment for segment, its in self.numbers.items() if its == number)
        return segment

    @rule(segment=st.sampled_from(SEGMENTS), bulk=st.booleans())
    def append(self, segment: int, bulk: bool) -> None:
        log = self.logs[segment]
        log.append((len(log), bulk))
        assert self.machine.mark_ready(self.numbers[segment], self.now) in LANES

    @rule(segment=st.sampled_from(SEGMENTS))
    def update(self, segment: int) -> None:
        self.machine.mark_updated(self.numbers[segment], self.now)

    @rule(lane=st.sampled_from(LANES), milliseconds=st.sampled_from([0, 3, 11, 21, 1000]))
    def poll(self, lane: int, milliseconds: int) -> None:
        self.now += milliseconds / 1000
        is_free = self.machine.is_free(SPACING, self.now)
        due = self.machine.due(lane, self.now, SPACING)
        taken = self.machine.take(lane, self.now, SPACING)
        beats = self.machine.take_heartbeat(lane, self.now)
        assert due <= self.now or not (taken or beats), "nothing is sent before it is due"
        if lane == SMALL and taken:
            assert self.now >= self.last_small + SPACING, "frames are spaced"
            assert is_free or self.now >= self.last_small + TIMES.hold_seconds, "a frame waits for the answer"
        assert lane == SMALL or len(taken) <= 1, "bulk lanes give one frame in turn"
        frame = []
        for number in taken:
            segment = self._segment(number)
            pending = self.logs[segment][self.sent[segment] :]
            if not pending:
                continue
            batch = pending[0]
            if self.machine.begin(number, lane, BULK if batch[1] else SMALL, self.now):
                assert batch[1] == (lane == BULK), "each batch is on its lane"
                self.sent[segment] += 1
                frame.append((number, batch))
                self.machine.mark_ready(number, self.now)
        if frame or beats:
            self.machine.sent(lane, [number for number, _ in frame], self.now)
            self.frames[lane].append(frame)
            self.last_small = self.now if lane == SMALL else self.last_small

    @precondition(lambda self: any(self.frames.values()))
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from([lane for lane in LANES if self.frames[lane]]))
        self._receive(lane)

    def _receive(self, lane: int) -> None:
        frame = self.frames[lane].popleft()
        for number, batch in frame:
            segment = self._segment(number)
            assert batch[0] == self.ends[segment], "batches of a session arrive in order, once"
            self.ends[segment] += 1
        self.answers[lane].append(frame)

    @precondition(lambda self: any(self.answers.values()))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from([lane for lane in LANES if self.answers[lane]]))
        self.answers[lane].popleft()
        assert self.machine.on_frame(lane, self.now) <= set(LANES)

    @precondition(lambda self: any(self.frames.values()))
    @rule(really=st.sampled_from([False, False, True]))
    def break_connection(self, really: bool) -> None:
        """What was not received is lost, and what was not answered may have been received."""
        if not really:
            return
        self.machine.clear(self.now)
        assert self.machine.unanswered_since is not None
        self._connect()

    @precondition(lambda self: any(self.frames.values()))
    @rule(segment=st.sampled_from(SEGMENTS), really=st.sampled_from([False, False, True]))
    def fail(self, segment: int, really: bool) -> None:
        """The other side drops what it has not received of the session. It is opened again at once."""
        if not really:
            return
        before = self.numbers.pop(segment)
        self.machine.fail(before, self.now)
        for lane in LANES:
            for frames in (self.frames, self.answers):
                frames[lane] = deque([it for it in frame if it[0] != before] for frame in frames[lane])
        assert self.machine.take_retries(self.now) == [before]
        self.numbers[segment] = self.machine.add(self.now)
        assert self.numbers[segment] not in self.used, "a number is used once"
        self.used.add(self.numbers[segment])
        self.sent[segment] = self.ends[segment]

    @rule()
    def leave_the_bulk_lane_unused(self) -> None:
        busy = any(self.frames[BULK]) or any(self.answers[BULK]) or self.machine.is_ready(BULK)
        if self.machine.close_if_unused(BULK, self.now, 0.0):
            assert not busy, "a lane that is needed stays"
            self.frames[BULK].clear()
            self.answers[BULK].clear()
            self.machine.opening_lane(BULK, self.now)
            self.machine.open_lane(BULK, self.now)

    @invariant()
    def everything_is_sent_at_last(self) -> None:
        """Whoever waits is ready, or becomes it when a frame is answered."""
        for segment, number in self.numbers.items():
            session = self.machine._sessions[number]
            if self.sent[segment] < len(self.logs[segment]):
                ready = any(number in lane.ready for lane in self.machine._lanes.values())
                assert ready or (session.waits_for is not None and session.unanswered), "a batch is forgotten"

    @invariant()
    def silence_is_noticed(self) -> None:
        waits = any(self.frames.values()) or any(self.answers.values())
        assert (self.machine.unanswered_since is not None) == waits

    def teardown(self) -> None:
        for _ in range(200):
            for lane in LANES:
                self.poll(lane, 30)
                while self.frames[lane]:
                    self._receive(lane)
                while self.answers[lane]:
                    self.answers[lane].popleft()
                    self.machine.on_frame(lane, self.now)
        assert self.ends == {segment: len(log) for segment, log in self.logs.items()}, "nothing is lost"


TwoProcesses.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
test_sessions_on_the_lanes_of_a_connection = TwoProcesses.TestCase
