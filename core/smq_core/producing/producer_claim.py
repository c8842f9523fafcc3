"""Which process may write with a producer id that the user chose, and in which epoch.

A process claims its id once, at its start, by compare-and-swap of one document in the filer. A process that starts
again has a new instance nonce, and brokers see only their own segments. So only this document tells two processes of
one id apart before both have written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from smq_core.access.producer_ids import ANYBODY, Claimant, denial
from smq_core.errors import ProducerFenced
from smq_core.model.entities import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerClaim:
    """The last claim of a producer id. ``instance`` is the nonce of the process that made it.

    ``identity`` is the first one that claimed the id in a release with security, and stays.
    """

    producer: str
    epoch: int
    instance: str
    claimed_at: Micros = 0
    identity: str = ""


def claim_producer(
    last: ProducerClaim | None,
    producer: str,
    instance: str,
    epoch: int | None,
    now: Micros,
    claimant: Claimant = ANYBODY,
) -> ProducerClaim:
    """The claim to write in place of ``last``; ``last`` itself if this instance has claimed already.

    Without an epoch the process takes the last one + 1, which fences the process that has the last one. Raises
    PermissionDenied if another identity made the id, and ProducerFenced if the epoch was claimed by another process,
    or is below the last one.
    """
    claim = ProducerClaim(
        producer=producer, epoch=epoch or 0, instance=instance, claimed_at=now, identity=claimant.identity
    )
    if last is None:
        return claim
    if last.identity not in ("", claimant.identity) and not claimant.administers:
        raise denial(claimant, producer, last.identity)
    identity = last.identity or claimant.identity
    if last.instance == instance and epoch in (None, last.epoch):
        return last if last.identity == identity else replace(last, identity=identity)
    if epoch is None or epoch > last.epoch:
        return replace(claim, epoch=last.epoch + 1 if epoch is None else epoch, identity=identity)
    relation = "was claimed by another process" if epoch == last.epoch else f"is older than the last one, {last.epoch}"
    raise ProducerFenced(
        f"epoch {epoch} of producer {producer} {relation}. Start the producer without epoch= to take the next one, "
        f"or use epoch={last.epoch + 1}; if both processes should run at once, give each its own producer_id",
        epoch=last.epoch,
    )
