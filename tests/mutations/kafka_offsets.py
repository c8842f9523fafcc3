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

SEGMENT_LOG = "storage/smq_storage/partitions/segment_log.py"
HISTORY = "storage/smq_storage/partitions/history.py"
READER = "storage/smq_storage/partitions/reader.py"
FILE_ROWS = "storage/smq_storage/partitions/file_rows.py"
SPLIT_ROWS = "storage/smq_storage/partitions/split_rows.py"
TEST_READER = "tests/unit/storage/partitions/test_partition_reader.py"
TEST_ALL_MESSAGES = (
    f"{TEST_READER}::test_all_messages_of_a_partition_are_read_through_splits_merges_losses_uploads_and_compactions"
)

PRODUCERS = "core/smq_core/model/kafka_producers.py"
PRODUCER_MAP = "core/smq_core/replica/kafka_producer_map.py"
TEST_PRODUCERS = "tests/unit/core/replica/test_kafka_producers.py"
TEST_REPLICATED = "tests/unit/broker/rows/test_replicated_kafka_batches.py"

MUTATIONS = (
    Mutation(
        "accept_a_gap_of_a_kafka_producer",
        "A batch of a Kafka producer whose predecessor is missing is refused.",
        PRODUCERS,
        "if id_.sequence != expected:",
        "if id_.sequence < expected:",
        (f"{TEST_PRODUCERS}::test_a_gap_an_older_epoch_and_a_batch_of_another_size_are_refused",),
    ),
    Mutation(
        "accept_an_older_epoch_of_a_kafka_producer",
        "A Kafka producer with an older epoch is refused.",
        PRODUCERS,
        "if id_.epoch < self.epoch:",
        "if False:",
        (f"{TEST_PRODUCERS}::test_a_gap_an_older_epoch_and_a_batch_of_another_size_are_refused",),
    ),
    Mutation(
        "begin_an_epoch_of_a_kafka_producer_anywhere",
        "A new epoch of a Kafka producer begins with sequence 0.",
        PRODUCERS,
        "        expected = 0\n",
        "        expected = id_.sequence\n",
        (f"{TEST_PRODUCERS}::test_a_new_epoch_begins_at_zero_and_forgets_the_batches_before",),
    ),
    Mutation(
        "remember_a_kafka_producer_for_ever",
        "A Kafka producer whose last batch is a day old is forgotten.",
        PRODUCER_MAP,
        " or next(iter(states.values())).appended < oldest",
        "",
        (f"{TEST_PRODUCERS}::test_idle_producers_are_forgotten",),
    ),
    Mutation(
        "remember_any_number_of_kafka_producers",
        "A log remembers a bounded number of Kafka producers.",
        PRODUCER_MAP,
        "len(states) > MAX_COUNT or ",
        "",
        (f"{TEST_PRODUCERS}::test_of_too_many_producers_the_oldest_are_forgotten",),
    ),
    Mutation(
        "forget_kafka_producers_only_where_batches_are_appended",
        "Who reads a chunk forgets the same Kafka producers as who appended its batches.",
        PRODUCER_MAP,
        "        if changed:\n            self._forget()\n",
        "",
        ("tests/property/test_kafka_producers_in_chunks.py",),
    ),
    Mutation(
        "replicate_kafka_batches_without_their_ids",
        "Followers and journals know the producer and the sequences of a Kafka batch.",
        "broker/smq_broker/rows/replication_messages.py",
        "        encoded.kafka_batch.sequence = id_.sequence\n",
        "",
        (f"{TEST_REPLICATED}::test_the_ids_of_batches_and_what_was_inherited_are_replicated",),
    ),
    Mutation(
        "replicate_no_inherited_kafka_producers",
        "Followers and journals know which Kafka producers a segment has inherited.",
        "broker/smq_broker/rows/replication_messages.py",
        "        inherited_kafka_producers=kafka_producers_to_pb(entry.inherited_kafka_producers or {}),\n",
        "",
        (f"{TEST_REPLICATED}::test_the_ids_of_batches_and_what_was_inherited_are_replicated",),
    ),
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
        "count_the_messages_of_repeats",
        "A repeat is in the log, so nobody reads its upload again to count its messages.",
        "core/smq_core/replica/segment_replica.py",
        "        expected = self._producers.expected(id_.producer, id_.epoch)\n        if id_.sequence > expected:",
        "        self._require_counts(batch)\n"
        "        expected = self._producers.expected(id_.producer, id_.epoch)\n        if id_.sequence > expected:",
        (f"{TEST_OFFSETS}::test_a_repeat_counts_nothing_because_its_upload_is_not_read_again",),
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
    Mutation(
        "take_a_later_file_of_a_partition",
        "A Kafka offset is in the first file whose ends are above it.",
        SEGMENT_LOG,
        "return found is None or found.ends.end(partition) > offset\n",
        "return found is None or found.ends.end(partition) > offset + 1\n",
        (f"{TEST_READER}::test_each_message_is_found_by_its_offset",),
    ),
    Mutation(
        "pass_a_segment_that_is_not_known_to_be_sealed",
        "The successors of a segment are read only after its seal chunk was found.",
        HISTORY,
        "            if segment.seal() is None:\n                return None, False\n",
        "",
        (f"{TEST_READER}::test_a_successor_is_not_read_while_chunks_of_its_predecessor_are_not_found",),
    ),
    Mutation(
        "take_a_hidden_chunk_for_the_end",
        "A segment whose seal chunk is known does not end before it.",
        SEGMENT_LOG,
        "            if self._seal is not None:  # known from a listing, and after this chunk\n",
        "            if False:\n",
        (f"{TEST_READER}::test_a_chunk_that_the_filer_hides_before_the_seal_chunk_is_not_passed",),
    ),
    Mutation(
        "pass_a_file_that_cannot_be_read",
        "The messages of a file that cannot be read are not skipped.",
        HISTORY,
        "if offset < start and found.unreadable is not None:",
        "if False:",
        (f"{TEST_READER}::test_a_file_that_is_gone_is_lost_after_a_second_look",),
    ),
    Mutation(
        "number_the_first_messages_after_a_jump_without_it",
        "The messages of a file with a jump end where the file's ends say.",
        SEGMENT_LOG,
        "if before is None or any(partition == jumping for jumping, _ in before.ends.jumps):",
        "if before is None:",
        (f"{TEST_READER}::test_a_jump_within_a_segment_is_where_its_first_message_is",),
    ),
    Mutation(
        "read_over_a_jump",
        "One read has messages with contiguous Kafka offsets.",
        READER,
        "(place.epoch, place.offset) != (first.epoch, offset)",
        "place.epoch != first.epoch and place.offset < 0",
        (f"{TEST_READER}::test_messages_after_a_loss_come_after_a_jump",),
    ),
    Mutation(
        "read_messages_that_the_ends_do_not_count",
        "A file must have as many messages of a partition as its ends say.",
        READER,
        "if count != place.end - place.start or not rows.num_rows:",
        "if not rows.num_rows:",
        (f"{TEST_READER}::test_a_chunk_whose_messages_are_not_those_of_its_ends_is_corrupt",),
    ),
    Mutation(
        "begin_at_offset_0_after_retention",
        "A read of messages that retention has removed is an error.",
        READER,
        "        if offset < start:\n",
        "        if False:\n",
        (f"{TEST_READER}::test_messages_that_retention_removed_are_lost_and_the_log_starts_after_them",),
    ),
    Mutation(
        "merge_files_with_the_ends_of_the_first",
        "A merged file has the Kafka offsets after its last row.",
        "storage/smq_storage/compaction/merging.py",
        "replace_schema_metadata(parts[-1].schema.metadata)",
        "replace_schema_metadata(parts[0].schema.metadata)",
        (f"{TEST_READER}::test_a_reader_that_planned_before_a_compaction_reads_the_merged_file",),
    ),
    Mutation(
        "ignore_that_an_upload_is_shared",
        "Of an upload a segment has the rows that its reference names.",
        FILE_ROWS,
        "start = max(first, file.first_row)",
        "start = first",
        (f"{TEST_READER}::test_a_part_of_an_upload_is_read",),
    ),
    Mutation(
        "believe_the_footer_of_an_upload",
        "An upload must have the messages of a partition that its footer says.",
        FILE_ROWS,
        "if rows.counts.get(partition, 0) != min(stop, end) - max(first, start):",
        "if False:",
        (f"{TEST_READER}::test_an_upload_whose_footer_is_wrong_is_corrupt",),
    ),
    Mutation(
        "split_messages_without_their_order",
        "The messages of a partition stay in the order of the log.",
        SPLIT_ROWS,
        "order = sort_order(partitions)",
        "order = sort_order(partitions)[::-1]",
        (f"{TEST_ALL_MESSAGES}[0]",),
    ),
)
