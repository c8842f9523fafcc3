"""The parser against the table that tests/integration/kube holds against a real API server too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from smq_core.errors import SpecRejected
from smq_core.model import units
from smq_core.model.entities import Durability, Phase, Reason, TopicSpec
from smq_core.model.keyspace import MAX_KAFKA_PARTITIONS, MAX_PARTITIONS, Partitioner
from smq_storage.chunks.column_types import TYPE_NAMES
from smq_storage.chunks.schemas import RESERVED_COLUMNS
from smq_storage.topic_manifests.fields import MAX_COLUMNS, MAX_RATE, MAX_REPLICAS, MAX_TYPE
from smq_storage.topic_manifests.parser import check_change, parse_manifest, parse_resource, to_manifest
from support.kube.manifest_cases import (
    INVALID_MANIFESTS,
    SPEC_CHANGES,
    VALID_SPECS,
    InvalidManifestCase,
    SpecChange,
    manifest,
)

CRDS = Path(__file__).parents[3] / "crds"


@pytest.mark.parametrize("bad", INVALID_MANIFESTS, ids=lambda bad: bad.id)
def test_a_bad_manifest_is_refused_with_its_field_and_advice(bad: InvalidManifestCase) -> None:
    with pytest.raises(SpecRejected) as caught:
        parse_manifest(json.dumps(bad.manifest))
    assert caught.value.field.startswith(bad.field)
    assert bad.parser in caught.value.message


@pytest.mark.parametrize("manifest", VALID_SPECS.values(), ids=VALID_SPECS)
def test_a_good_manifest_is_taken_and_comes_back(manifest: dict[str, object]) -> None:
    parsed = parse_resource(manifest)
    assert parse_manifest(to_manifest(parsed)) == parsed


@pytest.mark.parametrize("change", SPEC_CHANGES, ids=lambda change: change.id)
def test_changes(change: SpecChange) -> None:
    old, new = (parse_resource(VALID_SPECS["no spec"] | {"spec": spec}).spec for spec in (change.old, change.new))
    if not change.field:
        check_change(old, new)
        return
    with pytest.raises(SpecRejected, match=change.said) as caught:
        check_change(old, new)
    assert caught.value.field.startswith(change.field)


def test_the_table_is_large_and_has_no_duplicates() -> None:
    names = [*(bad.id for bad in INVALID_MANIFESTS), *(change.id for change in SPEC_CHANGES)]
    assert len(INVALID_MANIFESTS) >= 40
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def topic() -> dict[str, dict]:
    return _properties("topics.yaml")


def test_the_crd_has_the_defaults_of_the_spec(topic: dict[str, dict]) -> None:
    def defaults(schema: dict) -> object:
        inner = {name: defaults(field) for name, field in schema.get("properties", {}).items()}
        inner = {name: value for name, value in inner.items() if value is not None}
        return inner or schema.get("default")

    spec = defaults(topic["spec"])
    assert parse_resource(VALID_SPECS["no spec"] | {"spec": spec}).spec == TopicSpec()
    assert "max" not in spec["segments"], "64, or partitions when that is less: no constant"
    early = {**topic["spec"]["default"]}
    assert early.items() <= spec.items(), "rules are checked against this default, before those of its fields"


def test_the_crd_has_the_limits_and_patterns_of_the_parser(topic: dict[str, dict]) -> None:
    fields = topic["spec"]["properties"]
    column = fields["schema"]["items"]["properties"]
    assert fields["partitions"]["maximum"] == MAX_PARTITIONS
    assert fields["partitioner"]["enum"] == [partitioner.value for partitioner in Partitioner]
    kafka = f"self.partitioner != 'Kafka' || self.partitions <= {MAX_KAFKA_PARTITIONS}"
    assert kafka in [rule["rule"] for rule in topic["spec"]["x-kubernetes-validations"]]
    assert fields["replicas"]["maximum"] == MAX_REPLICAS
    assert fields["schema"]["maxItems"] == MAX_COLUMNS
    assert fields["scaling"]["properties"]["target"]["properties"]["messagesPerSecond"]["maximum"] == MAX_RATE
    assert column["type"]["maxLength"] == MAX_TYPE
    assert str(list(RESERVED_COLUMNS)) in column["name"]["x-kubernetes-validations"][1]["rule"]
    text = (CRDS / "topics.yaml").read_text()
    quoted = {p: p.replace("\\", "\\\\") for p in (units.SIZE_PATTERN, units.DURATION_PATTERN)}
    assert text.count(f"'^{quoted[units.SIZE_PATTERN]}$'") == 2
    assert text.count(f"'^{quoted[units.DURATION_PATTERN]}$'") == 2
    assert text.count(f"self <= {units.MAX_SIZE_BYTES} ") == 2
    for name in TYPE_NAMES:
        assert name in column["type"]["description"]


def test_the_crds_have_the_words_of_the_model(topic: dict[str, dict]) -> None:
    segment = _properties("segments.yaml")
    status = segment["status"]["properties"]
    durability = [d.value for d in Durability]
    assert topic["spec"]["properties"]["durability"]["enum"] == durability
    assert segment["spec"]["properties"]["durability"]["enum"] == durability
    assert status["phase"]["enum"] == [phase.value.capitalize() for phase in Phase]
    assert status["openedBecause"]["enum"] == status["sealedBecause"]["enum"] == [r.value for r in Reason]


@pytest.mark.parametrize("name", ["topics.yaml", "segments.yaml"])
def test_every_field_is_described(name: str) -> None:
    def missing(path: str, schema: dict) -> list[str]:
        inner = [*schema.get("properties", {}).items(), *([("[]", schema["items"])] if "items" in schema else [])]
        own = [] if schema.get("description") else [path]
        return own + [found for field, inside in inner for found in missing(f"{path}.{field}", inside)]

    found = [path for field, schema in _properties(name).items() for path in missing(field, schema)]
    assert [path for path in found if not path.startswith("metadata")] == []  # the API forbids it there


def _properties(name: str) -> dict[str, dict]:
    version = yaml.safe_load((CRDS / name).read_text())["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]


@pytest.mark.parametrize(
    ("zone", "exists"), [("Europe/Berlin", True), ("+05:30", True), ("Nowhere", False), ("+25:00", False)]
)
def test_a_time_zone_must_exist(zone: str, exists: bool) -> None:
    columns = [{"name": "at", "type": f"list<timestamp[us, {zone}]>"}]
    if exists:
        assert parse_resource(manifest({"schema": columns})).spec.schema[0].type == columns[0]["type"]
    else:
        with pytest.raises(SpecRejected, match=re.escape(f"no time zone {zone!r}")):
            parse_resource(manifest({"schema": columns}))
