"""Which process gets which epoch of a producer id."""

from __future__ import annotations

import pytest

from smq_core.errors import ProducerFenced
from smq_core.producing.producer_claim import ProducerClaim, claim_producer

LAST = ProducerClaim("p", 4, "i", 10)
NOW = 20


@pytest.mark.parametrize(
    ("last", "instance", "epoch", "expected"),
    [
        (None, "i", None, ProducerClaim("p", 0, "i", NOW)),
        (None, "i", 7, ProducerClaim("p", 7, "i", NOW)),
        (LAST, "j", None, ProducerClaim("p", 5, "j", NOW)),
        (LAST, "j", 5, ProducerClaim("p", 5, "j", NOW)),
        (LAST, "j", 9, ProducerClaim("p", 9, "j", NOW)),
        # The answer to the first request of this process was lost.
        (LAST, "i", None, LAST),
        (LAST, "i", 4, LAST),
        (LAST, "i", 6, ProducerClaim("p", 6, "i", NOW)),
    ],
)
def test_a_claim(last: ProducerClaim | None, instance: str, epoch: int | None, expected: ProducerClaim) -> None:
    assert claim_producer(last, "p", instance, epoch, NOW) == expected


@pytest.mark.parametrize(
    ("instance", "epoch", "why"), [("j", 4, "claimed by another process"), ("j", 3, "older"), ("i", 3, "older")]
)
def test_an_epoch_that_is_taken_or_past_is_refused(instance: str, epoch: int, why: str) -> None:
    with pytest.raises(ProducerFenced, match=why) as raised:
        claim_producer(LAST, "p", instance, epoch, NOW)
    assert raised.value.epoch == 4
    assert "without epoch=" in raised.value.message and "epoch=5" in raised.value.message


def test_each_start_fences_the_one_before() -> None:
    claim = None
    for n, instance in enumerate("abc"):
        claim = claim_producer(claim, "p", instance, None, NOW)
        assert (claim.epoch, claim.instance) == (n, instance)
