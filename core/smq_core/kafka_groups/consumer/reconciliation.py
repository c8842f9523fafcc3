"""One step of a member towards its target, as Kafka's coordinator takes it.

A member first gives up what is not in its target, at its former epoch. Then it enters the epoch of the target, with
those of its new partitions that nobody else has. The others come one by one as they are given up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from smq_core.kafka_groups.consumer.member import ConsumerMember, MemberState
from smq_core.kafka_groups.consumer.partitions import Partitions, TopicPartition, by_topic, flat


def reconcile(
    member: ConsumerMember,
    *,
    target: Partitions,
    target_epoch: int,
    holder: Callable[[TopicPartition], str | None],
    owned: Partitions | None,
) -> ConsumerMember:
    """The member after this step, or as it is if it has to wait.

    ``holder`` returns the id of the member that a partition is assigned to, or that has not given it up. ``owned`` is
    what the member says that it uses; None if it does not say it.
    """
    if member.is_reconciled(target_epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if owned is None or owned & flat(member.revoking):
            return member
        epoch += 1
    current = flat(member.assigned)
    kept = current & target
    revoking = current - kept
    if revoking and (owned is None or owned & revoking):
        return _entered(member, epoch, MemberState.UNREVOKED, kept, revoking)
    missing = target - kept
    free = {it for it in missing if holder(it) in (None, member.id)}
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED
    return _entered(member, target_epoch, state, kept | free, frozenset())


def _entered(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> ConsumerMember:
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch if epoch != member.epoch else member.previous_epoch,
        state=state,
        assigned=by_topic(assigned),
        revoking=by_topic(revoking),
    )
