"""The topics that a member says it reads, whatever it sends."""

from __future__ import annotations

import struct

import pytest

from smq_broker.kafka.groups.subscriptions import topics_in

VALID = struct.pack(">hih1sh2s", 1, 2, 1, b"a", 2, b"bc")


def test_a_member_reads_the_topics_that_it_names() -> None:
    assert topics_in("consumer", [VALID, struct.pack(">hih1s", 0, 1, 1, b"d") + b"whatever"]) == {"a", "bc", "d"}
    assert topics_in("connect", [VALID]) == set()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        VALID[:-1],
        struct.pack(">hih", 1, 1, 5) + b"a",
        struct.pack(">hih1s", 1, 1, 1, b"\xff"),
        struct.pack(">hih", 1, 1_000, -2),
        struct.pack(">hih", 1, 1_000, -1) + bytes(10),
    ],
)
def test_what_is_no_subscription_has_no_topics_and_costs_nothing(metadata: bytes) -> None:
    """With a length of -2 the position would stay the same, for two billion names if a member says so."""
    assert topics_in("consumer", [metadata]) == set()
