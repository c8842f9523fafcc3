"""Folding many batches at a time gives what folding them one by one gives, pruning included."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from smq_core.replica import producer_map as module
from smq_core.replica.producer_map import BatchId, ProducerMap

batches = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2)), max_size=300)


@given(before=batches, after=batches, limit=st.sampled_from([3, 8, 1000]))
def test_apply_all_is_apply_in_turn(before: list[tuple[str, int]], after: list[tuple[str, int]], limit: int):
    with patch.object(module, "MAX_PRODUCERS", limit):
        one, many = ProducerMap(), ProducerMap()
        log: list[tuple[BatchId, int]] = []
        epochs: dict[str, int] = {}
        for n, (name, step) in enumerate(before + after):
            epochs[name] = epochs.get(name, 0) + (step == 2)  # epochs never go back: older ones are fenced
            log.append((BatchId(name, epochs[name], n), n))
        for batch, first in log:
            one.apply(batch, first)
        for batch, first in log[: len(before)]:
            many.apply(batch, first)
        many.apply_all(log[len(before) :])
        assert list(many.snapshot().items()) == list(one.snapshot().items())
