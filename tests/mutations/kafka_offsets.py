"""Broken rules of Kafka's offsets outside of the log's state machine, whose rules the simulation breaks."""

from __future__ import annotations

from .mutation import Mutation

INDEX = "storage/smq_storage/catalog/sealed_index.py"
TEST_INDEX = "tests/unit/storage/test_sealed_index.py"
TEST_PREDECESSORS = "tests/unit/broker/segments/test_predecessors.py"
OFFSETS = "core/smq_core/model/partition_offsets.py"
TEST_OFFSETS = "tests/unit/core/replica/test_partition_offsets.py"
COUNTED = "storage/smq_storage/verification/counted_partitions.py"
TEST_COUNTED = "tests/unit/storage/verification/test_counted_partitions.py"
TEST_PROCESSES = "tests/integration/client/topics/test_kafka_offsets.py"

MUTATIONS = (
    Mutation(
        "count_a_repeated_append_again",
        "A segment that is in the index already does not move the partitions' ends again.",
        INDEX,
        "[ring.sealed[entry.name] for entry in taken[len(page.entries) :]]",
        "list(ring.sealed.values())",
        (f"{TEST_INDEX}::test_a_loss_that_was_appended_again_counts_once",),
    ),
    Mutation(
        "begin_anew_on_each_page",
        "A new page of the index continues from the ends in the one before.",
        INDEX,
        "before = _partitions([it for _, it, _ in pages]) or offsets_from_zero(ring.partitions)",
        "before = page.partitions or offsets_from_zero(ring.partitions)",
        (f"{TEST_INDEX}::test_a_new_page_keeps_the_ends_of_partitions_that_it_does_not_move",),
    ),
    Mutation(
        "forget_the_ends_of_removed_segments",
        "Where the partitions of a removed segment ended is known from the index.",
        "broker/smq_broker/segments/predecessors.py",
        "None if index.partitions is None else index.partitions.of(range_of(segment))",
        "None",
        (f"{TEST_PREDECESSORS}::test_it_continues_the_kafka_offsets_of_one_that_retention_has_removed",),
    ),
    Mutation(
        "begin_partitions_without_a_known_end_at_zero",
        "A partition whose end nobody knows is an error.",
        OFFSETS,
        "    if missing:\n",
        "    ends |= dict.fromkeys(missing, 0)\n    if False:\n",
        (f"{TEST_OFFSETS}::test_a_partition_without_a_known_end_is_an_error",),
    ),
    Mutation(
        "let_jumps_replace_each_other",
        "Jumps over several losses add up.",
        OFFSETS,
        "jumps[partition] = jumps.get(partition, 0) + by",
        "jumps[partition] = by",
        (f"{TEST_OFFSETS}::test_jumps_of_several_segments_add_up",),
    ),
    Mutation(
        "append_a_batch_that_does_not_count_its_messages",
        "A batch counts all its messages by partition, or is refused.",
        "core/smq_core/replica/segment_replica.py",
        "if self.config.counts_partitions and sum(rows for _, rows in batch.partition_rows) != batch.rows:",
        "if False:",
        (f"{TEST_OFFSETS}::test_a_batch_that_does_not_count_all_its_messages_is_refused_and_changes_nothing",),
    ),
    Mutation(
        "do_not_count_uploads",
        "The messages of an upload are counted by its footer.",
        "broker/smq_broker/producers/producer_session.py",
        "if incoming.reference is not None and machine.config.counts_partitions:",
        "if False:",
        (f"{TEST_PROCESSES}::test_offsets_are_dense_through_all_segments",),
    ),
    Mutation(
        "believe_the_kafka_offsets_of_chunks",
        "A verification compares the ends of partitions with the messages.",
        COUNTED,
        "rows != counts.get(partition, 0)]",
        "rows < 0]",
        (f"{TEST_COUNTED}::test_ends_that_do_not_grow_by_the_messages_are_a_problem",),
    ),
)
