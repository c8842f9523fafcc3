"""The closed sets of the wire have exactly the words of the model, and a value that is none is a clear error."""

from __future__ import annotations

from enum import StrEnum

import pytest

from smq_core.errors import InvalidRequest
from smq_core.model.decision import DecisionAction
from smq_core.model.entities import Durability, Liveness, Phase, Reason
from smq_core.replica.segment_replica import ReplicaState
from smq_proto import enums
from smq_proto.enums import WireEnum

OF_THE_MODEL = [
    (enums.DURABILITY, Durability),
    (enums.PHASE, Phase),
    (enums.REASON, Reason),
    (enums.REPLICA_STATE, ReplicaState),
    (enums.DECISION_ACTION, DecisionAction),
]
ALL = {name: it for name, it in vars(enums).items() if isinstance(it, WireEnum)}


@pytest.mark.parametrize(("wire", "model"), OF_THE_MODEL)
def test_a_set_of_the_model_is_the_same_on_the_wire(wire: WireEnum, model: type[StrEnum]) -> None:
    assert {member: wire.word(wire.value(member)) for member in model} == {member: member.value for member in model}
    assert len(wire.words) == len(model)


def test_a_broker_that_drains_is_one_state_more_than_the_leader_knows_of_a_process() -> None:
    assert set(enums.BROKER_STATE.words) == {*Liveness, "draining"}


@pytest.mark.parametrize("name", ALL)
def test_each_value_of_the_definition_has_a_word(name: str) -> None:
    wire = ALL[name]
    assert sorted(map(wire.value, wire.words)) == list(range(1, len(wire.kind.values())))


@pytest.mark.parametrize("name", ALL)
def test_what_is_not_in_the_set_is_a_clear_error(name: str) -> None:
    wire = ALL[name]
    for value, text in ((0, "no value"), (99, "unknown value 99")):
        with pytest.raises(InvalidRequest, match=f"{text}; known here are {wire.words[0]}"):
            wire.word(value)
    with pytest.raises(InvalidRequest, match="'other' is none of"):
        wire.value("other")
    assert [wire.shown(value) for value in (0, 99)] == ["", "unknown"]
