"""Whatever Kafka clients send, it is answered or refused, and what is accepted can be stored and read.

`make chaos` tries a million inputs (tests/chaos/test_kafka_fuzzing.py).
"""

from __future__ import annotations

import pytest

from support.fuzzing.kafka_campaign import PARTS, attack
from support.fuzzing.targets import MAX_GROWTH_BYTES

INPUTS = {"requests": 5_000, "records": 2_000, "connections": 1_000}


@pytest.mark.parametrize("part", PARTS)
def test_every_input_is_answered_or_refused(part: str) -> None:
    outcomes, growth = attack(part, 1, INPUTS[part])
    print("\n".join(str(it) for it in outcomes))
    assert not [str(it) for it in outcomes if it.failures]
    assert sum(it.inputs for it in outcomes) >= INPUTS[part]
    assert all(it.accepted for it in outcomes)
    assert growth < MAX_GROWTH_BYTES
