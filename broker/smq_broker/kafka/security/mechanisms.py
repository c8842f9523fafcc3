"""What clients send in SaslAuthenticate: the tokens of the release, in the two ways that Kafka's clients have for them.

PLAIN is RFC 4616, OAUTHBEARER is RFC 7628.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# As the leader takes them.
MAX_TOKEN_CHARACTERS = 8_000
_SEPARATOR = "\x01"
_BEARER = "bearer "


class BadCredentials(Exception):
    """What a client has sent lets it in under no circumstances. The message does not quote it."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """``user`` is the name that a client gives itself; empty if its mechanism has none."""

    token: str = field(repr=False)
    user: str = ""


def parse_plain(sent: bytes) -> Credentials:
    """Raises BadCredentials."""
    parts = _text(sent).split("\0")
    if len(parts) != 3:
        raise BadCredentials("this is no message of PLAIN")
    authorized_as, user, password = parts
    if authorized_as not in ("", user):
        raise BadCredentials("nobody acts for others here: leave the authorization identity out")
    if not user:
        raise BadCredentials("the user name is empty: give the identity that the token belongs to")
    return Credentials(_token(password), user)


def parse_oauthbearer(sent: bytes) -> Credentials:
    """Raises BadCredentials."""
    header, *pairs = _text(sent).split(_SEPARATOR)
    if not header.startswith("n,") or not header.endswith(","):
        raise BadCredentials("this is no message of OAUTHBEARER")
    if header != "n,,":
        raise BadCredentials("nobody acts for others here: leave the authorization identity out")
    values = [value for key, _, value in (pair.partition("=") for pair in pairs) if key == "auth"]
    if len(values) != 1 or not values[0].lower().startswith(_BEARER):
        raise BadCredentials("the message of OAUTHBEARER has no bearer token")
    return Credentials(_token(values[0][len(_BEARER) :].strip()))


# By their names in SaslHandshake, in the order in which clients see them.
MECHANISMS: Mapping[str, Callable[[bytes], Credentials]] = MappingProxyType(
    {"OAUTHBEARER": parse_oauthbearer, "PLAIN": parse_plain}
)


def _text(sent: bytes) -> str:
    try:
        return bytes(sent).decode()
    except UnicodeDecodeError:
        raise BadCredentials("what the client has sent is no text") from None


def _token(text: str) -> str:
    if not text or len(text) > MAX_TOKEN_CHARACTERS or not text.isascii() or not text.isprintable():
        raise BadCredentials("the token is empty, too long, or no text")
    return text
