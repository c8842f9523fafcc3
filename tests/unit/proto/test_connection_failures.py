"""What gRPC and Flight report about a connection is said in a user's words."""

from __future__ import annotations

import pytest

from smq_proto.connection_failures import cause_of

CONNECT = "UNAVAILABLE: failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{CONNECT}UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused",
         "connection refused"),
        ("UNAVAILABLE: errors resolving nowhere.invalid:7070: [hostname lookup error: Domain name not found]",
         "no such host"),
        (f"{CONNECT}UNKNOWN: ipv4:10.0.0.1:1: connection attempt timed out before receiving SETTINGS frame",
         "no answer in time"),
        (f"{CONNECT}UNAVAILABLE: ipv4:127.0.0.1:80: Failed parsing HTTP/2 (Expected SETTINGS frame as the first frame)",
         "what listens there speaks another protocol, such as HTTP"),
        ("DEADLINE_EXCEEDED: Deadline Exceeded", "no answer in time"),
        ("Flight returned unavailable error, with message: Socket closed", "the connection was closed"),
        ("CANCELLED: Locally cancelled by application!", "the call was cancelled"),
        ("INTERNAL: something\n else", "INTERNAL: something else"),
        ("", "no answer"),
    ],
)  # fmt: skip
def test_the_cause_is_said_without_the_words_of_the_library(text: str, cause: str) -> None:
    assert cause_of(text) == cause


def test_a_long_unknown_text_is_shortened() -> None:
    assert len(cause_of("x" * 5000)) == 200
