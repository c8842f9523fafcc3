"""The offsets of a streaming query: positions in a topic, as Spark stores them in the query's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_smq.errors import InvalidOption
from smq.reading import TopicLocation
from smq_core.model.entities import Positions


@dataclass(frozen=True, slots=True)
class StreamPositions:
    """Positions ``{segment: next offset}`` of one topic, which its uid tells from a later one of the same name."""

    topic: str
    uid: str
    positions: Positions

    @staticmethod
    def of(location: TopicLocation, positions: Positions) -> StreamPositions:
        return StreamPositions(location.topic, location.uid, positions)

    @staticmethod
    def parse(offset: Mapping[str, Any], location: TopicLocation) -> StreamPositions:
        """An offset of Spark, for a query that reads the topic at ``location`` now.

        Raises InvalidOption if it is of another topic, or of a topic that was deleted and created again.
        """
        found = StreamPositions(offset["topic"], offset["uid"], offset["positions"])
        if found.topic != location.topic:
            raise InvalidOption(
                f"the checkpoint is of the topic {found.topic}, and the query reads {location.topic}: use a checkpoint "
                "location of its own for each query",
                option="topic",
            )
        if found.uid != location.uid:
            raise InvalidOption(
                f"the topic {found.topic} was deleted and created again since the checkpoint was written, so its "
                "positions mean nothing any more: start with a new checkpoint location",
                option="topic",
            )
        return found

    def to_offset(self) -> dict[str, Any]:
        """The same positions are always the same JSON text, by which Spark compares offsets."""
        return {"topic": self.topic, "uid": self.uid, "positions": dict(sorted(self.positions.items()))}
