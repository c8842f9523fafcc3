"""The Topic resource's rules, on a real API server, against the table that the parser of manifests is held against."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from smq_core.errors import SpecRejected
from smq_core.model.entities import TopicSpec
from smq_storage.topic_manifests.parser import parse_resource
from support.kube.client import KubeApiError, KubeClient, documents
from support.kube.manifest_cases import (
    INVALID_MANIFESTS,
    SPEC_CHANGES,
    VALID_SPECS,
    InvalidManifestCase,
    SpecChange,
    manifest,
    nested,
)

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).parents[3] / "examples" / "topics"
TOPICS = "/apis/seaweedmq.io/v1alpha1/namespaces/default/topics"


def post(kube: KubeClient, resource: object) -> dict[str, Any]:
    """Straight to the Topics, whatever it says it is."""
    return kube.request("POST", TOPICS, resource, dryRun="All", fieldValidation="Strict")


@pytest.fixture
def made(kube: KubeClient) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes Topics, which go after the test."""
    kept: list[dict[str, Any]] = []

    def make(spec: Mapping[str, Any] | None) -> dict[str, Any]:
        kept.append(kube.create(manifest(spec, name=f"test-{uuid.uuid4().hex[:12]}")))
        return kept[-1]

    yield make
    for topic in kept:
        kube.delete(topic)


@pytest.mark.parametrize("bad", INVALID_MANIFESTS, ids=lambda bad: bad.id)
def test_a_bad_manifest_is_refused_with_its_field_and_advice(kube: KubeClient, bad: InvalidManifestCase) -> None:
    with pytest.raises(KubeApiError) as caught:
        post(kube, bad.manifest)
    assert caught.value.code in (400, 422)
    assert bad.api in caught.value.message
    fields = [field for field, _ in caught.value.causes]
    assert any(field.startswith(bad.field) for field in fields) or bad.field in caught.value.message, fields


@pytest.mark.parametrize("good", VALID_SPECS.values(), ids=VALID_SPECS)
def test_a_good_manifest_is_accepted_and_means_the_same(kube: KubeClient, good: dict[str, Any]) -> None:
    """The defaults that the API server fills in are those of the parser."""
    assert parse_resource(post(kube, good)).spec == parse_resource(good).spec


def test_the_examples_are_accepted(kube: KubeClient, namespace: str) -> None:
    found = list(documents(EXAMPLES))
    assert found
    for example in found:
        example["metadata"]["namespace"] = namespace
        assert parse_resource(kube.create(example, dry_run=True)) == parse_resource(example)


def test_every_default_is_filled_in(made: Callable[..., dict[str, Any]]) -> None:
    spec = made(None)["spec"]
    assert parse_resource(manifest(spec)).spec == TopicSpec()
    assert spec["scaling"]["target"] == {"messagesPerSecond": 50000, "bytesPerSecond": "32Mi"}
    assert set(spec) >= {"partitions", "durability", "replicas", "flush", "roll", "retention", "deletionPolicy"}


@pytest.mark.parametrize("change", SPEC_CHANGES, ids=lambda change: change.id)
def test_mutable_and_immutable_fields(
    kube: KubeClient, made: Callable[..., dict[str, Any]], change: SpecChange
) -> None:
    topic = made(change.old)
    changed = topic | {"spec": dict(change.new)}
    if not change.field:
        assert parse_resource(kube.replace(changed)).spec == parse_resource(manifest(change.new)).spec
        return
    with pytest.raises(KubeApiError, match=change.said) as caught:
        kube.replace(changed)
    assert any(field.startswith(change.field) for field, _ in caught.value.causes)


def test_several_mistakes_are_reported_together(kube: KubeClient) -> None:
    with pytest.raises(KubeApiError) as caught:
        post(kube, manifest({"replicas": 1, "flush": {"bytes": "x"}, "segments": {"min": 5, "max": 4}}))
    assert {"spec.replicas", "spec.flush.bytes", "spec.segments.min"} <= {field for field, _ in caught.value.causes}


# 1.0 is not among them: kubectl makes it 1, before the API server could be unsure whether it is a whole number.
VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 7, 8, 64, 65, 1024, 65_536, 65_537, 10**12, 10**18, 2**63 - 1, 1.5),
    *("", " ", "0", "1", "8", "-1", "1.0", "0.4", "1k", "1K", "1Ki", "1ki", "1.5Gi", "0.001k", "1e3", "1E3", "0x10"),
    *("1m", "1M", "0Mi", "999P", "1000P", "888Pi", "889Pi", "1Ei", "1.Ki", ".5Ki", "+1Ki", "1Ki\n", "unlimited"),
    *("0s", "1s", "5m", "1h30m", "30m1h", "1.5h", "1ms", "1us", "1.5us", "0.0001s", "7d", "99999d", "100000d", "1w"),
    *("1 s", "-1s", "1S", "1d" * 16, "1d" * 17, "Stored", "Replicated", "replicated", "Retain", "Delete", "a", "b"),
    *([], ["a"], {}, {"a": 1}, {"min": 1}, {"bytes": "1Ki"}, {"interval": "1s"}, {"age": "1h"}, {"target": {}}),
]
FIELDS = [
    *("partitions", "key", "schema", "durability", "replicas", "segments", "segments.min", "segments.max", "scaling"),
    *("scaling.target", "scaling.target.messagesPerSecond", "scaling.target.bytesPerSecond", "scaling.splitAfter"),
    *("flush", "flush.bytes", "flush.interval", "flush.maxInterval", "retention.age", "retention.bytes"),
    *("deletionPolicy", "nothing"),
]


@pytest.mark.slow
def test_parser_and_api_server_agree_on_any_value_anywhere(kube: KubeClient) -> None:
    """Every value of a list at every field: both accept it, with the same meaning, or both refuse it."""
    cases = [manifest(nested(field, value)) for field, value in itertools.product(FIELDS, VALUES)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda case: _verdict(kube, case), cases))
    wrong = [(case["spec"], *answer) for case, answer in zip(cases, answers, strict=True) if answer[0] != answer[1]]
    assert not wrong, yaml.safe_dump([list(map(str, each)) for each in wrong[:20]])
    accepted = sum(isinstance(answer[0], TopicSpec) for answer in answers)
    assert 100 < accepted < len(cases) - 100, "the values are no test when nearly all are good, or bad"


def _verdict(kube: KubeClient, case: dict[str, Any]) -> tuple[object, object]:
    """What the API server and the parser make of a manifest: a spec, or None."""
    try:
        by_api: object = parse_resource(post(kube, case)).spec
    except KubeApiError as refused:
        by_api = None if refused.code in (400, 422) else refused
    except SpecRejected as invalid:
        by_api = invalid
    try:
        return by_api, parse_resource(case).spec
    except SpecRejected:
        return by_api, None
