"""DIR/watermarks.json: up to where messages of each open segment are known to be acked.

On one machine everything can end at once: the leader, all brokers and their memory. If the brokers' journals are gone
as well, the next leader seals the segments at the end of their files, and without this file it would know only that
messages may be lost. The file says which ones certainly are. It is a lower bound, as old as the
leader's last write.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.reconcile.topics.topic_events import TopicEvents
from smq_storage.object_store.json_codec import from_json, to_json

log = structlog.get_logger(__name__)

WRITE_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Watermarks:
    """By topic uid and segment."""

    watermarks: dict[str, dict[str, int]]


class WatermarkRecorder:
    """Writes the watermarks while this leader leads, and gives each topic's reconciler those of the leader before."""

    def __init__(self, path: Path, topics: TopicDirectory, events: TopicEvents) -> None:
        self._path = path
        self._topics = topics
        self._recorded = self._read()
        self._written = self._recorded
        events.on_change(self._observe)

    async def run(self) -> None:
        """Writes until it is cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(WRITE_INTERVAL_SECONDS)
                self.write()
        finally:
            self.write()

    def write(self) -> None:
        """Writes what has changed. A topic that is not known (yet) keeps what was recorded."""
        current = {uid: dict(segments) for uid, segments in self._recorded.items()}
        for managed in self._topics.values():
            if managed.reconciler is not None and managed.layout is not None:
                watermarks, names = managed.reconciler.watermarks, {s.name for s in managed.layout.segments}
                current[managed.reconciler.topic.uid] = {n: w for n, w in watermarks.items() if n in names and w}
        if self._topics.all_layouts_known:
            known = {managed.topic.uid for managed in self._topics.values() if managed.topic is not None}
            current = {uid: segments for uid, segments in current.items() if uid in known}
        current = {uid: segments for uid, segments in current.items() if segments}
        self._recorded = current
        if current == self._written:
            return
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_bytes(to_json(_Watermarks(current)))
            temporary.replace(self._path)
        except OSError as error:
            log.warning("watermarks.write_failed", file=str(self._path), message=str(error))
            return
        self._written = current

    def _observe(self, managed: ManagedTopic) -> None:
        if managed.reconciler is None:
            return
        for segment, watermark in self._recorded.get(managed.reconciler.topic.uid, {}).items():
            managed.reconciler.observe_watermark(segment, watermark)

    def _read(self) -> dict[str, dict[str, int]]:
        try:
            return from_json(_Watermarks, self._path.read_bytes()).watermarks
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.error(
                "watermarks.unreadable",
                file=str(self._path),
                message=str(error),
                advice="a loss of messages that only this file could show is not reported",
            )
            return {}
