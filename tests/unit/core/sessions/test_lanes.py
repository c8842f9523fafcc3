"""Who sends when, and on which lane. Times are seconds from 0."""

import pytest

from smq_core.sessions.lanes import SMALL, LaneTimes, SessionLanes

BULK = 7


@pytest.fixture
def machine() -> SessionLanes:
    made = SessionLanes(LaneTimes(heartbeat_seconds=100.0, hold_seconds=20.0, update_seconds=20.0))
    for lane in (SMALL, BULK):
        made.opening_lane(lane, 0.0)
        made.open_lane(lane, 0.0)
    return made


def opened(machine: SessionLanes) -> int:
    number = machine.add(0.0)
    assert machine.take(SMALL, 0.0) == (number,), "it is opened on the small lane"
    return number


def send(machine: SessionLanes, number: int, lane: int, now: float) -> None:
    assert machine.begin(number, lane, lane, now)
    machine.sent(lane, [number], now)


def test_a_small_frame_waits_for_the_answer_to_the_one_before_but_not_for_ever(machine: SessionLanes) -> None:
    one, two = opened(machine), opened(machine)
    send(machine, one, SMALL, 1.0)
    machine.mark_ready(two, 2.0)
    assert not machine.is_free(0.0, 2.0) and machine.take(SMALL, 20.0) == ()
    assert machine.due(SMALL, 2.0) == 21.0
    assert machine.take(SMALL, 21.0) == (two,)
    machine.mark_ready(two, 22.0)
    machine.on_frame(SMALL, 22.0)
    assert machine.take(SMALL, 22.0) == (two,)


def test_small_frames_are_spaced_although_the_last_one_is_answered(machine: SessionLanes) -> None:
    one = opened(machine)
    send(machine, one, SMALL, 1.0)
    machine.on_frame(SMALL, 2.0)
    machine.mark_ready(one, 2.0)
    assert machine.take(SMALL, 10.9, spacing=10.0) == () and not machine.is_free(10.0, 10.9)
    assert machine.due(SMALL, 2.0, spacing=10.0) == 11.0
    assert machine.take(SMALL, 11.0, spacing=10.0) == (one,)


@pytest.mark.parametrize(("first", "then"), [(SMALL, BULK), (BULK, SMALL)])
def test_a_session_changes_its_lane_when_nothing_of_it_is_unanswered(
    machine: SessionLanes, first: int, then: int
) -> None:
    one = opened(machine)
    send(machine, one, first, 1.0)
    send(machine, one, first, 1.0)
    assert not machine.begin(one, then, then, 2.0), "it would overtake what is on its way"
    assert machine.on_frame(first, 3.0) == set() and not machine.is_ready(then)
    assert machine.on_frame(first, 4.0) == {then}
    assert machine.take(then, 30.0) == (one,)
    assert machine.begin(one, then, then, 30.0)


def test_what_is_bulk_is_handed_to_its_lane_at_once_if_nothing_is_unanswered(machine: SessionLanes) -> None:
    one = opened(machine)
    assert not machine.begin(one, SMALL, BULK, 1.0)
    assert machine.take(BULK, 1.0) == (one,) and machine.lane_of(one) == BULK


def test_sessions_take_turns_on_a_bulk_lane(machine: SessionLanes) -> None:
    one, two = opened(machine), opened(machine)
    for number in (one, two):
        machine.begin(number, SMALL, BULK, 1.0)
    assert machine.take(BULK, 1.0) == (one,)
    machine.mark_ready(one, 1.0)
    assert machine.take(BULK, 1.0) == (two,) and machine.take(BULK, 1.0) == (one,)


def test_the_next_connection_has_other_numbers_and_is_no_answer(machine: SessionLanes) -> None:
    one = opened(machine)
    send(machine, one, SMALL, 1.0)
    machine.clear(5.0)
    assert machine.unanswered_since == 1.0
    machine.opening_lane(SMALL, 6.0)
    assert machine.add(6.0) != one and machine.unanswered_since == 1.0
    machine.open_lane(SMALL, 7.0)
    assert machine.unanswered_since is None


def test_an_unused_bulk_lane_is_closed_although_a_heartbeat_is_unanswered(machine: SessionLanes) -> None:
    one = opened(machine)
    send(machine, one, BULK, 1.0)
    assert not machine.close_if_unused(BULK, 50.0, 10.0), "a batch is unanswered"
    machine.on_frame(BULK, 50.0)
    machine.sent(BULK, (), 60.0)
    assert machine.close_if_unused(BULK, 60.0, 10.0)
    assert machine.lane_of(one) == SMALL
