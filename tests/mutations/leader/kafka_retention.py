"""Broken rules of retention whose loss would remove what Kafka clients have not read, or keep it for ever."""

from __future__ import annotations

from ..mutation import Mutation

CORE = "core/smq_core/reconcile/kafka_retention.py"
TEST_CORE = "tests/unit/core/reconcile/test_kafka_retention.py"
EDGE = "operator/smq_operator/cleanup/kafka_retention.py"
SILENCE = "operator/smq_operator/cleanup/kafka_silence.py"
GROUPS = "operator/smq_operator/groups/kafka_groups.py"
TEST = "tests/unit/operator/cleanup/test_kafka_retention.py"
TEST_LAGS = "tests/unit/operator/groups/test_kafka_group_lags.py"
COORDINATOR = "broker/smq_broker/kafka/groups/coordinator.py"

MUTATIONS = (
    Mutation(
        "keep_what_no_kafka_group_lacks",
        "A partition without messages in a segment keeps nothing, also if nothing is committed there.",
        CORE,
        "max(group.offsets.get(at, 0), segment.starts.get(at, 0))",
        "group.offsets.get(at, 0)",
        (f"{TEST}::test_segments_stay_until_a_group_has_committed_their_ends",),
    ),
    Mutation(
        "remove_what_a_kafka_group_has_committed_nothing_of",
        "Where a group has committed nothing of a partition, it may still read it.",
        CORE,
        "group.offsets.get(at, 0)",
        "group.offsets.get(at, segment.ends.end(at))",
        (TEST_CORE, f"{TEST}::test_segments_stay_until_a_group_has_committed_their_ends"),
    ),
    Mutation(
        "remove_successors_of_what_kafka_groups_hold",
        "Nothing is removed before its predecessors.",
        CORE,
        "return any(name in self._kept for name in removal.segment.predecessors)",
        "return False",
        (f"{TEST_CORE}::test_what_follows_a_segment_that_stays_stays_too",),
    ),
    Mutation(
        "remove_segments_whose_offsets_are_unknown",
        "A segment stays while nobody knows where its partitions end.",
        CORE,
        "if offsets is None and self._keeps_unread:",
        "if False:",
        (
            f"{TEST_CORE}::test_a_segment_whose_offsets_are_not_known_stays",
            f"{TEST}::test_a_segment_without_its_seal_chunk_stays",
        ),
    ),
    Mutation(
        "wait_for_abandoned_kafka_groups",
        "An abandoned group holds nothing.",
        CORE,
        "if not self._keeps_unread or is_active(spec, group.last_active_at, now)",
        "if True",
        (f"{TEST_CORE}::test_a_group_that_is_abandoned_holds_nothing",),
    ),
    Mutation(
        "call_kafka_groups_abandoned_that_could_not_write",
        "After an outage of brokers members need a while to connect again.",
        SILENCE,
        "        if not any(it.kafka_address for it in self._registry.alive(now)):\n"
        "            self._brokers_since = None\n        elif",
        "        if",
        (f"{TEST}::test_silence_counts_only_while_groups_could_write",),
    ),
    Mutation(
        "call_kafka_groups_abandoned_after_an_outage_of_the_filer",
        "After an outage of the filer members need a while to commit again.",
        SILENCE,
        "            and clocks.filer - clocks.answers_since >= REJOIN_TIME\n",
        "",
        (f"{TEST}::test_silence_counts_only_while_groups_could_write",),
    ),
    Mutation(
        "skip_kafka_groups_that_are_not_returned",
        "Nothing is removed while the document of a group is not returned: unknown is not gone.",
        GROUPS,
        "        if not is_complete:",
        "        if False:",
        (f"{TEST}::test_nothing_is_known_of_groups_while_a_document_is_not_returned",),
    ),
    Mutation(
        "skip_kafka_groups_that_are_damaged",
        "A group with a damaged document counts as one that has read nothing.",
        GROUPS,
        "return self.stored is None or uid in self.offsets",
        "return uid in self.offsets",
        (f"{TEST}::test_a_group_with_a_damaged_document_has_read_nothing",),
    ),
    Mutation(
        "trust_a_document_that_may_change_within_its_second",
        "A document is read again if it was written in the second in which it was read.",
        GROUPS,
        "is_current=clocks.filer - record.modified_at > MODIFIED_RESOLUTION,",
        "is_current=True,",
        (f"{TEST}::test_only_documents_that_have_changed_are_read_again",),
    ),
    Mutation(
        "trust_one_clock_about_kafka_groups",
        "A group is as active as the later of both clocks says.",
        GROUPS,
        "clocks.age(record.active_at, record.modified_at)",
        "clocks.age(record.active_at, None)",
        (f"{TEST}::test_a_group_is_as_active_as_the_later_of_both_clocks_says",),
    ),
    Mutation(
        "never_write_for_kafka_groups_that_commit_nothing",
        "A group with members stays active while it commits nothing.",
        COORDINATOR,
        "elif group.is_owned and now - group.written_at > TOUCH_SECONDS:",
        "elif False:",
        (
            "tests/unit/broker/kafka/test_group_coordinator.py"
            "::test_the_document_of_a_group_with_members_is_written_now_and_then",
        ),
    ),
    Mutation(
        "do_not_look_for_kafka_groups",
        "The leader reads the groups of Kafka clients before it removes anything.",
        "operator/smq_operator/cleanup/garbage_collection.py",
        "readers = await self._read_readers(topic, clocks) if topic.spec.retention_keeps_unread else None",
        "readers = None",
        (f"{TEST}::test_the_leader_reads_the_groups_before_it_removes[True]",),
    ),
    Mutation(
        "count_no_lag_in_living_segments",
        "The lag counts messages of living segments, too.",
        "storage/smq_storage/partitions/stored_ends.py",
        "        if last is not None:",
        "        if False:",
        (
            f"{TEST_LAGS}::test_the_ends_of_partitions_are_those_of_sealed_and_living_segments",
            f"{TEST_LAGS}::test_the_lag_is_what_is_not_committed_of_each_partition",
        ),
    ),
    Mutation(
        "subtract_what_a_group_has_read_beyond_files",
        "A group that has read more than is in files has no lag there, and no other lag is less because of it.",
        "operator/smq_operator/groups/kafka_group_lags.py",
        "max(0, end - committed)",
        "end - committed",
        (f"{TEST_LAGS}::test_the_lag_is_what_is_not_committed_of_each_partition",),
    ),
)
