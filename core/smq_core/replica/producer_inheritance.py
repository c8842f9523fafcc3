"""What a successor takes over from its predecessors' producers: who may write, and in which epoch.

Sequences begin at 0 in every segment, so a predecessor's sequences only resolve batches that were sent to it. Epochs
and instances go on: a producer of an older epoch, or another instance of the same epoch, stays fenced.
"""

from __future__ import annotations

from collections.abc import Iterable

from smq_core.model.chunk_info import CONFLICTING_INSTANCES, Producers, ProducerState, are_different_instances


def inherited_producers(predecessors: Iterable[Producers]) -> dict[str, ProducerState]:
    """The highest epoch of each producer with its instance, in the order of the producers' last batches.

    If predecessors have one epoch with different instances, two processes wrote with the same id and epoch. Neither
    may continue, because their sequences cannot be told apart.
    """
    found: dict[str, ProducerState] = {}
    for producers in predecessors:
        for name, state in producers.items():
            other = found.get(name)
            found[name] = _fence_of(state) if other is None else _merged(other, state)
    return dict(sorted(found.items(), key=lambda item: (item[1].appended, item[0])))


def _fence_of(state: ProducerState) -> ProducerState:
    return ProducerState(
        epoch=state.epoch, last_sequence=-1, recent=(), instance=state.instance, appended=state.appended
    )


def _merged(a: ProducerState, b: ProducerState) -> ProducerState:
    appended = max(a.appended, b.appended)
    if a.epoch != b.epoch:
        newer = a if a.epoch > b.epoch else b
        return ProducerState(epoch=newer.epoch, last_sequence=-1, recent=(), instance=newer.instance, appended=appended)
    if are_different_instances(a.instance, b.instance):
        return ProducerState(
            epoch=a.epoch, last_sequence=-1, recent=(), instance=CONFLICTING_INSTANCES, appended=appended
        )
    return ProducerState(
        epoch=a.epoch, last_sequence=-1, recent=(), instance=a.instance or b.instance, appended=appended
    )
