"""Offsets of a checkpoint: they come back as they were, and only for the topic that they are of."""

from __future__ import annotations

import json

import pytest

from pyspark_smq.errors import InvalidOption
from pyspark_smq.planning.stream_positions import StreamPositions
from smq.reading import TopicLocation
from smq_storage.object_store.store import StoreSettings

LOCATION = TopicLocation(topic="default/t", uid="uid-2", store=StoreSettings(url="memory://"))
POSITIONS = StreamPositions("default/t", "uid-2", {"t-0-16-1": 7, "t-0-16-0": 5})


def test_equal_positions_are_the_same_text() -> None:
    other = StreamPositions("default/t", "uid-2", {"t-0-16-0": 5, "t-0-16-1": 7})
    assert json.dumps(POSITIONS.to_offset()) == json.dumps(other.to_offset())
    assert StreamPositions.parse(json.loads(json.dumps(POSITIONS.to_offset())), LOCATION) == POSITIONS


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        ({"topic": "default/other"}, "the checkpoint is of the topic default/other, and the query reads default/t"),
        ({"uid": "uid-1"}, "was deleted and created again since the checkpoint was written"),
    ],
)
def test_a_checkpoint_of_another_topic_is_refused(offset: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        StreamPositions.parse(POSITIONS.to_offset() | offset, LOCATION)
