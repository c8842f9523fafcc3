"""What errors tell a program that reads their message only."""

from __future__ import annotations

from smq_core.errors import SHOWN_NAMES, UnknownTopic


def test_an_unknown_topic_names_those_that_there_are() -> None:
    error = UnknownTopic.among("default/evnts", ["default/flights", "default/events"])
    assert error.topic == "default/evnts"
    assert error.message.startswith(
        "there is no topic default/evnts (existing topics: default/events, default/flights): create it"
    )
    assert "(existing topics: none)" in UnknownTopic.among("default/t", []).message


def test_an_unknown_topic_among_many_names_some() -> None:
    message = UnknownTopic.among("default/t", (f"default/{number:03}" for number in range(SHOWN_NAMES + 1))).message
    assert "default/009, …)" in message and "default/010" not in message
