"""How far apart the frames of a stream are, so that a broker with many readers sends few and larger ones.

A frame costs its broker and its readers about 0.2 ms, whatever is in it. So what a broker sends a second is bounded,
and shared among the readers that get messages. With a few readers a frame follows the one before at once. A stream
that several readers of a client share counts for all of them, because each has to be woken for each frame.
"""

from __future__ import annotations

from smq_storage.process.locks import make_lock

# Of one broker, to all of its readers together, as long as none waits longer than MAX_SPACING_SECONDS.
FRAMES_PER_SECOND = 2000

MAX_SPACING_SECONDS = 0.05

# A frame of more bytes is worth its cost and goes out at once.
SMALL_BYTES = 64 << 10


class FrameRate:
    """Counts the readers that got messages in the last second. Thread-safe."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._active = 0

    @property
    def spacing_seconds(self) -> float:
        return min(MAX_SPACING_SECONDS, self._active / FRAMES_PER_SECOND)

    def add_readers(self, count: int) -> None:
        with self._lock:
            self._active += count

    def remove_readers(self, count: int) -> None:
        with self._lock:
            self._active -= count


class FrameSpacing:
    """One stream of ``readers`` readers, which count while it has messages.

    Call ``mark_idle`` after a second without any, and at its end.
    """

    def __init__(self, frame_rate: FrameRate, readers: int = 1) -> None:
        self._frame_rate = frame_rate
        self._readers = readers
        self._is_active = False
        self._sent_at = float("-inf")

    def hold_seconds(self, now: float, nbytes: int) -> float:
        """For how many more seconds a frame of ``nbytes`` waits for further messages."""
        if nbytes > SMALL_BYTES:
            return 0.0
        return max(0.0, self._sent_at + self._frame_rate.spacing_seconds - now)

    def sent(self, now: float) -> None:
        self._sent_at = now
        if not self._is_active:
            self._is_active = True
            self._frame_rate.add_readers(self._readers)

    def mark_idle(self) -> None:
        if self._is_active:
            self._is_active = False
            self._frame_rate.remove_readers(self._readers)
