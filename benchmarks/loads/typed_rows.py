"""Rows for topics with a schema: the columns of twelve types in turn, the first of which is the key."""

from __future__ import annotations

import random
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

DIFFERENT = 2000
TYPES = (
    "string",
    "int32",
    "float64",
    "timestamp[us, UTC]",
    "string",
    "int16",
    "bool",
    "float64",
    "date32",
    "int64",
    "decimal128(9, 2)",
    "float32",
)
_SEED = 20_012
_START = datetime(2026, 1, 1, tzinfo=UTC)


def spec(columns: int) -> str:
    """The lines of a topic's spec with that number of columns. One in three may be null."""
    lines = [
        f"    - {{name: c{n}, type: '{TYPES[n % len(TYPES)]}', nullable: {str(n % 3 == 2).lower()}}}"
        for n in range(columns)
    ]
    return "\n".join(["  key: c0", "  schema:", *lines, ""])


def rows(columns: int) -> list[dict[str, object]]:
    """``DIFFERENT`` rows, always the same ones. One in ten values of a column that may be null is null."""
    draw = random.Random(_SEED + columns)
    names = [sys.intern(f"c{n}") for n in range(columns)]  # as the names in a program's text are
    return [
        {name: None if n % 3 == 2 and draw.random() < 0.1 else _value(draw, n) for n, name in enumerate(names)}
        for _ in range(DIFFERENT)
    ]


def _value(draw: random.Random, column: int) -> object:
    match TYPES[column % len(TYPES)]:
        case "string":
            return f"N{draw.randrange(5000):05d}"
        case "bool":
            return draw.random() < 0.5
        case "float64":
            return draw.gauss(20, 4)
        case "float32":
            return draw.randrange(4000) / 8
        case "date32":
            return date(2026, 1, 1) + timedelta(days=draw.randrange(365))
        case "decimal128(9, 2)":
            return Decimal(draw.randrange(1_000_000)).scaleb(-2)
        case "timestamp[us, UTC]":
            return _START + timedelta(microseconds=draw.randrange(10**12))
        case "int64":
            return draw.getrandbits(60)
    return draw.randrange(1 << 15)
