"""Reads one segment from a position to its end: files from the filer and the tail from a replica."""

from __future__ import annotations

import logging
import threading
import time

from smq.consuming.fetching.fetch_output import FetchOutput
from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.fetch_progress import FetchProgress
from smq.consuming.fetching.file_fetcher import FileFetcher
from smq.consuming.fetching.large_values import LargeValueReader
from smq.consuming.fetching.prefetch_buffer import FetchFailed, PrefetchBuffer
from smq.consuming.fetching.shared_tails import SharedTails
from smq.consuming.fetching.tail_fetcher import TailFetcher
from smq.transport.topic_view import TopicView
from smq_core.backoff import Backoff
from smq_core.errors import CorruptChunk, SmqError, StoreUnavailable, is_denial
from smq_core.model.entities import Segment

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.5


class Fetcher:
    """A thread that reads one segment ahead into the prefetch buffer. ``ordinal`` spreads readers over replicas.

    With ``large_values`` it also fetches the values that are in objects. ``shared_tails``: those of its client.
    """

    def __init__(
        self,
        *,
        view: TopicView,
        buffer: PrefetchBuffer[Fetcher],
        fetch_plan: FetchPlan,
        max_bytes: int,
        ordinal: int,
        large_values: LargeValueReader | None = None,
        shared_tails: SharedTails | None = None,
    ) -> None:
        self.segment = name = fetch_plan.segment
        self._view = view
        self._buffer = buffer
        self._stop = stop = threading.Event()
        self._progress = progress = FetchProgress(name, view.filer_health)
        self._output = output = FetchOutput(
            tail=self, buffer=buffer, plan=fetch_plan, max_bytes=max_bytes, large_values=large_values, progress=progress
        )
        self._files = files = FileFetcher(
            view=view,
            segment=name,
            sealed=fetch_plan.sealed,
            output=output,
            progress=progress,
            stop=stop,
            touch_stream=self.touch_stream,
        )
        self._tail = TailFetcher(
            view=view,
            segment=name,
            ordinal=ordinal,
            shared_tails=shared_tails or SharedTails(),
            output=output,
            progress=progress,
            files=files,
            stop=stop,
        )
        self._thread = threading.Thread(target=self._run, name=f"smq-fetch-{name}", daemon=True)
        self._thread.start()

    @property
    def position(self) -> int:
        """The offset of the next message that goes into the buffer."""
        return self._output.position

    @property
    def dropped_upto(self) -> int:
        """Up to here nothing went into the buffer, because it was appended before the start."""
        return self._output.dropped_upto

    @property
    def watermark(self) -> int:
        return self._output.watermark

    @property
    def watermark_known(self) -> bool:
        """Whether a replica (or the chunk chain, if there is no replica) has reported the watermark."""
        return self._output.watermark_known

    @property
    def filer_error(self) -> StoreUnavailable | None:
        """Why the last read from the filer failed; None if it did not."""
        return self._progress.filer_error

    def may_end(self) -> bool:
        """Whether the segment is sealed or being sealed, so that it may end and its successors may follow."""
        layout_segment = self._layout_segment()
        return self._files.sealed is not None or layout_segment is None or bool(layout_segment.successors)

    def stop(self) -> None:
        """Ends reading; nothing more enters the prefetch buffer."""
        self._stop.set()
        self._buffer.drop(self)
        self._tail.abort()

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def check_liveness(self, now: float, late_by: float = 0.0) -> None:
        """Aborts the stream of an unresponsive replica. ``late_by``: how many seconds too late this is called."""
        self._tail.check_liveness(now, late_by)

    # ---- for its own parts

    def touch_stream(self) -> None:
        self._tail.touch_stream()

    def end_publication(self) -> None:
        self._tail.end_publication()

    # ---- the thread

    def _run(self) -> None:
        backoff = Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        try:
            while not self._stop.is_set():
                before = self.position
                try:
                    if self._read_once():
                        return
                except SmqError as error:
                    self._progress.failed(error)
                    if isinstance(error, CorruptChunk) or is_denial(error):
                        self._output.put_item(FetchFailed(error))
                        return
                if self.position > before:
                    backoff.reset()
                self._stop.wait(backoff.increase())
        except Exception as error:
            log.exception("reading %s failed", self.segment)
            self._output.put_item(FetchFailed(SmqError(f"reading {self.segment} failed: {error}")))

    def _read_once(self) -> bool:
        """Reads the tail while the segment is in the layout, then the chunks that exist. True: all is read."""
        layout_segment = self._layout_segment()
        if self._files.sealed is None and layout_segment is not None and self._tail.read(layout_segment):
            return True
        return self._files.read()

    def _layout_segment(self) -> Segment | None:
        layout = self._view.snapshot.layout
        return layout.segment(self.segment) if self.segment in layout else None


def join_all(fetchers: list[Fetcher], seconds: float) -> None:
    """Joins the threads of stopped fetchers."""
    deadline = time.monotonic() + seconds
    for fetcher in fetchers:
        fetcher.join(max(0.0, deadline - time.monotonic()))
