"""Broken rules of atomic publishes: what is committed, what is kept, and how files are checked and copied."""

from __future__ import annotations

from ..mutation import Mutation

MODEL = "core/smq_core/model/atomic_publish.py"
TEST_MODEL = "tests/unit/core/model/test_atomic_publish.py"
FILES = "operator/smq_operator/publishing/files.py"
KEPT = "operator/smq_operator/publishing/kept_files.py"
RENEWAL = "storage/smq_storage/uploads/renewal.py"
COMPLETER = "operator/smq_operator/publishing/completer.py"
TEST_COMPLETER = "tests/unit/operator/publishing/test_completer.py"
TRIED = "operator/smq_operator/publishing/tried_segments.py"
TEST_TRIED = "tests/unit/operator/publishing/test_tried_segments.py"
PUBLISHER = "client/smq/producing/atomic_publisher.py"
TEST_PUBLISHER = "tests/unit/client/producing/test_atomic_publisher.py"
TEST_FILES = "tests/unit/operator/publishing/test_files.py"
SERVICE = "operator/smq_operator/api/publishes.py"
TEST_SERVICE = "tests/unit/operator/api/test_publishes.py"

MUTATIONS = (
    Mutation(
        "commit_files_of_any_age",
        "A file that brokers would reject for its age is not committed.",
        FILES,
        "    check_age(file.upload, filer_now - round(upload.modified.timestamp() * SECOND), max_age)",
        "    pass",
        (f"{TEST_FILES}::test_a_file_that_brokers_would_reject_is_not_committed",),
    ),
    Mutation(
        "collect_the_files_of_an_unfinished_publish",
        "The uploads of an unfinished publish are kept.",
        KEPT,
        "for file in app.unfinished.files}",
        "for file in app.unfinished.files[:0]}",
        (f"{TEST_FILES}::test_files_are_kept_until_the_publish_is_complete",),
    ),
    Mutation(
        "believe_an_old_answer_about_unfinished_publishes",
        "Retention waits unless it is certain that no publish is unfinished.",
        KEPT,
        "newest is None or bool(newest.unfinished)",
        "newest is not None and bool(newest.unfinished)",
        (f"{TEST_FILES}::test_an_answer_that_is_out_of_date_holds_retention",),
    ),
    Mutation(
        "copy_an_altered_file",
        "A file that was altered after the commit is not copied.",
        RENEWAL,
        "tail = read_tail(store, path, file.etag)",
        "tail = read_tail(store, path)",
        (f"{TEST_FILES}::test_a_file_that_was_altered_or_deleted_is_not_copied",),
    ),
    Mutation(
        "copy_a_row_group_at_a_time",
        "The memory of a copy does not grow with the row groups of the file.",
        RENEWAL,
        "parquet.iter_batches(_rows_at_a_time(footer), use_threads=False)",
        "parquet.read().to_batches()",
        (f"{TEST_FILES}::test_memory_does_not_grow_with_the_file",),
    ),
    Mutation(
        "give_a_committed_publish_up",
        "A mistake in one attempt does not end a committed publish.",
        COMPLETER,
        "                await asyncio.sleep(FAILURE_RETRY_SECONDS)",
        "                return",
        (f"{TEST_COMPLETER}::test_a_mistake_is_reported_and_the_publish_is_tried_again",),
    ),
    Mutation(
        "copy_a_file_for_each_segment",
        "One copy of a file serves all segments that need it.",
        COMPLETER,
        "if attempt.copies.get(key, file).upload == unusable:",
        "if True:",
        (f"{TEST_COMPLETER}::test_segments_that_need_a_newer_file_share_one_copy",),
    ),
    Mutation(
        "complete_what_another_leader_has_completed",
        "A paused leader does not write rows again that retention has removed.",
        TRIED,
        "if present is None or present.unfinished is None or present.epoch != app.epoch:",
        "if False:",
        (f"{TEST_TRIED}::test_a_completed_publish_is_not_written_again_after_retention",),
    ),
    Mutation(
        "believe_an_old_answer_about_a_completed_publish",
        "After retention a leader writes only what is surely unfinished.",
        TRIED,
        "document = read_newest_publishes(store, topic.name, topic.uid, retry_policy)",
        "document = read_publishes(store, topic.name, topic.uid)",
        (f"{TEST_TRIED}::test_an_answer_of_before_the_completion_is_not_believed_after_retention",),
    ),
    Mutation(
        "wait_for_a_segment_that_was_removed_before_the_commit",
        "A publish does not wait for segments that retention has removed, however old its mark is.",
        TRIED,
        "if index_is_stale(found[0], index.entries, index.removed):",
        "if index_is_stale(found[0], index.entries):",
        (
            f"{TEST_TRIED}::test_a_publish_does_not_wait_for_a_segment_that_was_removed_between_its_mark_and_its_commit",
            f"{TEST_TRIED}::test_segments_that_were_sealed_after_the_commit_and_before",
        ),
    ),
    Mutation(
        "wait_for_all_numbers_since_the_commit",
        "A publish does not wait for numbers that no segment has.",
        TRIED,
        "if index_is_stale(found[0], index.entries, index.removed):",
        "if not index.removed and len(index.entries) + len(found[0].segments) < found[0].next_number:",
        (f"{TEST_TRIED}::test_a_publish_does_not_wait_for_numbers_that_no_segment_has",),
    ),
    Mutation(
        "roll_forward_with_an_index_that_is_older_than_the_layout",
        "A segment that is in neither layout nor index may have rows of a publish.",
        TRIED,
        "if index_is_stale(found[0], index.entries, index.removed):",
        "if False:",
        (f"{TEST_TRIED}::test_nothing_is_written_while_a_segment_is_in_neither_layout_nor_index",),
    ),
    Mutation(
        "believe_an_old_answer_if_only_later_segments_are_removed",
        "A removed segment that is younger than the mark may have had rows, so the newest document decides.",
        "core/smq_core/model/atomic_publish.py",
        "return any(stop > self.next_number for _, stop in numbers) or any(contains",
        "return any(contains",
        (f"{TEST_TRIED}::test_an_answer_of_before_the_completion_is_not_believed_after_retention",),
    ),
    Mutation(
        "report_dropped_rows_as_published",
        "The rows of a call are published if it has committed the version, and not if another one has.",
        PUBLISHER,
        "by_this_call = by_this_call or not reply.already_published",
        "by_this_call = True",
        (f"{TEST_PUBLISHER}::test_rows_that_another_call_replaced_are_not_reported_as_published",),
    ),
    Mutation(
        "forget_what_this_call_has_committed",
        "A later version does not change what became of this one.",
        PUBLISHER,
        "by_this_call = by_this_call or not reply.already_published",
        "by_this_call = not reply.already_published",
        (f"{TEST_PUBLISHER}::test_what_this_call_has_committed_is_published_by_it",),
    ),
    Mutation(
        "believe_a_walk_that_ends_early",
        "A sealed segment that has forgotten producers is read up to its end.",
        TRIED,
        "        if end < entry.end:",
        "        if False:",
        (f"{TEST_TRIED}::test_a_sealed_segment_with_forgotten_producers_is_checked_up_to_its_end",),
    ),
    Mutation(
        "return_the_last_version_of_an_older_answer",
        "The leader proves that the last version which it returns is the newest.",
        SERVICE,
        "return lambda document: replace(new(document))",
        "return new",
        (f"{TEST_SERVICE}::test_the_last_version_is_that_of_the_newest_document",),
    ),
    Mutation(
        "report_a_version_as_complete_by_an_answer_from_before_its_commit",
        "A version is complete when what was read has its commit.",
        SERVICE,
        "    return app.version is not None and app.version >= version\n",
        "    return True\n",
        (f"{TEST_SERVICE}::test_a_version_is_complete_only_when_its_commit_can_be_read",),
    ),
    Mutation(
        "fence_an_owner_by_an_answer_from_before_its_claim",
        "An owner is fenced only by the newest document.",
        "storage/smq_storage/catalog/atomic_publishes.py",
        "            changed, fenced = replace(present), error\n",
        "            raise error\n",
        (f"{TEST_SERVICE}::test_who_owns_an_app_is_not_fenced_by_an_answer_from_before_the_claim",),
    ),
    Mutation(
        "return_the_last_version_of_before",
        "The last version comes from the leader each time.",
        PUBLISHER,
        "version = self._claim_from_leader(view, claimed, False, time.monotonic() + timeout)",
        "version = self._claim(view, claimed, False, time.monotonic() + timeout)",
        (f"{TEST_PUBLISHER}::test_the_last_version_is_the_newest_one_after_each_publish",),
    ),
    Mutation(
        "drop_rows_silently",
        "Rows that are dropped are logged, unless this client has published their version itself.",
        PUBLISHER,
        "if receipt.already_published and self._own_versions.get(claimed) != version:",
        "if False:",
        (f"{TEST_PUBLISHER}::test_rows_that_are_dropped_are_logged_unless_this_client_has_published_their_version",),
    ),
    Mutation(
        "publish_a_stream_under_the_app_of_another_query",
        "A stream takes no app, because a new checkpoint would begin at version 0 again.",
        "spark/pyspark_smq/options.py",
        'if stream and (given.text("txnAppId") or given.text("txnVersion")):',
        "if False:",
        (
            "tests/unit/spark/test_options.py"
            "::test_a_stream_refuses_the_app_of_batch_writes_because_a_new_checkpoint_would_drop_its_rows",
        ),
    ),
    Mutation(
        "say_that_nothing_was_published",
        "A fenced owner gets to know that its version may have been published.",
        MODEL,
        "version <= state.version\n        outcome",
        "False\n        outcome",
        (f"{TEST_MODEL}::test_the_error_of_a_fenced_owner_says_whether_its_version_may_be_published",),
    ),
    Mutation(
        "forget_an_app_that_is_in_use",
        "An app is forgotten only after it was idle for a long time.",
        MODEL,
        "now - it.active_at > (ONE_OFF_EXPIRY if it.one_off else APP_EXPIRY)",
        "True",
        (f"{TEST_MODEL}::test_an_app_expires_only_when_its_place_is_needed",),
    ),
    Mutation(
        "accept_a_file_twice",
        "An upload is in a publish once.",
        MODEL,
        "if names.count(name) > 1",
        "if names.count(name) > 2",
        (f"{TEST_MODEL}::test_bad_input_changes_nothing",),
    ),
    Mutation(
        "keep_what_was_acked_of_the_version_before",
        "What was acked of a version says nothing of the next one.",
        "operator/smq_operator/publishing/completer.py",
        "if attempt is None or attempt.epoch != app.epoch:",
        "if attempt is None:",
        (f"{TEST_COMPLETER}::test_what_was_acked_of_a_version_says_nothing_of_the_next_one",),
    ),
    Mutation(
        "read_the_layout_before_the_publishes",
        "The mark of a commit has the segments that opened before the commit.",
        "operator/smq_operator/api/publishes.py",
        """    def committed(document: AtomicPublishes) -> AtomicPublishes:
        nonlocal result
        changed, result = commit.apply(document, LayoutMark.of(_layout(store, topic)))
""",
        """    mark = LayoutMark.of(_layout(store, topic))

    def committed(document: AtomicPublishes) -> AtomicPublishes:
        nonlocal result
        changed, result = commit.apply(document, mark)
""",
        (f"{TEST_COMPLETER}::test_the_mark_of_a_commit_has_the_segments_that_opened_before_it",),
    ),
)
