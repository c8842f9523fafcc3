"""Broken rules of the merging of small files: what is merged, when, what others change, and what is reported."""

from __future__ import annotations

from ..mutation import Mutation

SMALL_FILES = "core/smq_core/file_lists/small_files.py"
TEST_SMALL_FILES = "tests/unit/core/file_lists/test_small_files.py"
PLAN = "storage/smq_storage/compaction/file_list_switch.py"
MERGING = "storage/smq_storage/compaction/merging.py"
TEST_MERGING = "tests/unit/storage/compaction/test_compaction.py"
MERGER = "operator/smq_operator/compaction/small_file_merger.py"
TEST_MERGER = "tests/unit/operator/compaction/test_small_file_merger.py"

MUTATIONS = (
    Mutation(
        "merge_two_small_files",
        "A run is merged only if that saves more requests than it costs.",
        SMALL_FILES,
        "if len(run.files) >= MIN_FILES",
        "if len(run.files) > 1",
        (f"{TEST_SMALL_FILES}::test_a_run_of_small_files_is_merged_and_one_fewer_is_not",),
    ),
    Mutation(
        "merge_merged_files_again",
        "What was merged once stays, also if it is small.",
        PLAN,
        "not paths.is_upload(it.path) and not paths.is_compacted(it.path)",
        "not paths.is_upload(it.path)",
        (f"{TEST_MERGER}::test_merged_files_that_are_small_are_not_merged_again",),
    ),
    Mutation(
        "end_a_merge_at_a_conflict_of_the_store",
        "A store may answer any creation with a conflict, so a merged file is written again under another name.",
        MERGING,
        "        except ObjectExists:  #",
        "        except NotImplementedError:  #",
        (
            f"{TEST_MERGING}::test_a_write_without_a_clear_answer_is_repeated_under_another_name",
            f"{TEST_MERGING}::test_a_write_that_never_gets_a_clear_answer_ends_with_an_error",
        ),
    ),
    Mutation(
        "read_all_files_of_a_run_ahead",
        "A merge has few small files in memory at a time.",
        MERGING,
        "if len(ahead) == readers:",
        "if len(ahead) == 100 * readers:",
        (f"{TEST_MERGING}::test_no_more_files_than_that_are_read_ahead",),
    ),
    Mutation(
        "go_on_with_a_merge_when_the_leader_stops",
        "A leader that stops ends a merge before its next request.",
        MERGER,
        "            stop.set()\n",
        "            pass\n",
        (f"{TEST_MERGER}::test_a_leader_that_stops_ends_a_merge_before_its_next_request",),
    ),
    Mutation(
        "merge_at_the_seal",
        "A segment is merged some time after its seal.",
        MERGER,
        " and now - min(entry.sealed_at, known.seen_at) >= self._after_us",
        "",
        (f"{TEST_MERGER}::test_a_segment_is_merged_some_time_after_its_seal",),
    ),
    Mutation(
        "merge_what_is_no_longer_there",
        "The index is read before anything is merged, so that what another leader did is not repeated.",
        MERGER,
        "        if await self._is_replaced(managed, topic, entry):\n            return\n        began",
        "        began",
        (f"{TEST_MERGER}::test_a_segment_that_retention_has_removed_is_left_alone",),
    ),
    Mutation(
        "try_a_damaged_segment_again_at_once",
        "A segment with a damaged file is tried again an hour later.",
        MERGER,
        "            self.failures += 1\n            candidate.retry_at = self._now() + MAX_RETRY_AFTER_US\n",
        "            self.failures += 1\n",
        (f"{TEST_MERGER}::test_a_damaged_chunk_is_reported_once_and_delays_no_other_segment",),
    ),
    Mutation(
        "report_what_retention_deleted",
        "A file that is gone because retention removed its segment is no problem.",
        MERGER,
        "            if await self._is_replaced(managed, topic, entry):\n                return\n            raise",
        "            raise",
        (f"{TEST_MERGER}::test_files_that_retention_deletes_meanwhile_are_no_problem",),
    ),
    Mutation(
        "keep_the_name_of_the_former_file_list",
        "The leader gives its clients the name of the file list with the merged files.",
        MERGER,
        "            managed.index.name_file_lists({entry.name: named})",
        "            pass",
        (f"{TEST_MERGER}::test_small_files_become_one_with_the_same_messages",),
    ),
)
