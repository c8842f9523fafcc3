"""When a chunk is written. During a burst a full chunk waits, if CPU is short and memory is not.

Encoding and sending a chunk costs more CPU than receiving its messages. A burst is received at full speed if its chunks
are written after it.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from smq_core.model.chunk_info import ChunkInfo
from smq_core.replica.log_entries import ChunkWrite
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica

# CPU is short if some thread waited for a core during at least this share of the time.
STALLED_SHARE = 0.5

# How many samples of a segment's byte counter are kept. They cover a second, so that an uneven burst is still one.
BURST_SAMPLES = 10

# The container's file comes first because it counts waits at the container's CPU limit too; then the machine's.
PRESSURE_FILES = (Path("/sys/fs/cgroup/cpu.pressure"), Path("/proc/pressure/cpu"))


class CpuPressure:
    """Detects that CPU is short. ``poll`` is called periodically, with the time in seconds."""

    def __init__(self) -> None:
        self._file = next((path for path in PRESSURE_FILES if stalled_seconds(path) is not None), None)
        self._polled_at = 0.0
        self._stalled_seconds = 0.0

    def poll(self, now: float) -> bool:
        """True if CPU was short since the last call. False if the system has no pressure statistics."""
        total = stalled_seconds(self._file) if self._file is not None else None
        if total is None:
            return False
        waited, passed = total - self._stalled_seconds, now - self._polled_at
        self._stalled_seconds, self._polled_at = total, now
        return passed > 0 and waited > STALLED_SHARE * passed


class FlushSchedule:
    """Decides when one primary writes its next chunk. Callers hold the segment's lock."""

    def __init__(self, machine: SegmentReplica, stored: bool) -> None:
        self.queued = False
        """The segment is in the flusher's queue."""
        self.not_before_us = 0
        """No attempt before this time: the last one failed."""
        self.unconfirmed_chunk: tuple[ChunkWrite, ChunkInfo] | None = None
        """A chunk whose PUT had no clear outcome. It is tried again under the same nonce."""
        self.burst = False
        """Full chunks wait."""
        self.check_chain_end = False
        """The flusher reads the chain's end although no chunk is due: see ``SegmentReplica.chain_check_due``."""
        self._machine = machine
        self._stored = stored
        self._requested_upto = 0
        self._append_samples: deque[tuple[float, int]] = deque([(0.0, 0)], BURST_SAMPLES)

    def request(self, upto: int) -> None:
        """Requests that entries below this offset are written, due or not."""
        self._requested_upto = max(self._requested_upto, upto)

    def request_early(self) -> None:
        """Requests a chunk of what can be written now, or the next chunk if nothing can be written yet."""
        self.request(max(self._machine.watermark, self._machine.chain_end + 1))

    @property
    def requested(self) -> bool:
        return self._requested_upto > self._machine.chain_end

    def update_burst(self, now_seconds: float, may_defer: bool) -> None:
        """Called periodically. Full chunks wait while messages come in a burst, if they ``may_defer``."""
        total, chunk = self._machine.counters.bytes, self._machine.flush_threshold()
        self.burst = may_defer and any(
            is_burst(total - before, now_seconds - then, chunk) for then, before in self._append_samples
        )
        self._append_samples.append((now_seconds, total))

    def chunk_due(self) -> bool:
        """True if a chunk should be written before the flush interval has passed."""
        machine = self._machine
        if machine.chunk_in_flight or machine.state is not ReplicaState.OPEN:
            return False
        if self._stored:
            return machine.end > machine.chain_end and not self.not_before_us
        if machine.watermark <= machine.chain_end:
            return False
        # Twice the bytes that a burst leaves waiting must fit the followers' credits, so that they never stop it.
        deferred = self.burst and machine.tail_bytes <= machine.available_bytes()
        full = machine.tail_bytes >= machine.flush_threshold()
        return (self.requested or machine.has_reference_to_write or (full and not deferred)) and not self.not_before_us


def stalled_seconds(file: Path) -> float | None:
    """Seconds in which some thread waited for a core, from pressure stall information; None if there is none."""
    try:
        some = file.read_text().split("\n", 1)[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def is_burst(grown_bytes: int, seconds: float, chunk_bytes: int) -> bool:
    """True if bytes came at a rate of at least one chunk per second."""
    return grown_bytes >= chunk_bytes * seconds
