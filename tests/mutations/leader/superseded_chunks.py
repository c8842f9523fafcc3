"""Broken rules of the deletion of superseded chunks: when it is due, what is checked before it, who still reads."""

from __future__ import annotations

from ..mutation import Mutation

STEPS = "core/smq_core/file_lists/superseded_rules.py"
TEST_STEPS = "tests/unit/core/file_lists/test_superseded_chunks.py"
PINS = "core/smq_core/reading/pins.py"
FILES = "storage/smq_storage/compaction/superseded_files.py"
TEST_FILES = "tests/unit/storage/compaction/test_superseded_files.py"
COLLECTOR = "operator/smq_operator/cleanup/superseded_chunks.py"
TEST_COLLECTOR = "tests/unit/operator/cleanup/test_superseded_chunks.py"
INDEX = "storage/smq_storage/catalog/sealed_index.py"
RANGES = "storage/smq_storage/tables/range_reader.py"
FILE_FETCHER = "client/smq/consuming/fetching/file_fetcher.py"
TEST_FETCHER = "tests/unit/client/consuming/test_fetcher.py"
VERIFY = "storage/smq_storage/verification/segment_verification.py"

MUTATIONS = (
    Mutation(
        "delete_superseded_chunks_at_once",
        "Superseded chunks stay for the grace.",
        STEPS,
        "if age >= grace else CleanupStep.WAIT",
        "if True else CleanupStep.WAIT",
        (
            f"{TEST_STEPS}::test_chunks_are_deleted_once_the_named_file_list_was_recorded_for_long_enough",
            f"{TEST_COLLECTOR}::test_chunks_are_deleted_a_while_after_it_was_recorded_that_they_are_superseded",
        ),
    ),
    Mutation(
        "take_the_record_of_a_former_file_list",
        "Each file list begins the grace anew.",
        STEPS,
        "if record is None or record.file_list != entry.file_list:",
        "if record is None:",
        (f"{TEST_COLLECTOR}::test_a_second_compaction_begins_anew",),
    ),
    Mutation(
        "delete_the_chunk_after_a_merged_file",
        "The chunk at the end of a merged file is not superseded. It may be the seal chunk.",
        STEPS,
        "if file.first < first < file.end}",
        "if file.first < first <= file.end}",
        (
            f"{TEST_STEPS}::test_the_chunks_within_a_merged_file_are_superseded_and_the_first_one_and_the_next_stay",
            f"{TEST_FILES}::test_one_chunk_stays_for_each_merged_file_and_the_seal_chunk",
        ),
    ),
    Mutation(
        "delete_the_only_mention_of_an_upload",
        "A reference chunk is never superseded.",
        STEPS,
        "if info.reference is not None or info.upload is not None:",
        "if False:",
        (f"{TEST_FILES}::test_the_only_mention_of_an_upload_or_a_large_value_stays",),
    ),
    Mutation(
        "delete_the_only_mention_of_a_large_value",
        "A chunk whose large values the file list does not name is never superseded.",
        STEPS,
        "if not large_values.issuperset(info.large_values):",
        "if False:",
        (f"{TEST_FILES}::test_the_only_mention_of_an_upload_or_a_large_value_stays",),
    ),
    Mutation(
        "let_a_compacted_chunk_forget_producers",
        "A compacted chunk changes no state of a producer.",
        STEPS,
        "        snapshot_at=0,\n",
        "",
        (f"{TEST_STEPS}::test_a_compacted_chunk_passes_over_the_merged_rows_and_changes_no_producer",),
    ),
    Mutation(
        "ignore_pins_of_superseded_chunks",
        "A pin that is older than the record keeps superseded chunks.",
        COLLECTOR,
        "and not pinned.needs_superseded(it.number, it.superseded.filer_since)",
        "",
        (f"{TEST_COLLECTOR}::test_they_stay_while_the_pin_of_a_reader_lives_that_may_have_planned_with_them",),
    ),
    Mutation(
        "let_every_pin_keep_superseded_chunks",
        "Readers that follow each other do not keep superseded chunks for ever.",
        PINS,
        "and self.created_at <= since + CLOCK_MARGIN)",
        "and self.created_at >= 0)",
        (f"{TEST_COLLECTOR}::test_a_pin_that_is_younger_than_the_record_keeps_nothing",),
    ),
    Mutation(
        "delete_superseded_chunks_of_a_hosted_segment",
        "Superseded chunks stay while a broker has not reported the seal of their segment.",
        COLLECTOR,
        " and name not in hosted]",
        "]",
        (f"{TEST_COLLECTOR}::test_they_stay_while_a_broker_hosts_the_segment",),
    ),
    Mutation(
        "delete_superseded_chunks_during_a_publish",
        "Superseded chunks stay while an atomic publish is unfinished.",
        COLLECTOR,
        "if due and not is_held(store, topic, retry_policy):",
        "if due:",
        (f"{TEST_COLLECTOR}::test_they_stay_while_an_atomic_publish_is_unfinished",),
    ),
    Mutation(
        "delete_chunks_without_a_look_at_the_merged_files",
        "No chunk is deleted before all merged files in the file list are known to be there as it says.",
        FILES,
        "        _check_file(store, segment, file)\n",
        "        pass\n",
        (
            f"{TEST_FILES}::test_nothing_is_deleted_if_any_merged_file_is_missing",
            f"{TEST_FILES}::test_nothing_is_deleted_if_any_merged_file_was_altered",
        ),
    ),
    Mutation(
        "delete_chunks_before_the_walk_passes_over_them",
        "The compacted chunk is written before any chunk is deleted.",
        FILES,
        "        _replace_first(store, chain, run, retry_policy)\n        done.replaced += 1\n",
        "        done.replaced += 1\n",
        (
            f"{TEST_FILES}::test_the_chain_says_what_the_file_list_says",
            f"{TEST_FILES}::test_a_sealer_that_comes_late_finds_the_seal_and_writes_nothing",
        ),
    ),
    Mutation(
        "delete_the_chunks_of_a_chain_with_a_gap",
        "Chunks are deleted only if a walk leads through all of them.",
        FILES,
        "    if at != file.end:\n",
        "    if False:\n",
        (f"{TEST_FILES}::test_a_chain_with_a_gap_is_left_as_it_is",),
    ),
    Mutation(
        "leave_what_an_interruption_left",
        "Chunks that are left after an interruption are found by the listing.",
        FILES,
        "    if _is_done(first, file) and not run.offsets:",
        "    if _is_done(first, file):",
        (f"{TEST_FILES}::test_a_deletion_that_was_interrupted_loses_nothing_and_is_finished",),
    ),
    Mutation(
        "delete_the_last_superseded_chunk_first",
        "A walk that begins at a superseded chunk, by an old listing, finds the next one or begins anew.",
        FILES,
        "    for offset in sorted(run.offsets):",
        "    for offset in sorted(run.offsets, reverse=True):",
        (f"{TEST_FILES}::test_a_deletion_that_was_interrupted_loses_nothing_and_is_finished",),
    ),
    Mutation(
        "read_the_clocks_before_the_index",
        "The grace begins after the file list was found in the index.",
        COLLECTOR,
        "        entries = await self._store.run(_living_entries, topic)\n"
        "        clocks = await self._filer_clock.read()  # after the index\n",
        "        clocks = await self._filer_clock.read()\n"
        "        entries = await self._store.run(_living_entries, topic)\n",
        (f"{TEST_COLLECTOR}::test_a_leader_that_is_paused_while_it_reads_the_index_does_not_shorten_the_grace",),
    ),
    Mutation(
        "delete_superseded_chunks_of_the_layout",
        "Superseded chunks stay while the layout has their segment.",
        COLLECTOR,
        "if it.name not in known.layout]",
        "]",
        (f"{TEST_COLLECTOR}::test_what_is_in_the_layout_is_left_alone",),
    ),
    Mutation(
        "forget_what_another_leader_has_recorded",
        "A leader learns what the index says of superseded chunks, so that it does not read it at every pass.",
        COLLECTOR,
        "managed.index.record_superseded([*entries, *result.entries])",
        "managed.index.record_superseded(result.entries)",
        (f"{TEST_COLLECTOR}::test_a_leader_learns_what_another_one_has_recorded",),
    ),
    Mutation(
        "wait_with_the_rest_of_the_superseded_chunks",
        "A pass that has left chunks goes on at the next interval.",
        COLLECTOR,
        "        if result.entries or result.deleted:",
        "        if result.entries:",
        (f"{TEST_COLLECTOR}::test_a_leader_goes_on_soon_with_what_one_pass_has_left",),
    ),
    Mutation(
        "record_what_another_leader_has_recorded",
        "Another leader does not begin the grace anew.",
        INDEX,
        "and (known.deleted or not record.deleted):",
        "and known.deleted:",
        (f"{TEST_COLLECTOR}::test_another_leader_does_not_begin_the_grace_anew",),
    ),
    Mutation(
        "search_for_superseded_chunks_at_every_pass",
        "What was deleted once costs no request again.",
        STEPS,
        "    if record.deleted:\n        return CleanupStep.NOTHING\n",
        "",
        (f"{TEST_COLLECTOR}::test_what_was_deleted_once_costs_no_request_again",),
    ),
    Mutation(
        "take_a_compacted_chunk_for_a_damaged_one",
        "A reader that planned with a chunk that was replaced is told to read the index again.",
        RANGES,
        "            return lost\n    except ObjectMissing:",
        "            pass\n    except ObjectMissing:",
        (f"{TEST_FILES}::test_a_reader_that_planned_before_gets_an_error_that_says_to_read_the_index_again",),
    ),
    Mutation(
        "report_merged_rows_as_lost",
        "A reader whose file was replaced goes on with the file list that the index names now.",
        FILE_FETCHER,
        '        self.sealed, self._file_list, self._unusable_file_list = entry, None, ""\n        return True\n',
        "        return False\n",
        (f"{TEST_FETCHER}::test_a_reader_in_the_middle_goes_on_with_the_merged_file",),
    ),
    Mutation(
        "skip_the_merged_rows_of_a_chain",
        "A walk of the chain reads the rows of a compacted chunk.",
        FILE_FETCHER,
        "                goes_on = self._read_compacted(chain, compacted)\n",
        "                output.position, goes_on = compacted.end, True\n",
        (f"{TEST_FETCHER}::test_a_reader_goes_on_by_the_chain_if_its_file_list_is_gone_too",),
    ),
    Mutation(
        "wait_for_ever_for_a_chunk_that_was_merged",
        "A reader at the beginning of a chunk that was merged finds its rows by the chunks before.",
        FILE_FETCHER,
        "            if found is None and output.at_boundary and (",
        "            if False and (",
        (f"{TEST_FETCHER}::test_a_reader_between_two_chunks_goes_on_although_the_file_lists_are_gone",),
    ),
    Mutation(
        "believe_a_compacted_chunk",
        "A verification looks at the file that a compacted chunk names.",
        VERIFY,
        "        yield from self._rows(file, Counter()) if self.rows and not problems else problems\n",
        "        yield from ()\n",
        (f"{TEST_FILES}::test_a_verification_names_a_merged_file_that_is_missing_once",),
    ),
)
