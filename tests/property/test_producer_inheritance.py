"""What a successor inherits does not depend on the order or the grouping of its predecessors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.chunk_info import CONFLICTING_INSTANCES, ProducerState
from smq_core.replica.producer_inheritance import inherited_producers

instances = st.sampled_from(["", "i", "j", "k", CONFLICTING_INSTANCES])
states = st.builds(
    lambda epoch, last, instance, appended: ProducerState(
        epoch=epoch, last_sequence=last, recent=tuple(range(last + 1)), instance=instance, appended=appended
    ),
    st.integers(0, 2),
    st.integers(-1, 3),
    instances,
    st.integers(0, 3),
)
predecessors = st.lists(st.dictionaries(st.sampled_from("abc"), states, max_size=3), max_size=4)


@given(predecessors, st.randoms(use_true_random=False))
def test_the_order_of_the_predecessors_does_not_matter(all_of: list[dict[str, ProducerState]], random) -> None:
    shuffled = random.sample(all_of, len(all_of))
    assert list(inherited_producers(shuffled).items()) == list(inherited_producers(all_of).items())


@given(predecessors, st.integers(0, 4))
def test_a_merge_of_merges_is_a_merge_of_all(all_of: list[dict[str, ProducerState]], cut: int) -> None:
    """A segment that ends empty passes on what it inherited."""
    first, second = inherited_producers(all_of[:cut]), inherited_producers(all_of[cut:])
    assert inherited_producers([first, second]) == inherited_producers(all_of)
    assert inherited_producers([first, first, second]) == inherited_producers(all_of), "or has been read on two ways"


@given(predecessors)
def test_the_highest_epoch_counts_and_two_instances_of_it_exclude_each_other(
    all_of: list[dict[str, ProducerState]],
) -> None:
    found = inherited_producers(all_of)
    for name in {name for producers in all_of for name in producers}:
        known = [producers[name] for producers in all_of if name in producers]
        epoch = max(state.epoch for state in known)
        used = {state.instance for state in known if state.epoch == epoch} - {""}
        instance = CONFLICTING_INSTANCES if len(used) > 1 else "".join(used)
        assert found[name] == ProducerState(
            epoch=epoch, last_sequence=-1, recent=(), instance=instance, appended=max(state.appended for state in known)
        )
