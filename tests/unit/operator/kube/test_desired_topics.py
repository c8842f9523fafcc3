"""A Topic is parsed once for each change of what the parser reads, and in any thread."""

from __future__ import annotations

from typing import Any

import pytest

from smq_operator.kube import desired_topics
from smq_operator.kube.client.kinds import Resource
from smq_operator.kube.desired_topics import DesiredTopics
from smq_storage.topic_manifests.parser import parse_api_resource

KEY = ("n", "t")


def topic(generation: int = 1, replicas: int = 2, **fields: Any) -> Resource:
    return {
        "apiVersion": "seaweedmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "t", "namespace": "n", "uid": "u", "generation": generation},
        "spec": {"replicas": replicas},
        **fields,
    }


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Resource]:
    """What was parsed."""
    found: list[Resource] = []

    def parse(body: Resource) -> Any:
        found.append(body)
        return parse_api_resource(body)

    monkeypatch.setattr(desired_topics, "parse_api_resource", parse)
    return found


def test_a_topic_that_was_parsed_before_is_not_parsed_on_the_loop(parsed: list[Resource]) -> None:
    topics = DesiredTopics()
    topics.parse([topic(replicas=2)])
    assert len(parsed) == 1 and not topics.all()
    topics.update(KEY, topic(replicas=2))
    assert len(parsed) == 1
    assert topics.all()["n/t"].spec.replicas == 2


def test_a_change_of_the_status_parses_nothing(parsed: list[Resource]) -> None:
    topics = DesiredTopics()
    topics.update(KEY, topic())
    topics.update(KEY, topic(status={"segments": {"open": 1}}))
    assert len(parsed) == 1
    assert topics.all()["n/t"].was_created


@pytest.mark.parametrize("parsed_before", ["former", "newer"])
def test_the_topic_is_what_it_is_now_whatever_was_parsed_before(parsed: list[Resource], parsed_before: str) -> None:
    """Lists and watches parse in threads, and so in any order."""
    topics, former, newer = DesiredTopics(), topic(1, 2), topic(2, 3)
    topics.parse([newer, former] if parsed_before == "former" else [former, newer])
    topics.update(KEY, newer)
    assert topics.all()["n/t"].spec.replicas == 3
    assert topics.all()["n/t"].generation == 2


def test_a_change_of_the_annotations_is_parsed() -> None:
    topics, paused = DesiredTopics(), topic()
    topics.update(KEY, topic())
    paused["metadata"]["annotations"] = {"seaweedmq.io/autoscaling": "paused"}
    topics.update(KEY, paused)
    assert topics.all()["n/t"].paused


def test_a_rejected_topic_is_parsed_once_and_keeps_its_last_good_spec(parsed: list[Resource]) -> None:
    topics = DesiredTopics()
    topics.update(KEY, topic(replicas=2))
    for _ in range(2):
        topics.update(KEY, topic(generation=2, replicas=99))
    assert len(parsed) == 2
    assert topics.all()["n/t"].spec.replicas == 2
    assert "replicas" in (topics.all()["n/t"].problem or "")


def test_topics_that_are_gone_are_forgotten(parsed: list[Resource]) -> None:
    topics = DesiredTopics()
    topics.update(KEY, topic())
    topics.update(KEY, None)
    topics.parse([topic()])  # a list that is older than the deletion
    topics.update(("n", "another"), None)
    topics.update(KEY, topic())
    assert len(parsed) == 3
