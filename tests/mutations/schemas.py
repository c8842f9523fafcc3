"""Broken rules of schema versions in the leader, the layout's storage and the wire."""

from __future__ import annotations

from .mutation import Mutation

EFFECTS = "operator/smq_operator/reconcile/effects.py"
ADOPTION = "operator/smq_operator/reconcile/topics/adoption.py"
TEST_CHANGE = "tests/unit/operator/reconcile/test_schema_change.py"
TEST_SEALING = "tests/unit/operator/brokers/test_sealing.py"

MUTATIONS = (
    Mutation(
        "open_segments_with_the_columns_of_the_stored_topic",
        "A broker gets the columns of its segment's version.",
        EFFECTS,
        "schema_of(segment.schema_version, reconciler.layout, reconciler.topic.spec.schema)",
        "schema_of(0, reconciler.layout, reconciler.topic.spec.schema)",
        (f"{TEST_CHANGE}::test_brokers_and_clients_get_the_columns_of_their_version",),
    ),
    Mutation(
        "store_the_newest_columns_with_the_topic",
        "The stored topic keeps version 0, which a layout without a history refers to.",
        ADOPTION,
        "spec = replace(spec, schema=known.spec.schema)",
        "pass",
        (f"{TEST_CHANGE}::test_brokers_and_clients_get_the_columns_of_their_version",),
    ),
    Mutation(
        "follow_the_rest_of_a_refused_spec",
        "Nothing of a spec is followed if its schema is refused.",
        ADOPTION,
        "spec, columns, problem = known.spec, None, error.message",
        "columns, problem = None, error.message",
        (f"{TEST_CHANGE}::test_a_dropped_name_is_refused_and_nothing_of_that_spec_is_followed",),
    ),
    Mutation(
        "seal_from_the_filer_with_the_newest_columns",
        "A seal chunk has the schema version of its segment.",
        "operator/smq_operator/brokers/sealing.py",
        "version = layout.segment(step.segment).schema_version",
        "version = layout.schemas[-1].version if layout.schemas else 0",
        (f"{TEST_SEALING}::test_the_seal_has_the_schema_of_its_segment",),
    ),
    Mutation(
        "let_a_former_release_read_a_layout_with_versions",
        "A release that does not know schema versions cannot read a layout that has several.",
        "storage/smq_storage/catalog/layouts.py",
        "_EvolvedLayout(layout) if len(layout.schemas) > 1 else layout",
        "layout",
        (
            "tests/unit/storage/test_json_documents.py::"
            "test_a_release_without_schema_versions_cannot_read_a_layout_that_has_them",
        ),
    ),
    Mutation(
        "send_new_reasons_to_peers_of_a_former_release",
        "A peer that does not know a reason gets one that it knows.",
        "proto/smq_proto/wire.py",
        "_REPLACEMENT_REASONS.get(reason, reason).value",
        "reason.value",
        ("tests/unit/proto/test_wire.py::test_a_peer_of_the_release_before_gets_reasons_that_it_knows",),
    ),
)
