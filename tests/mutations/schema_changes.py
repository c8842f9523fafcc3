"""Broken rules of changing schemas: what producers send, what readers get, what the leader accepts."""

from __future__ import annotations

from .mutation import Mutation

ENGINE = "client/smq/producing/engine.py"
VERSIONS = "client/smq/producing/sub_batch_versions.py"
PRODUCER = "client/smq/producer.py"
TEST = "tests/unit/client/test_schema_changes.py"
CONSUMER = "client/smq/consumer.py"
NEWEST = "client/smq/consuming/newest_schema.py"
TEST_NEWEST = "tests/unit/client/test_newest_schema.py"
RESHAPING = "storage/smq_storage/chunks/reshaping.py"
TEST_RESHAPING = "tests/unit/storage/test_reshaping.py"
LEADER = "operator/smq_operator/api/schema_changes.py"
TEST_LEADER = "tests/unit/operator/api/test_schema_changes.py"

MUTATIONS = (
    # ---- producers
    Mutation(
        "send_new_columns_to_an_old_segment",
        "A batch of a newer schema waits for the successor.",
        VERSIONS,
        "return sub_batch.schema_version <= segment.schema_version",
        "return True",
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
        ENGINE,
        "error.message)\n        self.failure = error\n",
        "error.message)\n",
        (f"{TEST}::test_values_of_a_dropped_column_stop_the_producer",),
    ),
    Mutation(
        "write_to_successors_whose_schema_is_not_known",
        "Successors of an unknown schema wait for the layout that has it.",
        ENGINE,
        "known = bool(successors) and self._versions.has_all(successors)",
        "known = bool(successors)",
        (f"{TEST}::test_successors_of_an_unknown_version_wait_for_the_layout",),
    ),
    Mutation(
        "hold_messages_that_fit_the_old_schema",
        "Messages that fit the old schema are sent to its segments until these are sealed.",
        PRODUCER,
        "                if not self._newest_encoder.dropped <= self._encoder.dropped:\n                    self",
        "                if True:\n                    self",
        (f"{TEST}::test_messages_that_do_not_need_the_new_columns_are_sent_until_the_seal",),
    ),
    Mutation(
        "accept_a_dropped_column",
        "A producer refuses a column from the moment on in which it learns that it was dropped.",
        PRODUCER,
        "                if not self._newest_encoder.dropped <= self._encoder.dropped:\n                    self",
        "                if False:\n                    self",
        (f"{TEST}::test_a_producer_follows_the_newest_schema",),
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
        "convert_a_consumer_that_wants_its_own",
        'With schema="own" a batch has the columns with which it was written.',
        CONSUMER,
        'NewestSchema() if schema == "newest" else None',
        "NewestSchema()",
        (f"{TEST_NEWEST}::test_a_consumer_may_get_the_columns_with_which_messages_were_written",),
    ),
    # ---- the leader
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
        "    if preview or new is present:\n",
        "    if new is present:\n",
        (f"{TEST_LEADER}::test_a_preview_and_the_same_columns_change_nothing",),
    ),
)
