"""Broken rules of the storage package: conditional writes, the chunk chain, codecs, the index and the catalog."""

from __future__ import annotations

from .mutation import Mutation

WRITES = "storage/smq_storage/object_store/conditional_writes.py"
TEST_WRITES = "tests/unit/storage/test_conditional_writes.py"
CHAIN = "storage/smq_storage/chunks/chain.py"
FILES = "storage/smq_storage/chunks/parquet_ranges.py"
TEST_CHAIN = "tests/unit/storage/test_chain.py"
INFO = "storage/smq_storage/chunks/info_codec.py"
CODEC = "storage/smq_storage/chunks/parquet_codec.py"
TEST_CODEC = "tests/unit/storage/test_parquet_codec.py"
INDEX = "storage/smq_storage/catalog/sealed_index.py"
TEST_INDEX = "tests/unit/storage/test_sealed_index.py"
TEST_DOCUMENTS = "tests/unit/storage/test_json_documents.py"
FILE_LIST = "core/smq_core/file_lists/file_list.py"
TEST_FILE_LIST = "tests/unit/core/file_lists/test_file_list.py"
BOUNDS = "core/smq_core/file_lists/key_bounds.py"
FILE_LISTS = "storage/smq_storage/tables/file_lists.py"
TEST_FILE_LISTS = "tests/unit/storage/tables/test_file_lists.py"
STATISTICS = "storage/smq_storage/tables/file_statistics.py"
TEST_STATISTICS = "tests/unit/storage/tables/test_file_statistics.py"
RANGES = "storage/smq_storage/tables/range_reader.py"
TEST_RANGES = "tests/unit/storage/tables/test_range_reader.py"
TEST_PINNED = "tests/unit/storage/tables/test_pinned_reads.py"

TEST_ABSENCE = "tests/unit/storage/test_absence.py"

MUTATIONS = (
    Mutation(
        "verify_a_topic_without_its_layout",
        "A topic that has messages and no layout has a problem.",
        "storage/smq_storage/verification/topic_files.py",
        "if layout is None and (index.entries or self._has_chunks(topic)):",
        "if False:",
        (
            "tests/unit/storage/verification/test_topic_files.py::"
            "test_a_layout_that_is_missing_is_a_problem_unless_the_topic_is_being_created",
        ),
    ),
    Mutation(
        "accept_fields_that_differ_in_case_only",
        "Readers of Parquet take such names for one.",
        "storage/smq_storage/chunks/column_types.py",
        "if len({field.name.lower() for field in fields})",
        "if len({field.name for field in fields})",
        ("tests/unit/storage/test_schemas.py",),
    ),
    # ---- conditional writes
    Mutation(
        "take_a_conflict_for_own_success",
        '"Already exists" does not show who wrote the object.',
        WRITES,
        "if is_mine(found.value):",
        "if before is None or is_mine(found.value):",
        (f"{TEST_WRITES}::test_a_creator_that_comes_second_learns_what_is_there",),
    ),
    Mutation(
        "report_an_unclear_write_as_failed",
        "A write whose outcome was unclear once may still appear, so it never ends as failed.",
        WRITES,
        "unclear = unclear or isinstance(failure, StoreStateUnknown)",
        "unclear = isinstance(failure, StoreStateUnknown)",
        (f"{TEST_WRITES}::test_one_unclear_attempt_among_failed_ones_leaves_the_state_unknown",),
    ),
    Mutation(
        "report_an_unreadable_state_as_failed",
        "An object that cannot be read back may have been written.",
        WRITES,
        "failure, unclear = error, True",
        "failure = error",
        (f"{TEST_WRITES}::test_a_refused_write_that_cannot_be_read_back_leaves_the_state_unknown",),
    ),
    Mutation(
        "go_on_writing_after_the_wait_was_cancelled",
        "A wait between attempts that returns true ends the write at once.",
        WRITES,
        "if retry_policy.clock() + pause > deadline or retry_policy.wait(pause):",
        "retry_policy.wait(pause)\n        if retry_policy.clock() + pause > deadline:",
        (f"{TEST_WRITES}::test_a_wait_that_returns_true_ends_the_retries",),
    ),
    Mutation(
        "create_a_document_that_was_deleted",
        "A compare-and-swap of a deleted object says that it is missing.",
        WRITES,
        "            if before is not None:\n                raise\n",
        "            pass\n",
        (f"{TEST_WRITES}::test_a_swap_of_a_deleted_object_says_that_it_is_missing",),
    ),
    # ---- the chunk chain
    Mutation(
        "recognise_a_chunk_by_its_writer_alone",
        "A chunk is one's own if writer and nonce are the same: another attempt may have other rows.",
        CHAIN,
        "return (found.writer, found.nonce) == (info.writer, info.nonce)",
        "return found.writer == info.writer",
        (f"{TEST_CHAIN}::test_another_attempt_of_the_same_writer_is_another_writer",),
    ),
    Mutation(
        "find_an_offset_in_the_chunk_before_it",
        "The end of a chunk is the offset after its last row.",
        CHAIN,
        "if info.first <= offset < info.end:",
        "if info.first <= offset <= info.end:",
        (f"{TEST_CHAIN}::test_offsets_are_found",),
    ),
    Mutation(
        "trust_a_listing_of_the_chain",
        "A listing may be old, so a GET of the next name decides where the chain ends.",
        CHAIN,
        "next(iter(deque(self.walk(begin), maxlen=1)), None)",
        "next(self.walk(begin), None)",
        (f"{TEST_CHAIN}::test_the_seal_is_found_from_any_hint",),
    ),
    Mutation(
        "read_only_the_usual_length_of_a_footer",
        "The footer of a chunk that names many producers is longer than the first read.",
        FILES,
        "if len(tail.data) < need <= tail.size:",
        "if need > tail.size:",
        (f"{TEST_CHAIN}::test_many_producers_make_a_footer_longer_than_the_first_read",),
    ),
    # ---- codecs
    Mutation(
        "store_first_offsets_without_their_differences",
        "A producer's recent first offsets come back from a chunk's metadata as they were.",
        INFO,
        "steps = (*state.recent[:1], *(b - a for a, b in pairwise(state.recent)))",
        "steps = tuple(state.recent)",
        (f"{TEST_CODEC}::test_the_state_of_a_producer_comes_back",),
    ),
    Mutation(
        "forget_when_a_producer_last_appended",
        "The time of a producer's last append is stored, because forgetting is decided by it.",
        INFO,
        "instance=instance, appended=appended\n",
        "instance=instance\n",
        (f"{TEST_CODEC}::test_the_state_of_a_producer_comes_back",),
    ),
    Mutation(
        "stamp_all_rows_with_the_first_time",
        "Each row of a batch keeps the time at which it was appended.",
        CODEC,
        "times = pa.repeat(pa.scalar(appended, TIMESTAMP), batch.num_rows) if one else appended",
        "times = pa.repeat(pa.scalar(appended, TIMESTAMP) if one else appended[0], batch.num_rows)",
        (f"{TEST_CODEC}::test_each_row_may_have_its_own_time",),
    ),
    # ---- the index of sealed segments
    Mutation(
        "restore_an_entry_that_retention_removed",
        "A segment that was removed from the index never comes back by a late append.",
        INDEX,
        "if e.name not in known and not contains(removed, e.number)}",
        "if e.name not in known}",
        (f"{TEST_INDEX}::test_what_was_removed_is_remembered_and_never_comes_back",),
    ),
    Mutation(
        "reopen_a_full_page_of_the_index",
        "A page that was full once stays full, so that the next one is found through it.",
        INDEX,
        "            removed_segments=page.removed_segments + tuple(removing),\n",
        "            removed_segments=page.removed_segments + tuple(removing),\n            full=False,\n",
        (f"{TEST_INDEX}::test_removal_reaches_every_page_and_new_entries_still_go_to_the_last",),
    ),
    Mutation(
        "append_to_the_index_although_another_leader_was_first",
        "An append reads the index again if another leader has written first.",
        INDEX,
        "        if written and len(taken) == len(page.entries) + len(missing):\n",
        "        if len(taken) == len(page.entries) + len(missing):\n",
        (
            f"{TEST_INDEX}::test_leaders_that_append_at_once_lose_nothing_and_double_nothing",
            f"{TEST_INDEX}::test_a_page_that_another_leader_changes_meanwhile_is_changed_again",
        ),
    ),
    Mutation(
        "append_to_one_page_of_the_index_only",
        "Entries that do not fit into the last page go into the next ones.",
        INDEX,
        "        if written and len(taken) == len(page.entries) + len(missing):\n",
        "        if written:\n",
        (f"{TEST_INDEX}::test_entries_come_back_in_order_over_several_pages",),
    ),
    Mutation(
        "change_the_index_although_another_leader_was_first",
        "A change of the index is repeated if another leader has changed the page meanwhile.",
        INDEX,
        "        if all(puts):\n",
        "        if True:\n",
        (f"{TEST_INDEX}::test_a_page_that_another_leader_changes_meanwhile_is_changed_again",),
    ),
    # ---- the catalog
    Mutation(
        "take_a_damaged_document_for_absent",
        "A document that cannot be understood is an error and never taken for absent.",
        "storage/smq_storage/object_store/json_documents.py",
        "        except ValueError as error:\n",
        "        except ValueError as error:\n            raise ObjectMissing(path) from error\n",
        (f"{TEST_DOCUMENTS}::test_a_damaged_layout_is_named_and_never_taken_for_absent",),
    ),
    Mutation(
        "ignore_that_another_leader_wrote_the_positions",
        "A leader whose etag is old learns that another one wrote the positions.",
        "storage/smq_storage/catalog/group_positions.py",
        "    if new is None:\n        raise Conflict(",
        "    if new is None and not committed.writer:\n        raise Conflict(",
        (f"{TEST_DOCUMENTS}::test_positions_are_swapped",),
    ),
    Mutation(
        "use_a_root_of_a_later_format",
        "A root of another format is refused, because its topics would look absent.",
        "storage/smq_storage/catalog/root_format.py",
        "if found[0].version != ROOT_FORMAT:",
        "if found[0].version < ROOT_FORMAT:",
        ("tests/unit/storage/test_root_format.py::test_a_root_of_a_later_format_is_refused",),
    ),
    Mutation(
        "claim_a_producer_id_that_another_process_took",
        "Of two processes that claim a producer id at once, one gets the epoch and the other the next one.",
        "storage/smq_storage/catalog/producer_claims.py",
        "        if written is not None:\n            return new\n",
        "        return new\n",
        (
            "tests/unit/storage/test_producer_claims.py::test_of_two_processes_that_claim_at_once_one_gets_the_next_epoch",
        ),
    ),
    # ---- the object store
    Mutation(
        "accept_a_store_that_overwrites_on_create",
        "A store that lets a create-only write replace an object is refused at the start.",
        "storage/smq_storage/object_store/conformance_probe.py",
        '    except ObjectExists:\n        return\n    raise StoreUnsupported(f"{store} let a create-only',
        '    except ObjectExists:\n        return\n    return\n    raise StoreUnsupported(f"{store} let a create-only',
        ("tests/unit/storage/test_store_probe.py::test_an_unfit_store_is_refused_with_what_it_did_and_what_to_do",),
    ),
    # ---- file lists and reads of a range
    Mutation(
        "name_a_file_list_whatever_is_named",
        "Only the file list that the writer expects is replaced, so that two compactions do not undo each other.",
        INDEX,
        "swap is None or entry.file_list != swap[0]",
        "swap is None",
        (f"{TEST_INDEX}::test_only_the_expected_file_list_is_replaced",),
    ),
    Mutation(
        "replace_a_file_list_of_other_files",
        "A file list that is already there counts as written only if it lists the same files.",
        FILE_LISTS,
        "return _identities(found) == _identities(file_list)",
        "return True",
        (f"{TEST_FILE_LISTS}::test_a_file_list_of_other_files_is_not_replaced",),
    ),
    Mutation(
        "accept_a_file_list_with_a_gap",
        "The files in a file list have every offset once.",
        FILE_LIST,
        "if file.first != at or file.rows <= 0:",
        "if file.rows <= 0:",
        (
            f"{TEST_FILE_LIST}::test_files_with_a_gap_or_an_overlap_are_refused",
            f"{TEST_FILE_LISTS}::test_a_damaged_file_list_is_refused_by_its_name",
        ),
    ),
    Mutation(
        "skip_a_file_of_unknown_age",
        "A file without append times may have messages of any time.",
        FILE_LIST,
        "if file.appended_max is None or file.appended_max >= since)",
        "if file.appended_max is not None and file.appended_max >= since)",
        (f"{TEST_FILE_LIST}::test_a_file_of_unknown_age_is_not_skipped",),
    ),
    Mutation(
        "cut_the_largest_key_without_rounding",
        "A maximum that is cut must be rounded up, or it does not enclose the key.",
        BOUNDS,
        "return kept[:-1] + bytes([kept[-1] + 1]) if kept else None",
        "return kept if kept else None",
        (f"{TEST_FILE_LIST}::test_long_maxima_are_rounded_up_or_unknown",),
    ),
    Mutation(
        "take_the_bounds_of_the_first_row_group",
        "The bounds of a file enclose all of its row groups.",
        STATISTICS,
        "for group in range(footer.num_row_groups):",
        "for group in range(min(1, footer.num_row_groups)):",
        (f"{TEST_STATISTICS}::test_bounds_reach_over_all_row_groups",),
    ),
    Mutation(
        "read_a_file_that_was_altered",
        "A file with another etag is not the one that the file list has.",
        RANGES,
        "if found.etag != file.etag:",
        "if not found.etag:",
        (f"{TEST_RANGES}::test_an_altered_file_is_refused_by_its_name",),
    ),
    Mutation(
        "read_parts_of_different_files",
        "All parts of a file come from the object with the etag of the file list.",
        "storage/smq_storage/object_store/store.py",
        "if etag is not None and found.etag != etag:",
        "if etag is not None and not found.etag:",
        (
            "tests/unit/storage/test_store.py::test_a_part_of_another_version_of_an_object_is_refused",
            f"{TEST_RANGES}::test_a_file_that_is_altered_between_its_requests_is_refused",
        ),
    ),
    Mutation(
        "end_silently_before_a_chunk_that_is_gone",
        "A sealed segment that ends early has lost a file.",
        "storage/smq_storage/tables/segment_files.py",
        "if segment.end is not None:\n        chain.confirm",
        "if segment.end == 0:\n        chain.confirm",
        (f"{TEST_RANGES}::test_a_vanished_file_is_lost_with_its_name",),
    ),
    # ---- pins of readers
    Mutation(
        "renew_a_pin_that_has_ended",
        "A pin that has ended stays ended, and its reader begins again.",
        "storage/smq_storage/catalog/stored_pins.py",
        "found = read_pin(store, topic, uid, pin_id)\n        if found is None or found.pin.ended or found.problem:",
        "found = read_pin(store, topic, uid, pin_id)\n        if found is None or found.problem:",
        (f"{TEST_PINNED}::test_a_pin_that_has_ended_is_not_renewed",),
    ),
    Mutation(
        "plan_from_an_older_index_than_the_pin_knows",
        "The index of a plan is not older than the one that says what the pin does not cover.",
        "storage/smq_storage/tables/pinned_reads.py",
        "if not (is_old or index_is_stale",
        "if not (index_is_stale",
        (f"{TEST_PINNED}::test_an_index_older_than_the_one_that_the_pin_was_made_with_is_read_again",),
    ),
    # ---- what is missing
    Mutation(
        "report_a_file_as_lost_at_once",
        "That a file is gone is confirmed before anybody is told.",
        "storage/smq_storage/chunks/file_errors.py",
        "        confirm_missing(store, path)\n",
        "",
        (f"{TEST_ABSENCE}::test_a_loss_is_reported_after_a_second_look_alone[file]",),
    ),
    Mutation(
        "report_a_chunk_as_lost_at_once",
        "That a chunk is gone is confirmed before anybody is told.",
        "storage/smq_storage/tables/segment_files.py",
        "        chain.confirm_missing(max(at or 0, start))\n",
        "",
        (f"{TEST_ABSENCE}::test_a_loss_is_reported_after_a_second_look_alone[chain]",),
    ),
    Mutation(
        "report_a_large_value_as_lost_at_once",
        "That a large value is gone is confirmed before anybody is told.",
        "storage/smq_storage/uploads/large_values.py",
        "        confirm_missing(store, path)\n",
        "",
        (f"{TEST_ABSENCE}::test_a_loss_is_reported_after_a_second_look_alone[value]",),
    ),
    Mutation(
        "believe_a_second_read",
        "A listing that has the object outweighs two reads.",
        "storage/smq_storage/object_store/absence.py",
        "            raise hidden(listed)\n",
        "            return\n",
        (
            f"{TEST_ABSENCE}::test_an_object_that_a_second_read_or_a_listing_finds_is_not_missing",
            f"{TEST_ABSENCE}::test_all_of_many_objects_must_be_missing",
        ),
    ),
    Mutation(
        "list_the_first_of_many_missing_objects",
        "A listing is searched for every object that may be missing.",
        "storage/smq_storage/object_store/absence.py",
        "        if found.path > ordered[-1]:\n",
        "        if found.path > ordered[0]:\n",
        (f"{TEST_ABSENCE}::test_all_of_many_objects_must_be_missing",),
    ),
    Mutation(
        "pause_for_each_missing_file",
        "A verification pauses once for all files that a segment has lost.",
        "storage/smq_storage/object_store/absence.py",
        "            confirm_missing(self._store, *self._paths)\n",
        "            for path in self._paths:\n                confirm_missing(self._store, path)\n",
        (f"{TEST_ABSENCE}::test_a_verification_pauses_once_for_all_files_that_a_segment_has_lost",),
    ),
    Mutation(
        "report_missing_files_unconfirmed",
        "A verification reports a missing file only after a second look.",
        "storage/smq_storage/verification/topic_files.py",
        "                absences.confirm()\n",
        "",
        (
            f"{TEST_ABSENCE}::test_verify_reports_no_file_that_is_there",
            f"{TEST_ABSENCE}::test_a_verification_reports_no_file_that_a_listing_has",
        ),
    ),
    Mutation(
        "take_a_listed_document_for_missing",
        "A layout, an index page or a uid is missing only if a listing lacks it as well.",
        "storage/smq_storage/object_store/json_documents.py",
        "            raise hidden(path)\n",
        "            return None\n",
        (f"{TEST_ABSENCE}::test_a_document_that_is_listed_is_not_taken_for_missing",),
    ),
    Mutation(
        "take_a_denied_deletion_for_no_clear_answer",
        "A deletion that the store denies is a denial.",
        "storage/smq_storage/object_store/failures.py",
        ', "(code: AccessDenied)")',
        ")",
        ("tests/unit/storage/test_store_errors.py::test_a_denied_deletion_is_a_denial",),
    ),
    Mutation(
        "raise_the_clients_error_of_a_path",
        "A path that no store has is an invalid request.",
        "storage/smq_storage/object_store/failures.py",
        "    except (ValueError, TypeError) as error:",
        "    except ZeroDivisionError as error:",
        ("tests/unit/storage/test_store_errors.py::test_a_path_that_no_store_has_is_an_invalid_request",),
    ),
    Mutation(
        "end_the_thread_at_a_panic_of_the_client",
        "An answer that the store's client does not expect is no clear answer.",
        "storage/smq_storage/object_store/failures.py",
        "        if not is_panic(error):\n            raise\n",
        "        raise\n",
        ("tests/unit/storage/test_store_errors.py::test_an_answer_that_the_client_does_not_expect_is_no_clear_answer",),
    ),
)
