from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smq_core.scaling.broker_pools import BrokerPool, distribute_brokers

A, B = BrokerPool("a", 2, 1, 10), BrokerPool("b", 2, 2, 4)


def test_one_pool_follows_within_its_bounds() -> None:
    assert distribute_brokers([A], 5) == {"a": 5}
    assert distribute_brokers([A], 50) == {"a": 10}
    assert distribute_brokers([A], 0) == {"a": 1}


def test_the_least_filled_grows_and_the_named_one_shrinks() -> None:
    assert distribute_brokers([A, B], 6) == {"a": 4, "b": 2}
    assert distribute_brokers([A, B], 3, shrink_first="a") == {"a": 1, "b": 2}
    assert distribute_brokers([BrokerPool("a", 3, 1, 10), BrokerPool("b", 4, 2, 4)], 6) == {"a": 3, "b": 3}
    assert distribute_brokers([BrokerPool("a", 3, 1, 10), BrokerPool("b", 4, 2, 4)], 6, shrink_first="a") == {
        "a": 2,
        "b": 4,
    }


def test_one_at_its_minimum_does_not_shrink_though_it_is_named() -> None:
    assert distribute_brokers([A, B], 3, shrink_first="b") == {"a": 1, "b": 2}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    st.integers(0, 60),
)
def test_bounds_hold_and_the_sum_is_met_where_it_can_be(numbers: list[tuple[int, int, int]], count: int) -> None:
    pools = [
        BrokerPool(str(i), desired_count, least, least + more) for i, (desired_count, least, more) in enumerate(numbers)
    ]
    found = distribute_brokers(pools, count)
    assert all(pool.minimum <= found[pool.name] <= pool.maximum for pool in pools)
    low, high = sum(p.minimum for p in pools), sum(p.maximum for p in pools)
    assert sum(found.values()) == min(max(count, low), high)
