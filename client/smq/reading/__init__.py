"""Reads of ranges of a topic that another process planned: from files, and from brokers for what is in no file yet.

Whoever plans opens the topic (:func:`open_topic`), and asks how far it can be read now (:class:`StateLoader`). Whoever
reads needs the :class:`TopicLocation` only (:class:`RangeReader`). Nobody needs the leader while reading. There are no
threads but those that ask several brokers at once.
"""

from smq.reading.open_topic import OpenedTopic, open_topic
from smq.reading.range_reader import RangeReader
from smq.reading.topic_location import TopicLocation
from smq.reading.topic_state import StateLoader, TopicState, load_state

__all__ = ["OpenedTopic", "RangeReader", "StateLoader", "TopicLocation", "TopicState", "load_state", "open_topic"]
