"""Broken rules of file lists: what brokers record and write, what the leader names, what is collected."""

from __future__ import annotations

from ..mutation import Mutation

DRAFT = "core/smq_core/file_lists/file_list_draft.py"
SEALING = "broker/smq_broker/segments/sealing.py"
FILES = "broker/smq_broker/file_lists/recorded_files.py"
WRITER = "broker/smq_broker/file_lists/writer.py"
TEST_WRITER = "tests/unit/broker/segments/test_file_list_writer.py"
INDEX = "storage/smq_storage/catalog/sealed_index.py"
TOPIC = "operator/smq_operator/file_lists/topic_file_lists.py"
TEST_TOPIC = "tests/unit/operator/file_lists/test_topic_file_lists.py"
RETENTION = "operator/smq_operator/cleanup/retention.py"
ORPHANED_FILES = "operator/smq_operator/cleanup/orphaned_files.py"
TEST_COLLECTION = "tests/unit/operator/cleanup/test_file_list_collection.py"

MUTATIONS = (
    # ---- brokers
    Mutation(
        "keep_a_list_of_files_with_a_gap",
        "A list of files with a gap is of no use, and is dropped.",
        DRAFT,
        "            self.abandon()\n            return\n",
        "            return\n",
        (f"{TEST_WRITER}::test_only_lists_without_a_gap_are_recorded",),
    ),
    Mutation(
        "do_not_record_what_the_sealer_reads",
        "A file list names the chunks that the sealer found, too.",
        SEALING,
        "        hosted.files.add(chunk)\n        return chunk.info",
        "        return chunk.info",
        (f"{TEST_WRITER}::test_a_chunk_of_another_writer_is_listed_by_what_the_sealer_reads",),
    ),
    Mutation(
        "record_any_number_of_files",
        "All segments together record a limited number of files.",
        FILES,
        "return self.used <= self._limit",
        "return True",
        (f"{TEST_WRITER}::test_a_segment_beyond_the_limit_drops_its_files",),
    ),
    Mutation(
        "write_the_file_list_in_the_thread_that_seals",
        "A seal waits for no file list.",
        WRITER,
        "                self._queue.append(_Waiting(topic, file_list))\n",
        "                self._write(topic, file_list)\n",
        (f"{TEST_WRITER}::test_a_seal_waits_for_no_file_list",),
    ),
    # ---- the leader
    Mutation(
        "name_a_file_list_of_another_end",
        "A file list that lists another end than the index has is not named.",
        TOPIC,
        "if found is not None and (found.segment, found.end) != (entry.name, entry.end):",
        "if found is not None and found.segment != entry.name:",
        (f"{TEST_TOPIC}::test_a_file_list_of_another_end_is_not_named",),
    ),
    Mutation(
        "build_later_versions_from_the_chain",
        "After a later version the chain may not be whole any more.",
        TOPIC,
        "if entry.file_list and entry.file_list != paths.file_list_name(entry.name, 0):\n            return None",
        "if False:\n            return None",
        (f"{TEST_TOPIC}::test_a_later_version_is_only_reported",),
    ),
    Mutation(
        "let_one_segment_delay_the_others",
        "A segment whose objects the store does not return waits until the others had their turn.",
        TOPIC,
        "self._open[entry.name].retry_at = now + RETRY_AFTER_US\n                result.failure = error",
        "result.failure = error",
        (f"{TEST_TOPIC}::test_one_object_that_the_store_does_not_return_delays_no_other_segment",),
    ),
    Mutation(
        "take_the_end_of_a_walk_for_the_end_of_the_chain",
        "A chain is walked to its seal chunk, because an answer of the store may be old.",
        TOPIC,
        "        if walk.sealed:\n            if draft.end != entry.end:",
        "        if walk.sealed or draft.end == entry.end:\n            if draft.end != entry.end:",
        (f"{TEST_TOPIC}::test_nothing_is_built_while_the_chain_has_no_end",),
    ),
    # ---- cleanup
    Mutation(
        "forget_which_file_list_a_removed_segment_had",
        "A removed segment keeps the name of its file list, which says what is to be deleted.",
        INDEX,
        "replace(by_name[entry.name], file_list=entry.file_list)",
        "by_name[entry.name]",
        (f"{TEST_COLLECTION}::test_files_are_deleted_by_their_file_list_without_a_walk",),
    ),
    Mutation(
        "collect_the_list_of_files_that_are_still_to_be_deleted",
        "The file list of a removed segment stays until its files are deleted.",
        ORPHANED_FILES,
        "if any(removed.name == segment for removed in known.index.pending_deletion):",
        "if False:",
        (f"{TEST_COLLECTION}::test_the_file_list_of_a_segment_whose_files_are_still_to_be_deleted_stays",),
    ),
    Mutation(
        "collect_a_version_that_may_still_be_named",
        "A file list whose version is above the named one may still be named.",
        ORPHANED_FILES,
        "named is not None and version <= named and",
        "named is not None and",
        (f"{TEST_COLLECTION}::test_what_the_index_names_or_may_still_name_stays",),
    ),
    Mutation(
        "collect_a_version_while_none_is_named",
        "While the index names no file list, any may be named.",
        ORPHANED_FILES,
        "return named is not None and version <= named",
        "return (named is None or version <= named)",
        (f"{TEST_COLLECTION}::test_a_version_that_was_never_named_stays_while_none_is_named",),
    ),
)
