"""After a burst memory is given back once, when the broker was calm for a whole period; never amid the traffic."""

from collections.abc import Callable

from smq_broker.calm import LITTLE, PERIOD, Calm


def given_back(came_in: Callable[[float], float], seconds: float) -> list[float]:
    now = 0.0
    calm, found = Calm(lambda: int(came_in(now))), []
    while now < seconds:
        if calm.look(now):
            found.append(now)
        now += 0.5
    return found


def test_once_after_a_burst_and_a_calm_period():
    first, second = 0.5 * PERIOD, 5.5 * PERIOD

    def bursts(now: float) -> float:
        return LITTLE * ((now > first) + (now > second))

    found = given_back(bursts, 10 * PERIOD)
    assert len(found) == 2
    assert all(PERIOD <= at - burst <= 2 * PERIOD for at, burst in zip(found, (first, second), strict=True))


def test_never_amid_traffic_and_never_where_there_was_none():
    assert given_back(lambda now: LITTLE * now / PERIOD * 1.1, 5 * PERIOD) == []
    assert given_back(lambda now: 0, 5 * PERIOD) == []


def test_a_trickle_is_calm():
    assert len(given_back(lambda now: LITTLE * (now > 1) + LITTLE * now / PERIOD * 0.9, 5 * PERIOD)) == 1
