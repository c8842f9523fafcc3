"""Applying many entries at a time gives what applying them one by one gives, also when they forget producers."""

from hypothesis import given
from hypothesis import strategies as st

from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch
from smq_core.replica.producer_map import ProducerMap

names = st.sampled_from("abcdefgh")
batches = st.lists(st.tuples(names, st.integers(0, 2), st.sets(names)), max_size=300)


@given(batches=batches, cut=st.integers(0, 300))
def test_apply_all_is_apply_in_turn(batches: list[tuple[str, int, set[str]]], cut: int):
    log: list[Entry] = []
    epochs: dict[str, int] = {}
    for n, (name, step, forgotten) in enumerate(batches):
        epochs[name] = epochs.get(name, 0) + (step == 2)  # epochs never go back: older ones are fenced
        batch = IncomingBatch(
            id=BatchId(name, epochs[name], n, f"i{epochs[name]}"),
            rows=1,
            nbytes=10,
            partition_min=0,
            partition_max=0,
            payload=None,
        )
        log.append(Entry(first=n, batch=batch, appended=n, forgotten=tuple(sorted(forgotten - {name}))))
    one, many = ProducerMap(), ProducerMap()
    for entry in log:
        one.apply(entry)
    many.apply_all(log[:cut])
    many.apply_all(log[cut:])
    assert list(many.snapshot().items()) == list(one.snapshot().items())
    assert many.forgotten_upto == one.forgotten_upto
