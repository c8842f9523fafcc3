"""Counts the rows that Spark drops because they come later than a query's watermark. Spark itself says nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent


class LateRows(StreamingQueryListener):
    """``rows`` is their number so far, of all queries of the session. Each micro-batch that drops some is printed."""

    def __init__(self) -> None:
        self.rows = 0

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is dropped yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        dropped = sum(it.numRowsDroppedByWatermark for it in event.progress.stateOperators)
        if dropped:
            self.rows += dropped
            print(f"micro-batch {event.progress.batchId} dropped {dropped} late rows", file=sys.stderr, flush=True)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing was read."""

    def onQueryTerminated(self, event: Any) -> None:
        """The last progress was reported before."""
