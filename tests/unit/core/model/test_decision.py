"""Decisions have one of a closed set of actions."""

from __future__ import annotations

import pytest

from smq_core.model.decision import DecisionAction
from smq_core.model.entities import Reason


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_of_a_plan_is_an_action(reason: Reason) -> None:
    assert DecisionAction.of(reason).name == reason.name
