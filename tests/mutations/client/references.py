"""Broken rules of publishing by reference: what producers upload, what brokers check, what readers find."""

from __future__ import annotations

from ..mutation import Mutation

PARTITIONING = "client/smq/producing/batching/partitioning.py"
TEST_PARTITIONING = "tests/unit/client/producing/test_partitioning.py"
SPLIT_AGAIN = f"{TEST_PARTITIONING}::test_an_upload_is_published_by_row_ranges_also_when_it_is_split_again"
ROWS = "client/smq/producing/uploads/uploaded_rows.py"
DELIVERY = "client/smq/producing/uploads/upload_delivery.py"
PRODUCER = "client/smq/producer.py"
UPLOADER = "client/smq/producing/uploads/uploader.py"
TARGETS = "client/smq/producing/uploads/upload_targets.py"
PUBLISHER = "client/smq/producing/uploads/reference_publisher.py"
FILES = "client/smq/producing/uploads/parquet_files.py"
VERSIONS = "client/smq/producing/batching/sub_batch_versions.py"
SENDER = "core/smq_core/producing/segment_sender.py"
FETCH_OUTPUT = "client/smq/consuming/fetching/fetch_output.py"
FILE_FETCHER = "client/smq/consuming/fetching/file_fetcher.py"
FINISHED = "client/smq/producing/uploads/finished_files.py"
TEST_FINISHED = "tests/unit/client/uploads/test_finished_files.py"
TEST_PUBLISHING = "tests/unit/client/uploads/test_publishing.py"
TEST_FETCHER = "tests/unit/client/consuming/test_fetcher.py"
PLANNING = "core/smq_core/replica/chunk_planning.py"
REPLICA = "core/smq_core/replica/segment_replica.py"
TEST_CORE = "tests/unit/core/replica/test_references.py"
RULES = "storage/smq_storage/uploads/reference_rules.py"
CHECKER = "broker/smq_broker/producers/upload_checker.py"
SESSION = "broker/smq_broker/producers/producer_session.py"
TEST_BROKER = "tests/unit/broker/producers/test_references.py"
RANGES = "storage/smq_storage/chunks/parquet_ranges.py"
READING = "storage/smq_storage/uploads/uploaded_files.py"
FORMAT = "storage/smq_storage/uploads/upload_format.py"
CHAINS = "storage/smq_storage/verification/segment_verification.py"
UPLOADS = "storage/smq_storage/verification/referenced_uploads.py"
TEST_VERIFICATION = "tests/unit/storage/verification/test_topic_files.py"
TEST_STORAGE = "tests/unit/storage/uploads/test_uploads.py"


def rejected(*cases: str) -> tuple[str, ...]:
    """The cases of the table of bad references."""
    return tuple(f"{TEST_BROKER}::test_a_bad_reference_is_rejected_and_the_session_goes_on[{case}]" for case in cases)


TEST_STORE_ERRORS = "tests/integration/storage/test_store_errors.py"

MUTATIONS = (
    # ---- producers
    Mutation(
        "resolve_the_first_partitions_of_a_range_that_is_split_again",
        "The receipt of a range that is split again is of its own partitions.",
        PARTITIONING,
        "rows = np.arange(part.first, part.stop)",
        "rows = np.arange(part.first - batch.first, part.stop - batch.first)",
        (SPLIT_AGAIN,),
    ),
    Mutation(
        "keep_what_is_left_of_the_cost_of_an_upload",
        "All parts of an upload together give its whole cost back.",
        PARTITIONING,
        "cost = left if part.stop == batch.stop else sub_batch.cost * (part.stop",
        "cost = sub_batch.cost * (part.stop",
        (SPLIT_AGAIN,),
    ),
    Mutation(
        "refer_to_the_first_row_of_the_file",
        "A reference names the first row of its range.",
        ROWS,
        "first_row=int(index.starts[self.first]),",
        "first_row=0,",
        (SPLIT_AGAIN, f"{TEST_PUBLISHING}::test_after_a_split_the_same_file_is_published_by_row_ranges"),
    ),
    Mutation(
        "count_offsets_from_the_first_row_of_the_file",
        "The offsets of a range begin at its own first row.",
        DELIVERY,
        "return first + starts[rows] - starts[rows[0]]",
        "return first + starts[rows]",
        (f"{TEST_PUBLISHING}::test_a_receipt_finds_each_row_of_the_table",),
    ),
    Mutation(
        "repeat_an_upload_under_its_name",
        "An upload is repeated under another name, because the PUT before may still be applied.",
        TARGETS,
        "self.epoch, attempt, uuid.uuid4().hex)",
        "self.epoch, 1, uuid.uuid4().hex)",
        (f"{TEST_PUBLISHING}::test_a_put_without_an_answer_is_repeated_under_another_name",),
    ),
    Mutation(
        "repeat_an_upload_that_is_denied",
        "An upload that the store denies is not repeated.",
        UPLOADER,
        "            except StoreDenied:\n                raise\n",
        "",
        (f"{TEST_PUBLISHING}::test_refused_credentials_are_not_tried_again",),
    ),
    Mutation(
        "repeat_an_upload_for_ever",
        "An upload that finds a file of each of its new names ends with an error.",
        UPLOADER,
        "if time.monotonic() + backoff.seconds > deadline:",
        "if isinstance(error, Unavailable) and time.monotonic() + backoff.seconds > deadline:",
        (f"{TEST_PUBLISHING}::test_an_upload_whose_names_are_all_taken_ends_with_an_error",),
    ),
    Mutation(
        "publish_a_part_of_a_call",
        "The uploads of one call are published only if there is capacity for all of them.",
        PRODUCER,
        "self._engine.reserve(REFERENCE_COST_BYTES * len(files), self._timeout)",
        "self._engine.reserve(REFERENCE_COST_BYTES, self._timeout)",
        (f"{TEST_PUBLISHING}::test_uploads_of_one_call_are_published_together_or_not_at_all",),
    ),
    Mutation(
        "keep_the_capacity_of_uploads_that_were_not_submitted",
        "If an upload of a call cannot be submitted, it and those after it give their capacity back.",
        PRODUCER,
        "for unsubmitted in states[number:]:",
        "for unsubmitted in states[number : number + 1]:",
        (f"{TEST_PUBLISHING}::test_uploads_that_cannot_be_submitted_give_their_capacity_back",),
    ),
    Mutation(
        "publish_uploads_of_an_older_schema",
        "Rows are uploaded again if the schema changes meanwhile.",
        PUBLISHER,
        "if encoder is self._encoder():",
        "if encoder is not None:",
        (f"{TEST_PUBLISHING}::test_a_schema_that_changes_during_the_upload_is_followed",),
    ),
    Mutation(
        "upload_before_all_files_are_checked",
        "All files of a call are checked before the first one is uploaded.",
        PUBLISHER,
        "                source.check(encoder, key)\n",
        "                pass\n",
        (f"{TEST_PUBLISHING}::test_a_bad_file_publishes_nothing_and_the_producer_goes_on",),
    ),
    Mutation(
        "find_a_wrong_type_after_uploads",
        "The types of all files are checked before the first one is uploaded.",
        FILES,
        "encoder.check_types(schema, _columns_with_values(file.metadata), key)",
        "pass",
        (f"{TEST_PUBLISHING}::test_a_type_that_does_not_fit_is_found_before_anything_is_uploaded",),
    ),
    Mutation(
        "refuse_columns_without_values_by_their_type",
        "Nulls of any type fit a column that may be null.",
        FILES,
        "statistics.has_null_count and statistics.null_count < column.num_values:",
        "column.num_values:",
        (f"{TEST_PUBLISHING}::test_types_that_may_fit_are_uploaded",),
    ),
    Mutation(
        "publish_a_file_twice",
        "A file that is given twice in one call is refused.",
        FILES,
        "if first != number:",
        "if False:",
        (f"{TEST_PUBLISHING}::test_a_bad_file_publishes_nothing_and_the_producer_goes_on",),
    ),
    Mutation(
        "keep_a_whole_file_in_memory",
        "A file that is encoded is read part by part.",
        FILES,
        "pre_buffer=False,\n                buffer_size=BUFFER_BYTES,",
        "pre_buffer=True,",
        (f"{TEST_PUBLISHING}::test_a_file_is_read_part_by_part",),
    ),
    Mutation(
        "decode_as_many_rows_as_are_encoded_in_the_limit",
        "What is decoded at a time is limited by the decoded size of rows.",
        FILES,
        "probed.nbytes // max(probed.num_rows, 1), 1)",
        "1)",
        (f"{TEST_PUBLISHING}::test_what_is_decoded_at_a_time_is_limited",),
    ),
    Mutation(
        "reshape_an_upload",
        "The columns of an upload are what they are, so its references fail when the schema changes.",
        VERSIONS,
        "if isinstance(sub_batch.batch, UploadedRows):",
        "if False:",
        (f"{TEST_PUBLISHING}::test_a_reference_of_an_older_schema_fails_alone",),
    ),
    # ---- files that are copied
    Mutation(
        "copy_a_file_that_is_not_in_order",
        "A file is copied only if its rows are sorted by partition.",
        FINISHED,
        "ascending = bool((np.diff(partitions) >= 0).all()) and ",
        "ascending = ",
        (f"{TEST_FINISHED}::test_a_file_that_differs_from_an_upload_of_the_topic_is_encoded_again",),
    ),
    Mutation(
        "believe_the_counts_of_a_finished_file",
        "A file is copied only if its footer counts the rows that it has.",
        FINISHED,
        "index.pairs() != footer.partitions",
        "False",
        (f"{TEST_FINISHED}::test_a_file_that_differs_from_an_upload_of_the_topic_is_encoded_again",),
    ),
    Mutation(
        "copy_a_file_without_its_checksum",
        "A file is copied only if its bytes are those that were written.",
        FINISHED,
        " or not is_intact(data, file.metadata)",
        "",
        (
            f"{TEST_FINISHED}::test_a_damaged_file_is_neither_copied_nor_encoded_again",
            f"{TEST_FINISHED}::test_a_file_is_copied_only_if_its_checksum_fits",
        ),
    ),
    Mutation(
        "encode_damaged_pages",
        "A file with a damaged page is an error.",
        FILES,
        "page_checksum_verification=True",
        "page_checksum_verification=False",
        (f"{TEST_FINISHED}::test_a_damaged_file_is_neither_copied_nor_encoded_again",),
    ),
    Mutation(
        "copy_bytes_that_were_not_checked",
        "The bytes that are copied are those whose footer was checked.",
        FINISHED,
        "if not may_be_finished(file.metadata, encoder, key) or not",
        "if not",
        (f"{TEST_FINISHED}::test_the_bytes_that_are_copied_are_those_that_were_checked",),
    ),
    Mutation(
        "copy_a_file_of_another_topic",
        "A file is copied only into the topic and the schema version that it was written for.",
        FINISHED,
        "(parsed.footer.topic_uid, parsed.footer.schema_version) == (topic.uid, encoder.version)",
        "True",
        (f"{TEST_FINISHED}::test_a_file_that_differs_from_an_upload_of_the_topic_is_encoded_again",),
    ),
    Mutation(
        "publish_files_as_their_uploads_end",
        "Files are published in their order, whichever is uploaded first.",
        UPLOADER,
        "yield _outcome(*waiting.popleft())\n                waiting.append",
        "yield _outcome(*waiting.pop())\n                waiting.append",
        (f"{TEST_FINISHED}::test_files_are_published_in_their_order_whichever_is_uploaded_first",),
    ),
    Mutation(
        "time_out_without_a_cause",
        "A delivery that times out says why the last attempt failed.",
        SENDER,
        "self.last_failure = self.failure or failure or self.last_failure",
        "self.last_failure = failure or self.failure",
        (f"{TEST_PUBLISHING}::test_a_timeout_says_why_the_last_attempt_failed",),
    ),
    # ---- the log
    Mutation(
        "let_a_reference_follow_rows_in_a_chunk",
        "The rows before a reference are a chunk of their own.",
        PLANNING,
        "if taken and (is_reference or size > max_bytes or",
        "if taken and (size > max_bytes or",
        (
            f"{TEST_CORE}::test_a_reference_is_a_chunk_of_its_own",
            f"{TEST_CORE}::test_a_sealer_cuts_the_log_at_the_same_offsets",
        ),
    ),
    Mutation(
        "let_rows_follow_a_reference_in_a_chunk",
        "The rows after a reference begin another chunk.",
        PLANNING,
        "        if is_reference:\n            break\n",
        "",
        (f"{TEST_CORE}::test_a_reference_is_a_chunk_of_its_own",),
    ),
    Mutation(
        "flush_references_later",
        "A reference that is acked is due at once, so that the collection of uploads finds it in the chain.",
        REPLICA,
        "            or self.has_reference_to_write\n",
        "",
        (
            f"{TEST_CORE}::test_a_reference_and_what_is_before_it_are_due_once_it_is_acked",
            f"{TEST_BROKER}::test_what_is_before_a_reference_is_flushed_with_it_at_once",
        ),
    ),
    Mutation(
        "hide_uploads_from_operators_of_a_former_release",
        "A reference chunk names its upload where an operator that knows no references looks for it.",
        "core/smq_core/replica/log_entries.py",
        "upload=self.reference.upload if self.reference is not None else None,",
        "upload=None,",
        (f"{TEST_CORE}::test_the_metadata_of_a_reference_chunk",),
    ),
    # ---- brokers
    Mutation(
        "accept_partitions_of_other_segments",
        "A reference names partitions of its segment only.",
        RULES,
        "if not (partitions.start <= low <= high < partitions.stop):",
        "if not (partitions.start <= low <= high):",
        rejected("partitions of another segment"),
    ),
    Mutation(
        "accept_references_of_any_schema_version",
        "A reference has the schema version of its segment.",
        RULES,
        "if reference.schema_version != schema_version:",
        "if False:",
        rejected("a newer schema"),
    ),
    Mutation(
        "accept_uploads_of_another_topic",
        "An upload was made for this topic.",
        RULES,
        "if footer.topic_uid != topic_uid:",
        "if False:",
        rejected("another topic"),
    ),
    Mutation(
        "accept_uploads_of_any_schema_version",
        "An upload has the schema version of its reference.",
        RULES,
        "if footer.schema_version != reference.schema_version:",
        "if False:",
        rejected("a footer of another schema"),
    ),
    Mutation(
        "accept_any_columns",
        "An upload has the columns of the segment's schema, with their types.",
        RULES,
        "if upload.schema.names != schema.names or upload.schema.types != schema.types:",
        "if False:",
        rejected("a column too few", "a column of another type"),
    ),
    Mutation(
        "accept_any_types",
        "The columns of an upload have the types of the segment's schema.",
        RULES,
        "if upload.schema.names != schema.names or upload.schema.types != schema.types:",
        "if upload.schema.names != schema.names:",
        rejected("a column of another type"),
    ),
    Mutation(
        "accept_any_number_of_bytes",
        "A reference takes a share of the file's bytes.",
        RULES,
        "if not share <= reference.bytes <= size:",
        "if not 0 < reference.bytes:",
        rejected("too many bytes"),
    ),
    Mutation(
        "accept_any_rows_of_the_partitions",
        "A reference names exactly the rows that its partitions have.",
        RULES,
        "if expected != (reference.first_row, reference.rows) or found",
        "if found",
        rejected("too few rows"),
    ),
    Mutation(
        "accept_partitions_without_rows",
        "A reference's partitions are the lowest and the highest one of its rows.",
        RULES,
        "reference.rows) or found != (reference.partition_min, reference.partition_max):",
        "reference.rows):",
        rejected("partitions beside the rows"),
    ),
    Mutation(
        "accept_partitions_out_of_order",
        "The partitions of an upload are in order.",
        RULES,
        "if any(a[0] >= b[0] for a, b in pairwise(footer.partitions)) or any",
        "if any",
        rejected("a footer with a partition twice"),
    ),
    Mutation(
        "accept_a_footer_with_another_number_of_rows",
        "An upload's footer counts the rows that the file has.",
        RULES,
        "if len(set(counts)) > 1:",
        "if False:",
        rejected("a footer with too many rows"),
    ),
    Mutation(
        "accept_a_footer_that_the_statistics_contradict",
        "An upload's counts of rows per partition fit the statistics of its row groups.",
        RULES,
        "if _row_groups(footer, upload) != [(low, high) for _, low, high in upload.row_groups]:",
        "if False:",
        rejected("a footer with wrong counts", "no statistics", "rows beyond the partitions of its footer"),
    ),
    Mutation(
        "accept_uploads_of_any_age",
        "An upload that garbage collection may delete soon is not published.",
        RULES,
        "if age > max_age:",
        "if False:",
        (f"{TEST_BROKER}::test_an_old_upload_is_rejected_and_a_repeat_is_not",),
    ),
    Mutation(
        "accept_a_file_with_another_etag",
        "The file is the one that the producer uploaded.",
        CHECKER,
        "if upload.etag != reference.etag:",
        "if False:",
        rejected("another etag"),
    ),
    Mutation(
        "trust_a_footer_that_was_read_before",
        "A footer that was read before counts only while the file is there.",
        CHECKER,
        "        info = self._store.head(path)\n        return upload if",
        "        info = upload\n        return upload if",
        (f"{TEST_BROKER}::test_a_file_that_was_deleted_since_its_footer_was_read_is_rejected",),
    ),
    Mutation(
        "check_a_repeat_again",
        "A repeat is acked without a check, because it is in the log.",
        CHECKER,
        "machine.state is not ReplicaState.OPEN or not machine.is_new(id_)",
        "machine.state is not ReplicaState.OPEN",
        (f"{TEST_BROKER}::test_an_old_upload_is_rejected_and_a_repeat_is_not",),
    ),
    Mutation(
        "end_the_session_with_a_bad_reference",
        "A session goes on after a rejected reference.",
        SESSION,
        "                self._reject(batch, error)\n",
        "                self.fail(error)\n",
        rejected("another etag"),
    ),
    Mutation(
        "append_what_was_sent_before_a_rejection",
        "A batch that was sent before its producer knew of a rejection is dropped.",
        SESSION,
        "return batch.rejections != self._rejections",
        "return False",
        rejected("another etag"),
    ),
    # ---- readers
    Mutation(
        "read_a_file_that_was_replaced",
        "A reader takes the rows of a file with the reference's etag only.",
        RANGES,
        "    if etag not in (None, tail.etag):\n        raise EtagMismatch(path)\n",
        "",
        (f"{TEST_STORAGE}::test_a_file_that_was_replaced_is_named",),
    ),
    Mutation(
        "skip_the_check_of_partitions",
        "A reader finds rows outside of the partitions that they were published with.",
        READING,
        'if found["min"] < lowest or found["max"] > highest:',
        "if False:",
        (
            f"{TEST_STORAGE}::test_rows_outside_the_stated_partitions_are_found_by_the_reader",
            f"{TEST_BROKER}::test_rows_outside_of_the_stated_range_are_found_by_the_reader",
        ),
    ),
    Mutation(
        "end_early_with_a_short_file",
        "A reader finds that a file has fewer rows than the log refers to.",
        READING,
        "if footer.num_rows < stop + to_row:",
        "if False:",
        (f"{TEST_STORAGE}::test_a_reference_beyond_the_file_is_found_by_the_reader",),
    ),
    Mutation(
        "report_a_lost_upload_without_its_name",
        "The loss of an upload names the file.",
        FETCH_OUTPUT,
        "FetchedLoss(Loss(self.position, end), file)",
        "FetchedLoss(Loss(self.position, end))",
        (f"{TEST_FETCHER}::test_an_upload_that_is_gone_or_altered_is_a_loss_with_its_name",),
    ),
    Mutation(
        "lose_the_rest_of_a_segment_with_one_upload",
        "The loss of an upload is of its messages, not of those after it.",
        FILE_FETCHER,
        "if not paths.is_upload(file.path):",
        "if file.path:",
        (f"{TEST_FETCHER}::test_an_upload_that_is_gone_or_altered_is_a_loss_with_its_name",),
    ),
    Mutation(
        "put_long_rows_into_one_row_group",
        "The row groups of an upload are limited by their bytes.",
        FORMAT,
        "if table.num_rows == 1 or table.nbytes <= ROW_GROUP_BYTES:",
        "if table.num_rows:",
        (f"{TEST_STORAGE}::test_row_groups_of_long_rows_have_few_rows",),
    ),
    Mutation(
        "decode_all_that_compresses_well",
        "What a reader decodes at once is limited by its bytes in memory.",
        RANGES,
        " or part.decoded + decoded > DECODED_BYTES",
        "",
        (f"{TEST_STORAGE}::test_row_groups_that_compress_well_are_decoded_in_parts",),
    ),
    Mutation(
        "decode_a_large_row_group_at_once",
        "A reader decodes a row group that is large in memory in parts.",
        RANGES,
        "    if at_once >= rows:\n",
        "    if True:\n",
        (f"{TEST_STORAGE}::test_few_rows_of_a_large_row_group_are_decoded_in_parts",),
    ),
    Mutation(
        "publish_uploads_with_large_row_groups",
        "No upload is published whose row groups are large in memory.",
        RULES,
        "if upload.largest > MAX_ROW_GROUP_BYTES:",
        "if False:",
        (f"{TEST_BROKER}::test_a_bad_reference_is_rejected_and_the_session_goes_on[a large row group]",),
    ),
    Mutation(
        "count_values_that_repeat_once",
        "A value that many rows share counts for each of them.",
        "storage/smq_storage/chunks/decoded_sizes.py",
        "return int(chunk.total_uncompressed_size * chunk.num_values)",
        "pass",
        (f"{TEST_BROKER}::test_a_bad_reference_is_rejected_and_the_session_goes_on[values that repeat]",),
    ),
    Mutation(
        "copy_a_file_with_large_row_groups",
        "A file is copied only if its row groups are small enough for readers.",
        FINISHED,
        "        and parsed.largest <= MAX_ROW_GROUP_BYTES\n",
        "",
        (f"{TEST_FINISHED}::test_a_file_with_large_row_groups_is_not_copied",),
    ),
    Mutation(
        "sort_partitions_without_their_order",
        "The rows of a partition stay in their order.",
        FORMAT,
        'np.argsort(partitions, kind="stable")',
        "np.lexsort((-np.arange(len(partitions)), partitions))",
        (f"{TEST_STORAGE}::test_rows_of_a_partition_stay_in_their_order",),
    ),
    # ---- verification
    Mutation(
        "verify_without_the_end_of_the_index",
        "A sealed segment has all its files, up to the end that the index has.",
        CHAINS,
        "        if not sealed:",
        "        if False:",
        (f"{TEST_VERIFICATION}::test_a_damaged_file_is_named_alone[a seal chunk is gone]",),
    ),
    Mutation(
        "verify_without_file_lists",
        "A file list names the files of the chunk chain.",
        CHAINS,
        "if listed is None or there is None or _identity(listed) != _identity(there):",
        "if False:",
        (f"{TEST_VERIFICATION}::test_a_damaged_file_is_named_alone[a chunk was written again]",),
    ),
    Mutation(
        "verify_with_the_columns_of_another_version",
        "A segment whose schema version nothing has any more is compared with itself.",
        "storage/smq_storage/verification/columns.py",
        "self._first if version == 0 else None",
        "self._first",
        (f"{TEST_VERIFICATION}::test_a_segment_whose_schema_nothing_has_any_more_is_compared_with_itself",),
    ),
    Mutation(
        "verify_without_etags_of_uploads",
        "An upload is the file that its reference names.",
        UPLOADS,
        "elif found.etag != reference.etag:",
        "elif False:",
        (f"{TEST_VERIFICATION}::test_a_damaged_file_is_named_alone[an upload was altered]",),
    ),
    Mutation(
        "report_what_retention_removes",
        "A segment that retention removes meanwhile is no problem.",
        "storage/smq_storage/verification/topic_files.py",
        "if problems and not self._was_removed(topic, segment):",
        "if problems:",
        (f"{TEST_VERIFICATION}::test_a_segment_that_retention_removes_meanwhile_is_no_problem",),
    ),
    Mutation(
        "take_an_empty_upload_for_an_outage",
        "An upload without bytes is rejected, and nothing waits for it.",
        "storage/smq_storage/object_store/direct_reads.py",
        'if "status code: 416" not in str(error):',
        "if True:",
        (f"{TEST_STORE_ERRORS}::test_the_tail_of_an_empty_object_is_empty",),
    ),
)
