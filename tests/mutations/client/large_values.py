"""Broken rules of large values: their uploads, their names in the log, how they are read and deleted."""

from __future__ import annotations

from ..mutation import Mutation

PARTITIONING = "client/smq/producing/batching/partitioning.py"
TOPIC_ROWS = "client/smq/producing/batching/topic_rows.py"
OUTCOMES = "client/smq/producing/batch_outcomes.py"
MACHINE = "core/smq_core/producing/producer_machine.py"
PRODUCER = "client/smq/producer.py"
BATCHER = "client/smq/producing/message_batcher.py"
BUILDER = "client/smq/producing/batching/batch_builder.py"
UPLOADER = "client/smq/producing/uploads/large_values.py"
FETCH_OUTPUT = "client/smq/consuming/fetching/fetch_output.py"
FILE_FETCHER = "client/smq/consuming/fetching/file_fetcher.py"
FORMAT = "storage/smq_storage/uploads/large_values.py"
SESSION = "broker/smq_broker/producers/producer_session.py"
CHECKER = "broker/smq_broker/producers/upload_checker.py"
REPLICATION = "broker/smq_broker/rows/replication_messages.py"
ENTRIES = "core/smq_core/replica/log_entries.py"
PLANNING = "core/smq_core/replica/chunk_planning.py"
STATISTICS = "storage/smq_storage/tables/file_statistics.py"
FILE_LISTS = "storage/smq_storage/tables/file_lists.py"
RETENTION = "operator/smq_operator/cleanup/retention.py"
COLLECTION = "operator/smq_operator/cleanup/unreferenced_uploads.py"

TEST_PRODUCER = "tests/unit/client/uploads/test_large_values.py"
TEST_CONSUMER = "tests/unit/client/test_large_values.py"
TEST_BROKER = "tests/unit/broker/producers/test_large_values.py"
TEST_CHUNKS = "tests/unit/core/replica/test_large_values.py"
TEST_FORMAT = "tests/unit/storage/uploads/test_large_values.py"
TEST_FILE_LISTS = "tests/unit/storage/tables/test_file_lists.py"
TEST_COLLECTION = "tests/unit/operator/cleanup/test_file_list_collection.py"

MUTATIONS = (
    # ---- producers
    Mutation(
        "send_a_message_before_its_value_is_uploaded",
        "A message is sent after its value, and so is what is behind it.",
        PARTITIONING,
        "is_uploaded = self.large_value is None or self.large_value.uploaded",
        "is_uploaded = True",
        (f"{TEST_PRODUCER}::test_a_large_value_waits_for_its_upload_and_keeps_its_place",),
    ),
    Mutation(
        "send_no_names",
        "A sub-batch names the objects with its values.",
        "client/smq/producing/lanes/lane.py",
        "        added.large_values.append(sub_batch.large_value.value.name)\n",
        "        pass\n",
        ("tests/unit/client/producing/test_producer_lane.py::test_a_sub_batch_names_what_was_uploaded",),
    ),
    Mutation(
        "keep_a_message_whose_upload_failed",
        "A failed upload fails its message, and what is behind it goes on.",
        MACHINE,
        "failed = [it for it in send_queue.queue if it.large_value is event.large_value]",
        "failed = []",
        (f"{TEST_PRODUCER}::test_a_failed_upload_fails_its_delivery_and_no_other[True]",),
    ),
    Mutation(
        "queue_a_message_whose_upload_failed",
        "A message whose upload failed before it was queued fails, too.",
        TOPIC_ROWS,
        "        if sub_batch.large_value is not None and sub_batch.large_value.error is not None:\n",
        "        if False:\n",
        (f"{TEST_PRODUCER}::test_a_failed_upload_fails_its_delivery_and_no_other[False]",),
    ),
    Mutation(
        "count_no_bytes_of_uploads",
        "The bytes that are being uploaded are in flight.",
        PRODUCER,
        "                self._engine.reserve(size, self._timeout)\n                return ",
        "                self._engine.reserve(0, self._timeout)\n                return ",
        (f"{TEST_PRODUCER}::test_the_bytes_of_uploads_are_in_flight",),
    ),
    Mutation(
        "forget_the_bytes_of_an_upload_at_the_timeout",
        "A message that timed out takes its bytes of the budget until its upload ends.",
        OUTCOMES,
        "        if large is not None and not large.uploaded:\n            large.reserved",
        "        if False:\n            large.reserved",
        (f"{TEST_PRODUCER}::test_a_message_that_timed_out_takes_its_budget_until_its_upload_ends",),
    ),
    Mutation(
        "wake_no_sender_after_a_timeout",
        "What waits behind a message that timed out is sent.",
        MACHINE,
        "                is_dropped = True\n",
        "",
        (f"{TEST_PRODUCER}::test_what_waits_behind_a_message_that_times_out_is_sent",),
    ),
    Mutation(
        "upload_for_a_producer_that_failed",
        "Nothing more is uploaded for a producer that failed.",
        UPLOADER,
        " or self._has_failed():",
        ":",
        (f"{TEST_PRODUCER}::test_nothing_more_is_uploaded_for_a_producer_that_failed",),
    ),
    Mutation(
        "upload_after_the_deadline",
        "A value that waited until its deadline is not uploaded.",
        UPLOADER,
        "too_late = time.monotonic() + backoff.seconds >= deadline",
        "too_late = False",
        (f"{TEST_PRODUCER}::test_a_value_that_waited_until_its_deadline_is_not_uploaded",),
    ),
    Mutation(
        "let_a_large_value_overtake",
        "What was sent before a large value goes first.",
        BATCHER,
        "            self._close_current()\n            self._unresolved.add(batch.delivery_state)\n",
        "            self._unresolved.add(batch.delivery_state)\n",
        (f"{TEST_PRODUCER}::test_what_still_waits_for_others_goes_first",),
    ),
    Mutation(
        "accept_the_reserved_header",
        "A program cannot send the header that large values have.",
        BUILDER,
        "    if reserved_header(pairs):\n",
        "    if False:\n",
        (f"{TEST_PRODUCER}::test_the_reserved_header_is_refused",),
    ),
    Mutation(
        "take_an_earlier_attempt_for_another_object",
        "An object of that name is what an earlier attempt wrote.",
        UPLOADER,
        "            except ObjectExists:\n                return",
        "            except ObjectExists:\n                raise StoreUnavailable('exists') from None",
        (f"{TEST_PRODUCER}::test_an_upload_without_a_clear_answer_is_repeated_under_its_name",),
    ),
    # ---- the log
    Mutation(
        "check_no_objects",
        "A primary takes no message whose object is missing or may be collected.",
        "broker/smq_broker/producers/received_batches.py",
        "return self.incoming.reference or self.incoming.large_values or None",
        "return self.incoming.reference",
        (f"{TEST_BROKER}::test_a_batch_whose_object_is_missing_is_rejected_and_the_session_goes_on",),
    ),
    Mutation(
        "publish_old_objects",
        "A primary takes no object that may be collected meanwhile.",
        CHECKER,
        "        check_age(name, ",
        "        check_age(name, 0 * ",
        (f"{TEST_BROKER}::test_an_old_object_is_rejected_and_a_repeat_is_not",),
    ),
    Mutation(
        "replicate_no_names",
        "Followers and journals have the names, too.",
        REPLICATION,
        "        large_values=entry.batch.large_values,\n",
        "",
        (
            f"{TEST_BROKER}::test_a_seal_by_any_replica_writes_the_names[1]",
            f"{TEST_BROKER}::test_a_seal_from_any_journal_writes_the_names",
        ),
    ),
    Mutation(
        "write_no_names",
        "The metadata of a chunk has the names of all its entries.",
        ENTRIES,
        "            large_values=tuple(name for entry in self.entries for name in entry.batch.large_values),\n",
        "",
        (f"{TEST_CHUNKS}::test_the_names_are_in_the_order_of_the_entries",),
    ),
    Mutation(
        "put_any_number_of_names_into_a_chunk",
        "A chunk has a limited number of names.",
        PLANNING,
        " or large_values > MAX_LARGE_VALUES",
        "",
        (f"{TEST_CHUNKS}::test_a_chunk_has_a_limited_number_of_names",),
    ),
    Mutation(
        "list_no_names_in_file_lists",
        "The file list has the names of the chunk.",
        STATISTICS,
        "        large_values=large_values,\n",
        "",
        (f"{TEST_BROKER}::test_a_chunk_and_the_file_list_have_the_names_of_all_their_batches",),
    ),
    Mutation(
        "take_a_file_list_without_names_for_the_same",
        "A file list that lacks names is not the segment's.",
        FILE_LISTS,
        ", it.first_row, it.large_values)",
        ", it.first_row)",
        (f"{TEST_FILE_LISTS}::test_a_file_list_without_the_names_of_large_values_is_another_one",),
    ),
    # ---- readers
    Mutation(
        "confuse_hidden_items_with_headers",
        "What a null list hides is no header, and does not move the others.",
        FORMAT,
        "chunk.values.slice(first, stop - first)",
        "chunk.flatten()",
        (f"{TEST_FORMAT}::test_items_that_null_lists_hide_are_no_headers",),
    ),
    Mutation(
        "return_altered_values",
        "A value that is not what the producer wrote is lost.",
        FORMAT,
        "    if LargeValue.of(large.name, value) != large:\n",
        "    if False:\n",
        (f"{TEST_FORMAT}::test_a_value_that_is_not_what_was_written_is_lost",),
    ),
    Mutation(
        "continue_at_a_chunk_after_an_error_within_it",
        "After an error within a chunk, reading goes on within it.",
        FILE_FETCHER,
        "                output.at_boundary = False  # an error may leave",
        "                output.at_boundary = True  # an error may leave",
        (f"{TEST_CONSUMER}::test_an_eager_read_goes_on_within_the_chunk_of_an_open_segment",),
    ),
    Mutation(
        "end_reading_at_a_lost_value",
        "A lost value is the loss of one message.",
        FETCH_OUTPUT,
        "return self.put_loss(self.position + 1, error.path)",
        "return False",
        (f"{TEST_CONSUMER}::test_a_lost_value_is_skipped_if_losses_are",),
    ),
    # ---- cleanup
    Mutation(
        "collect_values_that_chunks_name",
        "A value that a chunk names stays.",
        COLLECTION,
        "                found.update(info.large_values)\n",
        "",
        (f"{TEST_COLLECTION}::test_large_values_stay_as_long_as_their_segment_and_go_with_it[False]",),
    ),
    Mutation(
        "take_a_chain_with_a_gap_for_a_whole_one",
        "Nothing is deleted while a sealed segment lacks a chunk.",
        COLLECTION,
        "(segment in sealed or end < ends.get(segment, 0))",
        "end < ends.get(segment, 0)",
        (f"{TEST_COLLECTION}::test_a_chain_with_a_gap_deletes_nothing",),
    ),
    Mutation(
        "take_an_open_chain_that_is_read_short_for_a_whole_one",
        "Nothing is deleted while an open chain is read shorter than its primary reports.",
        COLLECTION,
        "(segment in sealed or end < ends.get(segment, 0))",
        "segment in sealed",
        (f"{TEST_COLLECTION}::test_no_upload_goes_if_an_open_chain_is_read_shorter_than_its_primary_reports",),
    ),
    Mutation(
        "collect_values_while_a_primary_does_not_report",
        "Nothing is deleted while a replica may have unwritten messages that nobody knows.",
        COLLECTION,
        "    if len(reported) < len(reports):\n",
        "    if False:\n",
        (f"{TEST_COLLECTION}::test_no_large_value_goes_that_an_unwritten_message_may_name",),
    ),
    Mutation(
        "collect_values_of_unwritten_messages",
        "A value that an unwritten message may name stays.",
        COLLECTION,
        "min((before, *(report.before for report in reported)))",
        "before",
        (f"{TEST_COLLECTION}::test_no_large_value_goes_that_an_unwritten_message_may_name",),
    ),
    Mutation(
        "report_no_waiting_messages",
        "A primary reports how long its oldest message waits for its chunk.",
        "broker/smq_broker/segments/hosted_segment.py",
        "max(0, now - tail[0].appended) if tail else 0",
        "0",
        (f"{TEST_BROKER}::test_uploads_are_needed_from_their_check_until_their_message_is_in_a_chunk",),
    ),
    Mutation(
        "check_a_waiting_large_value_once",
        "A batch that waits long for capacity is checked again.",
        SESSION,
        "return self._checked is not batch or time.monotonic() >= self._check_valid_until",
        "return self._checked is not batch",
        (f"{TEST_BROKER}::test_a_large_value_that_waits_long_for_capacity_is_checked_again",),
    ),
    Mutation(
        "collect_values_that_file_lists_name",
        "A value that a file list names stays.",
        COLLECTION,
        "            found.update(name for it in file_list.files for name in it.large_values)\n",
        "",
        (f"{TEST_COLLECTION}::test_large_values_stay_as_long_as_their_segment_and_go_with_it[True]",),
    ),
    Mutation(
        "leave_large_values_of_removed_segments",
        "Large values are deleted with their segment.",
        RETENTION,
        "for path in (*sorted(large_values), *sorted(files, reverse=True)):",
        "for path in sorted(files, reverse=True):",
        (f"{TEST_COLLECTION}::test_large_values_stay_as_long_as_their_segment_and_go_with_it",),
    ),
    Mutation(
        "delete_large_values_after_the_chunks_that_name_them",
        "Large values are deleted before the chunks that name them.",
        RETENTION,
        "for path in (*sorted(large_values), *sorted(files, reverse=True)):",
        "for path in (*sorted(files, reverse=True), *sorted(large_values)):",
        (f"{TEST_COLLECTION}::test_a_crash_while_files_are_deleted_leaves_no_large_value[4-False]",),
    ),
)
