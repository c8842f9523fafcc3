"""The events that every measured queue carries: JSON of exactly 100 or 1,000 bytes, 2,000 different ones.

They look, repeat and compress like real events. The seed is fixed, so every run and every peer carries the same bytes.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pyarrow as pa

SIZES = (100, 1000)
DIFFERENT = 2000
_SEED = 20_011
_NOUNS = (
    "booking",
    "gate",
    "seat",
    "crew",
    "bag",
    "runway",
    "taxi",
    "fuel",
    "slot",
    "weather",
    "delay",
    "board",
    "depart",
    "arrive",
    "transfer",
    "lounge",
)
_LEVELS = ("debug", "info", "info", "info", "info", "notice", "warning", "error")


@cache
def events(size: int) -> list[bytes]:
    """``DIFFERENT`` events of exactly ``size`` bytes, always the same ones."""
    draw = random.Random(_SEED + size)
    return [_event(draw, size) for _ in range(DIFFERENT)]


def table(size: int, rows: int) -> pa.Table:
    """``rows`` events as the column ``value``, in turn."""
    values = events(size)
    once = pa.array(values, pa.binary())
    whole, rest = divmod(rows, len(values))
    parts = [once] * whole + ([once.slice(0, rest)] if rest else [])
    return pa.table({"value": pa.concat_arrays(parts)})


def write_file(folder: Path, size: int) -> Path:
    """The events as lines of a file, for peers that read them from there."""
    path = folder / f"events-{size}.txt"
    path.write_bytes(b"\n".join(events(size)) + b"\n")
    return path


def _event(draw: random.Random, size: int) -> bytes:
    at = 1_790_000_000_000 + draw.randrange(86_400_000)
    if size < 300:
        head = f'{{"at":{at},"id":"{draw.getrandbits(40):010x}","kind":"{draw.choice(_NOUNS)}","v":{draw.random():.4f}'
    else:
        body = {
            "at": at,
            "id": f"{draw.getrandbits(96):024x}",
            "level": draw.choice(_LEVELS),
            "source": f"sensor-{draw.randrange(300):03d}.field-{draw.randrange(12)}.example.org",
            "position": [round(draw.uniform(-90, 90), 5), round(draw.uniform(-180, 180), 5)],
            "samples": [round(draw.gauss(20, 4), 2) for _ in range(30)],
        }
        head = json.dumps(body, separators=(",", ":"))[:-1]
    text = head + ',"text":"'
    while len(text) < size - 2:
        text += draw.choice(_NOUNS) + " "
    return (text[: size - 2] + '"}').encode()
