"""What a consumer says of messages that are gone."""

from __future__ import annotations

from smq_core.errors import DataLost


def data_lost(segment: str, start: int, stop: int | None) -> DataLost:
    """``segment``, ``start`` and ``stop`` are its details."""
    upto = f"{start}..{stop - 1}" if stop is not None else f"{start} and on"
    return DataLost(
        f"messages {upto} of {segment} are gone: removed by retention before they were read, or lost with all replicas "
        'of the segment. Reading can go on behind them; on_loss="skip" does so silently',
        segment=segment,
        start=start,
        stop=stop,
    )


def lost_to_reader(position: int, end: int, lost: tuple[int, int] | None) -> tuple[int, int] | None:
    """What a reader that was given everything below ``position`` is told of the offsets that a seal says are lost.

    Who sealed may have heard of fewer messages than the reader was given: they are part of the same loss.
    """
    if lost is None or lost[1] <= max(lost[0], end):
        return None
    start, stop = lost
    return start, max(stop, position)
