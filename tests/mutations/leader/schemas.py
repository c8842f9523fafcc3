"""Broken rules of schemas that change: in producers, readers and the leader, and between releases."""

from __future__ import annotations

from ..mutation import Mutation

MACHINE = "core/smq_core/producing/producer_machine.py"
VERSIONS = "client/smq/producing/batching/sub_batch_versions.py"
PRODUCER = "client/smq/producer.py"
TEST = "tests/unit/client/producing/test_schema_changes.py"
RETURNED_COLUMNS = "client/smq/consuming/returned_columns.py"
NEWEST = "client/smq/consuming/newest_schema.py"
TEST_NEWEST = "tests/unit/client/consuming/test_newest_schema.py"
RESHAPING = "storage/smq_storage/chunks/reshaping.py"
TEST_RESHAPING = "tests/unit/storage/test_reshaping.py"
ROLLOUT = "core/smq_core/reconcile/schema_rollout.py"
TEST_ROLLOUT = "tests/unit/core/reconcile/test_schema_rollout.py"
LEADER = "operator/smq_operator/api/topic_changes.py"
TEST_LEADER = "tests/unit/operator/api/test_topic_changes.py"
SPEC_PATCH = "storage/smq_storage/topic_manifests/spec_patch.py"
SETTINGS = "storage/smq_storage/topic_manifests/topic_settings.py"
TEST_SETTINGS = "tests/unit/storage/test_topic_settings.py"
FOLDER = "operator/smq_operator/local/topic_manifests.py"
TEST_FOLDER = "tests/unit/operator/local/test_manifests.py"
EFFECTS = "operator/smq_operator/reconcile/effects.py"
ADOPTION = "operator/smq_operator/reconcile/topics/adoption.py"
TEST_CHANGE = "tests/unit/operator/reconcile/test_schema_change.py"
TEST_SEALING = "tests/unit/operator/brokers/test_sealing.py"

MUTATIONS = (
    # ---- producers
    Mutation(
        "send_new_columns_to_an_old_segment",
        "A batch of a newer schema waits for the successor.",
        "client/smq/producing/batching/partitioning.py",
        "return is_uploaded and self.schema_version <= segment.schema_version",
        "return is_uploaded",
        (f"{TEST}::test_a_batch_with_new_columns_waits_for_the_successor",),
    ),
    Mutation(
        "leave_out_values_of_a_dropped_column",
        "Values of a dropped column are never left out silently.",
        VERSIONS,
        "    if lost:\n        raise",
        "    if False:\n        raise",
        (f"{TEST}::test_values_of_a_dropped_column_stop_the_producer",),
    ),
    Mutation(
        "go_on_after_values_of_a_dropped_column",
        "Nothing overtakes a message that the new schema has no column for.",
        MACHINE,
        "        self.failure = error\n        for",
        "        for",
        (f"{TEST}::test_values_of_a_dropped_column_stop_the_producer",),
    ),
    Mutation(
        "write_to_successors_whose_schema_is_not_known",
        "Successors of an unknown schema wait for the layout that has it.",
        MACHINE,
        "is_target and self._rows.has_schemas(successors)",
        "is_target",
        (f"{TEST}::test_successors_of_an_unknown_version_wait_for_the_layout",),
    ),
    Mutation(
        "hold_what_needs_no_new_column",
        "Only what needs the new columns waits for the successor.",
        VERSIONS,
        "return _narrowed(sub_batch, segment, versions)",
        "return sub_batch",
        (f"{TEST}::test_messages_that_do_not_need_the_new_columns_are_sent_until_the_seal",),
    ),
    Mutation(
        "cut_values_to_the_older_type",
        "A value that the older type does not hold is not sent to an older segment.",
        RESHAPING,
        "if not _same_values(values.cast(column.source_type), wide):",
        "if False:",
        (f"{TEST_RESHAPING}::test_rows_that_use_something_new_do_not_go_back",),
    ),
    # ---- readers
    Mutation(
        "widen_without_a_look_at_the_sign",
        "An unsigned column does not become a signed one.",
        RESHAPING,
        "pa.types.is_unsigned_integer(wide) and",
        "pa.types.is_integer(wide) and",
        (f"{TEST_RESHAPING}::test_which_types_are_wider",),
    ),
    Mutation(
        "leave_out_columns_that_the_snapshot_does_not_know",
        "A batch of a newer schema than the snapshot's stays as it is.",
        NEWEST,
        "return field.name in self._newest.dropped",
        "return True",
        (f"{TEST_NEWEST}::test_rows_of_a_newer_schema_stay_as_they_are",),
    ),
    Mutation(
        "convert_batches_that_keep_their_own_columns",
        'With schema="own" a batch has the columns with which it was written.',
        RETURNED_COLUMNS,
        "NewestSchema() if newest else None",
        "NewestSchema()",
        (f"{TEST_NEWEST}::test_a_consumer_may_get_the_columns_with_which_messages_were_written",),
    ),
    # ---- the leader
    Mutation(
        "seal_all_segments_at_once",
        "A new schema seals a few segments at a time.",
        ROLLOUT,
        "if len(stalled) >= limit:",
        "if False:",
        (f"{TEST_ROLLOUT}::test_a_share_of_the_segments_is_sealed_at_a_time",),
    ),
    Mutation(
        "wait_for_a_seal_whose_primary_is_dead",
        "A seal whose primary is dead holds up no other segment.",
        ROLLOUT,
        "segment.name not in sealed and _is_alive(segment.primary.incarnation, brokers)",
        "segment.name not in sealed",
        (f"{TEST_ROLLOUT}::test_a_seal_that_waits_for_a_dead_primary_holds_up_no_other",),
    ),
    Mutation(
        "count_seals_that_are_done",
        "The next segment does not wait for the cleanup after the seal before.",
        ROLLOUT,
        "segment.name not in sealed and _is_alive",
        "_is_alive",
        (f"{TEST_ROLLOUT}::test_a_seal_counts_until_its_seal_chunk_exists",),
    ),
    Mutation(
        "overwrite_a_change_of_somebody_else",
        "A change is refused if the caller has not seen the present version.",
        LEADER,
        "    if present.version != version:\n",
        "    if False:\n",
        (f"{TEST_LEADER}::test_what_is_not_allowed_is_refused_by_column_and_changes_nothing",),
    ),
    Mutation(
        "change_columns_in_a_preview",
        "A preview changes nothing.",
        LEADER,
        "    if preview or change.before == change.after:\n",
        "    if change.before == change.after:\n",
        (
            f"{TEST_LEADER}::test_a_preview_and_the_same_columns_change_nothing",
            f"{TEST_LEADER}::test_settings_change_alone_and_all_others_stay",
        ),
    ),
    Mutation(
        "replace_the_spec_by_the_settings_that_change",
        "Settings that a change does not name stay.",
        SPEC_PATCH,
        "made[name] = patched_spec(inside if isinstance(inside, Mapping) else {}, value)",
        "made[name] = dict(value)",
        (f"{TEST_LEADER}::test_settings_change_alone_and_all_others_stay",),
    ),
    Mutation(
        "apply_a_manifest_in_a_preview",
        "A preview writes nothing.",
        FOLDER,
        "        if not preview:\n            self._write(",
        "        if True:\n            self._write(",
        (f"{TEST_FOLDER}::test_a_preview_writes_nothing_and_says_what_would_change",),
    ),
    Mutation(
        "lower_the_retention_without_a_word",
        "A change says what is lost by it.",
        SETTINGS,
        "    if _is_lower(new.retention_age, old.retention_age):\n",
        "    if False:\n",
        (f"{TEST_SETTINGS}::test_a_change_is_described_with_what_is_lost",),
    ),
    Mutation(
        "take_unlimited_for_less_than_any_limit",
        "A limit where there was none lowers it.",
        SETTINGS,
        "new is not None and (old is None or new < old)",
        "new is not None and old is not None and new < old",
        (f"{TEST_SETTINGS}::test_a_change_is_described_with_what_is_lost",),
    ),
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
    # ---- other releases
    Mutation(
        "let_a_former_release_read_a_layout_with_versions",
        "A release that does not know schema versions cannot read a layout whose schema has changed.",
        "storage/smq_storage/catalog/layouts.py",
        "if layout.schemas and layout.schemas[-1].version else layout",
        "if len(layout.schemas) > 1 else layout",
        (
            "tests/unit/storage/test_json_documents.py::"
            "test_a_release_without_schema_versions_cannot_read_a_layout_that_has_them",
        ),
    ),
    Mutation(
        "refuse_segments_with_reasons_of_a_later_release",
        "A reason of a later release does not hide its segment.",
        "proto/smq_proto/wire.py",
        "return Reason(REASON.word(value)) if value in pb.Reason.values() else Reason.ROLL",
        "return Reason(REASON.word(value))",
        ("tests/unit/proto/test_wire.py::test_a_reason_of_a_later_release_does_not_hide_the_segment",),
    ),
    Mutation(
        "take_a_new_status_for_a_new_spec",
        "Only another spec is a conflict: whoever writes the status at the same time changes nothing.",
        "operator/smq_operator/kube/platform.py",
        "            return False\n        except KubeError",
        "            raise Conflict(topic) from None\n        except KubeError",
        ("tests/unit/operator/kube/test_spec_changes.py::test_a_status_that_is_written_meanwhile_is_no_conflict",),
    ),
)
