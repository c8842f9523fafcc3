"""Bounds of the key column of one file, short enough for a file list.

A bound is a JSON value: an int for integers, dates (days) and timestamps (as stored), text for strings, base64 text for
binary keys. It has at most ``MAX_BOUND_BYTES`` bytes: a longer minimum is cut, and a longer maximum is cut and rounded
up, so that the bounds still enclose every key. A maximum that cannot be rounded up is None, which bounds nothing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TypeAlias

# The length of the longest bound, before base64.
MAX_BOUND_BYTES = 64

# One bound as JSON has it; None is unknown.
KeyBound: TypeAlias = int | str | None

_LAST_BYTE = 0xFF
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def lower_bound(key: int | str | bytes | None) -> KeyBound:
    """The bound of the smallest key, as JSON has it."""
    if isinstance(key, bytes):
        return b64encode(key[:MAX_BOUND_BYTES]).decode()
    return _cut_text(key) if isinstance(key, str) else key


def upper_bound(key: int | str | bytes | None) -> KeyBound:
    """The bound of the largest key, as JSON has it, or None if no short text or bytes are above it."""
    if isinstance(key, bytes):
        above = _bytes_above(key)
        return b64encode(above).decode() if above is not None else None
    return _text_above(key) if isinstance(key, str) else key


def binary_bound(bound: KeyBound) -> bytes | None:
    """A bound of a binary key as bytes. Raises ValueError if it is not base64 text."""
    return b64decode(bound, validate=True) if isinstance(bound, str) else None


def _bytes_above(key: bytes) -> bytes | None:
    if len(key) <= MAX_BOUND_BYTES:
        return key
    kept = key[:MAX_BOUND_BYTES].rstrip(bytes([_LAST_BYTE]))
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _text_above(key: str) -> str | None:
    """In the order of code points, which is also the order of the UTF-8 bytes."""
    cut = _cut_text(key)
    if cut == key:
        return key
    for at in range(len(cut) - 1, -1, -1):
        above = ord(cut[at]) + 1
        if above in _SURROGATES:
            above = _SURROGATES.stop
        # A longer code point would exceed the limit.
        if above <= _LAST_CODE_POINT and len(chr(above).encode()) == len(cut[at].encode()):
            return cut[:at] + chr(above)
    return None


def _cut_text(key: str) -> str:
    """The longest start of the text that fits, in whole characters."""
    encoded = key.encode()
    return key if len(encoded) <= MAX_BOUND_BYTES else encoded[:MAX_BOUND_BYTES].decode(errors="ignore")
