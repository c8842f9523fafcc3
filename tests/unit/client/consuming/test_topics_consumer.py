"""What a consumer of several topics says about topics that it does not read."""

from __future__ import annotations

import re

import pytest

import smq
from smq.topics_consumer import TopicsConsumer
from smq_core.errors import InvalidRequest


def test_a_name_in_place_of_a_list_is_refused_with_what_is_meant() -> None:
    meant = re.escape("['ev.*'], or a pattern")
    with smq.connect("127.0.0.1:1") as client, pytest.raises(InvalidRequest, match=meant):
        client.topics_consumer("ev.*")


def test_a_topic_that_is_not_read_is_named_with_those_that_are() -> None:
    consumer = TopicsConsumer([], lambda topic, changed: pytest.fail("no topic is opened"))
    with pytest.raises(KeyError, match=r"events is not read\. These topics are: none"):
        consumer["events"]
