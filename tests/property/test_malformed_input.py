"""Whatever comes from outside, decoders and handlers answer it, or refuse it with an error that they declare.

`make chaos` tries a million inputs (tests/chaos/test_malformed_input.py).
"""

from __future__ import annotations

import pytest

from smq_core.errors import InvalidRequest
from support.fuzzing.campaign import PARTS, attack
from support.fuzzing.mutator import Mutator
from support.fuzzing.targets import MAX_GROWTH_BYTES, data_target, run

INPUTS = {"parsers": 4_000, "broker": 2_000, "leader": 600}


@pytest.mark.parametrize("part", PARTS)
def test_every_input_is_answered_or_refused(part: str) -> None:
    outcomes, growth = attack(part, 1, INPUTS[part])
    assert not [str(it) for it in outcomes if it.failures]
    assert sum(it.inputs for it in outcomes) >= INPUTS[part]
    assert growth < MAX_GROWTH_BYTES


def test_a_decoder_that_fails_is_found() -> None:
    def decode(data: bytes) -> None:
        if not data:
            raise InvalidRequest("nothing came")
        if data[0] > 0x7F:
            raise KeyError(data[0])

    outcome = run(data_target("a decoder", [b"\x00valid"], decode), 1, 5_000)
    assert len(outcome.failures) == 3 and outcome.inputs < 5_000
    assert "KeyError" in str(outcome) and "b'\\x" in str(outcome), "it says which input"


def test_a_seed_makes_the_same_inputs_again() -> None:
    def inputs(seed: int) -> list[bytes]:
        mutator = Mutator(seed)
        return [mutator.data([b"one", b"another"]) for _ in range(100)]

    assert inputs(1) == inputs(1) != inputs(2)
