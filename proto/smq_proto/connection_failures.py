"""What the texts of gRPC's and Flight's connection failures mean, in words that a user knows."""

from __future__ import annotations

import re

NO_ANSWER = "no answer in time"
NO_TLS = "what listens there does not speak TLS"
UNTRUSTED = "its certificate is not signed by the authorities of the CA file"
CLOSED_AT_ONCE = "the connection was closed before it was ready"
_ENDED_IN_HANDSHAKE = "failed to connect to all addresses.*socket closed"

# In the order in which they are looked for, because one text may match several.
_CAUSES = (
    ("timed out before receiving settings frame", NO_ANSWER),
    ("handshake failed.*wrong.version.number", NO_TLS),
    ("certificate has expired|certificate.expired", "its certificate has expired"),
    ("certificate.verify.failed|unknown.ca", UNTRUSTED),
    (
        "hostname verification check failed|is not in peer certificate",
        "its certificate is that of another process than the one that should be there",
    ),
    ("peer did not return a certificate|certificate.required", "the other side wants a certificate"),
    ("bad.certificate|certificate.unknown", "the other side refuses this certificate"),
    ("handshake failed|security handshaker", "the TLS handshake failed"),
    (_ENDED_IN_HANDSHAKE, CLOSED_AT_ONCE),
    ("connection refused", "connection refused"),
    ("domain name not found|name or service not known|errors resolving|dns resolution failed", "no such host"),
    ("settings frame|http/?2|wrong version number|http1", "what listens there speaks another protocol, such as HTTP"),
    ("no route to host|network is unreachable|host is unreachable", "the host cannot be reached"),
    ("deadline.?exceeded|timed? ?out", NO_ANSWER),
    ("connection reset|socket closed|broken pipe|goaway|stream removed", "the connection was closed"),
    ("cancell?ed", "the call was cancelled"),
    ("failed to connect", "no connection"),
)

_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE | re.DOTALL), cause) for pattern, cause in _CAUSES)
_MAX_TEXT = 200


def cause_of(text: str) -> str:
    """The cause in a few words. A text that is not known stays as it is, in one line and shortened."""
    for pattern, cause in _PATTERNS:
        if pattern.search(text):
            return cause
    return " ".join(text.split())[:_MAX_TEXT] or "no answer"
