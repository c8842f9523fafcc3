"""Broken rules of what happens at the same time, of the order of effects, and of what follows a failure between two."""

from __future__ import annotations

from .mutation import Mutation

FETCH_OUTPUT = "client/smq/consuming/fetching/fetch_output.py"
TEST_FETCHER = "tests/unit/client/consuming/test_fetcher.py"
GROUPS = "operator/smq_operator/groups/group_coordinator.py"
TEST_GROUPS = "tests/unit/operator/groups/test_group_coordinator.py"
TEST_CHANGES = "tests/unit/operator/groups/test_group_changes.py"
TOPIC_DELETION = "operator/smq_operator/cleanup/topic_deletion.py"
TEST_DELETION = "tests/unit/operator/cleanup/test_topic_deletion.py"
LIST_WATCH = "operator/smq_operator/kube/informer/list_watch.py"
TEST_LIST_WATCH = "tests/unit/operator/kube/test_list_watch.py"
TEST_OUTCOME_WORKER = "tests/unit/client/producing/test_outcome_worker.py"
TEST_SYNC = "tests/unit/operator/reconcile/test_topic_sync.py"
TAIL_STREAM = "client/smq/reading/tail_stream.py"
TEST_CHANNELS = "tests/unit/client/transport/test_reader_channels.py"
REBALANCE = "client/smq/consuming/groups/rebalance_events.py"
TEST_REBALANCE = (
    "tests/unit/client/consuming/test_rebalance_events.py::"
    "test_only_segments_that_the_member_still_holds_are_reported_as_revoked"
)

MUTATIONS = (
    # ---- the leader
    Mutation(
        "trim_while_retention_removes",
        "What retention and a trim remove at the same time is counted once.",
        "operator/smq_operator/cleanup/garbage_collection.py",
        "            async with self._removing:\n                await self._apply_retention(managed, topic)\n",
        "            await self._apply_retention(managed, topic)\n",
        (
            "tests/unit/operator/cleanup/test_paused_retention.py::"
            "test_what_retention_and_a_trim_remove_at_the_same_time_is_counted_once",
        ),
    ),
    Mutation(
        "note_a_topic_that_seems_to_live_again_as_sealed",
        "The record of a deletion says that it is sealed only when every segment is.",
        TOPIC_DELETION,
        "        if self._is_live(it.uid):\n            return\n",
        "",
        (f"{TEST_DELETION}::test_a_topic_that_seems_to_live_again_is_not_noted_as_sealed",),
    ),
    Mutation(
        "change_a_group_while_its_file_is_written",
        "A change of a group waits for the commit that is being written.",
        GROUPS,
        "            if it is not None and it.writer is not None and not it.writer.done():\n"
        "                await asyncio.wait([it.writer])\n"
        "                it = self._groups.get(key)\n",
        "",
        (f"{TEST_GROUPS}::test_a_change_waits_for_the_commit_that_is_being_written",),
    ),
    Mutation(
        "give_out_the_generations_of_the_former_leader",
        "The generations of two leaders never coincide.",
        GROUPS,
        "        generation = next_generation(kept.generation)\n",
        "        generation = kept.generation + 1\n",
        (f"{TEST_CHANGES}::test_two_leaders_never_give_out_the_same_generation",),
    ),
    Mutation(
        "count_a_document_that_was_not_read_as_checked",
        "A document of publishes that could not be read is read again soon.",
        "operator/smq_operator/publishing/completer.py",
        '        """Starts what is unfinished in this topic and does not run yet."""\n',
        "        self._checked_at[topic.uid] = self._now()\n",
        (
            "tests/unit/operator/publishing/test_completer.py::"
            "test_a_document_that_could_not_be_read_is_read_again_soon",
        ),
    ),
    Mutation(
        "free_a_name_before_the_deletion_is_recorded",
        "A name is free only after the deletion of its topic is recorded.",
        "operator/smq_operator/reconcile/topics/adoption.py",
        "        record_deletion(store, name, uid, retry_policy, now)\n"
        "        try:\n"
        '            put_current(store, name, "", current[1], retry_policy)\n',
        "        try:\n"
        '            put_current(store, name, "", current[1], retry_policy)\n'
        "            record_deletion(store, name, uid, retry_policy, now)\n",
        (f"{TEST_DELETION}::test_a_name_is_free_only_after_the_deletion_is_recorded",),
    ),
    Mutation(
        "let_brokers_leave_before_the_segments_of_a_deleted_topic_are_known",
        "No broker leaves while the leader does not know the segments of a deleted topic.",
        TOPIC_DELETION,
        "            if it.deletion is None:\n                return True\n",
        "            if it.deletion is None:\n                continue\n",
        (f"{TEST_DELETION}::test_a_broker_stays_until_the_segments_of_a_deleted_topic_are_known",),
    ),
    Mutation(
        "take_a_segment_that_was_sealed_during_a_pass_for_named",
        "A segment that is sealed during a pass over the file lists is in the next pass.",
        "operator/smq_operator/file_lists/namer.py",
        "if file_lists.complete and seen == managed.index.changes:\n            self._complete[topic.uid] = seen,",
        "if file_lists.complete:\n            self._complete[topic.uid] = managed.index.changes,",
        (
            "tests/unit/operator/file_lists/test_namer.py::"
            "test_a_segment_that_is_sealed_during_a_pass_gets_a_file_list_too",
        ),
    ),
    Mutation(
        "confirm_a_request_that_a_restart_dropped",
        "A manual request that the restart of its topic dropped is an error.",
        "operator/smq_operator/reconcile/manual_requests.py",
        "    if managed.reconciler is not reconciler or managed.deleted:\n",
        "    if managed.deleted:\n",
        (
            "tests/unit/operator/reconcile/test_effects.py::"
            "test_a_request_that_a_restart_of_its_topic_dropped_was_not_written",
        ),
    ),
    Mutation(
        "drop_the_connection_that_has_replaced_a_broken_one",
        "A call that fails on a former connection to a broker leaves the newer one.",
        "operator/smq_operator/brokers/calls.py",
        "        if self._connections.get(incarnation) is connection:\n",
        "        if incarnation in self._connections:\n",
        ("tests/unit/operator/brokers/test_calls.py::test_a_call_that_fails_late_leaves_the_newer_connection",),
    ),
    Mutation(
        "forget_a_list_that_failed",
        "A list of resources that failed is made again soon.",
        LIST_WATCH,
        "                self._pending_kinds |= due\n",
        "",
        (f"{TEST_LIST_WATCH}::test_a_list_that_failed_is_made_again_soon",),
    ),
    Mutation(
        "miss_a_watch_that_begins_during_a_list",
        "A watch that begins while a list is made gets another list.",
        LIST_WATCH,
        "            self._wakeup.clear()\n"
        "            due, self._pending_kinds = self._pending_kinds, set()\n"
        "            try:\n"
        "                await self._list(due)\n",
        "            due, self._pending_kinds = self._pending_kinds, set()\n"
        "            try:\n"
        "                await self._list(due)\n"
        "                self._wakeup.clear()\n",
        (f"{TEST_LIST_WATCH}::test_a_watch_that_begins_during_a_list_gets_another_one",),
    ),
    Mutation(
        "take_the_newest_spec_for_the_adopted_one",
        "A spec that changes while the former one is adopted is adopted too.",
        "operator/smq_operator/reconcile/topic_sync.py",
        "        managed.last_adopted = desired\n",
        "        managed.last_adopted = managed.desired\n",
        (f"{TEST_SYNC}::test_a_spec_that_changes_while_the_former_one_is_adopted_is_adopted_too",),
    ),
    Mutation(
        "take_in_a_loss_of_a_former_topic",
        "A loss that is recorded for a former topic of the name is none of the next.",
        "operator/smq_operator/reconcile/loss_recorder.py",
        "        if managed.topic is None or managed.topic.uid != topic.uid:\n            return\n        for entry",
        "        for entry",
        (f"{TEST_SYNC}::test_a_loss_of_a_former_topic_of_the_name_is_none_of_the_next",),
    ),
    Mutation(
        "restart_a_topic_for_a_former_effect",
        "An effect of a former reconciler that fails restarts no newer one.",
        "operator/smq_operator/reconcile/loop.py",
        "            if managed.reconciler is reconciler:\n                self._suspend",
        "            if managed.reconciler is not None:\n                self._suspend",
        (
            "tests/unit/operator/reconcile/test_effects.py::"
            "test_an_effect_of_a_former_reconciler_that_fails_restarts_no_newer_one",
        ),
    ),
    Mutation(
        "label_the_leader_once",
        "The label of the leader's Pod is set again if that failed.",
        "operator/smq_operator/kube/election/lease.py",
        "            self._labeled_versions.pop(name, None)\n",
        "",
        (
            "tests/unit/operator/kube/test_leader_label.py::test_a_label_that_could_not_be_set_is_set_with_the_next_step",
        ),
    ),
    Mutation(
        "parse_a_list_of_topics_on_the_loop",
        "Topics of a list are not parsed on the leader's event loop.",
        LIST_WATCH,
        "await asyncio.to_thread(self._parse_topics, items)",
        "self._parse_topics(items)",
        (f"{TEST_LIST_WATCH}::test_a_list_of_topics_is_not_parsed_on_the_loop",),
    ),
    Mutation(
        "parse_topics_at_each_change_of_their_status",
        "A Topic is parsed if something has changed that the parser reads.",
        "operator/smq_operator/kube/desired_topics.py",
        "if parsed is None or parsed.source != source:",
        "if True:",
        ("tests/unit/operator/kube/test_desired_topics.py::test_a_change_of_the_status_parses_nothing",),
    ),
    Mutation(
        "take_what_was_parsed_of_another_state",
        "A Topic is what it is now, whatever was parsed before.",
        "operator/smq_operator/kube/desired_topics.py",
        "if parsed is None or parsed.source != source:",
        "if parsed is None:",
        (
            "tests/unit/operator/kube/test_desired_topics.py::"
            "test_the_topic_is_what_it_is_now_whatever_was_parsed_before",
        ),
    ),
    Mutation(
        "miss_a_change_that_could_not_be_taken_in",
        "A change of a resource that could not be taken in is listed.",
        "operator/smq_operator/kube/informer/watcher.py",
        "            self._on_listed(kind)  # the change would be missed until the next list\n",
        "",
        (f"{TEST_LIST_WATCH}::test_a_change_that_could_not_be_taken_in_is_listed",),
    ),
    Mutation(
        "report_what_was_read_after_the_removal_as_lost",
        "What a group has read of a segment after retention removed it is not lost.",
        "operator/smq_operator/groups/group_losses.py",
        "            start = max(segment.unread[name], positions.get(segment.name, 0))\n",
        "            start = segment.unread[name]\n",
        (
            "tests/unit/operator/groups/test_group_losses.py::"
            "test_what_a_group_has_read_of_a_segment_that_was_removed_is_not_lost",
        ),
    ),
    # ---- brokers
    Mutation(
        "delete_folders_of_other_programs",
        "Of a journal's disk, only what a process left that ended at its beginning is deleted.",
        "broker/smq_broker/journal/folder.py",
        "if [it.name for it in folder.iterdir()] == [UNFINISHED_PROCESS]:",
        "if (folder / UNFINISHED_PROCESS).exists():",
        ("tests/unit/broker/journal/test_journal.py::test_what_a_process_left_that_ended_at_its_beginning_is_removed",),
    ),
    Mutation(
        "forget_the_producers_of_a_removed_predecessor",
        "A successor reads the seal chunk of its predecessor while there is one, because it has the producers' epochs.",
        "broker/smq_broker/segments/predecessors.py",
        "outcomes.read(name) or (outcomes.read_removed(name) if reads_index else None)",
        "(outcomes.read_removed(name) if reads_index else None) or outcomes.read(name)",
        (
            "tests/unit/broker/segments/test_predecessors.py::"
            "test_it_reads_the_seal_chunk_of_one_that_was_removed_while_there_is_one",
        ),
    ),
    Mutation(
        "count_journal_files_that_are_used_again",
        "Only files that wait for their next use count for the limit of recycled ones.",
        "broker/smq_broker/journal/recycled_files.py",
        "            self._resized(-size)\n",
        "            self._on_resize(-size)\n",
        (
            "tests/unit/broker/journal/test_journal_files_on_disk.py::"
            "test_the_space_of_a_file_that_is_used_again_is_free_for_others",
        ),
    ),
    Mutation(
        "locate_by_a_layout_that_was_read_long_ago",
        "A broker answers locate by a layout that it has just read.",
        "broker/smq_broker/leader_client/locator.py",
        "time.monotonic() - cached[0] < CACHE_TTL_SECONDS",
        "time.monotonic() - cached[0] < 3600.0",
        ("tests/unit/broker/test_locator.py::test_a_layout_is_not_kept_for_long",),
    ),
    # ---- clients
    Mutation(
        "query_outcomes_over_a_broken_connection",
        "A broker that did not answer is queried over a new connection.",
        "client/smq/producing/seal_outcomes.py",
        "                    self._drop(replica)\n                else",
        "                else",
        (f"{TEST_OUTCOME_WORKER}::test_a_broken_connection_is_not_used_again",),
    ),
    Mutation(
        "give_up_outcomes_after_a_mistake",
        "A query for outcomes that fails is made again.",
        "client/smq/producing/runtime/outcome_worker.py",
        'log.exception("a query for seal outcomes failed")\n            return True',
        'log.exception("a query for seal outcomes failed")\n            return False',
        (f"{TEST_OUTCOME_WORKER}::test_a_query_that_fails_is_made_again",),
    ),
    Mutation(
        "leave_out_losses_before_the_last_commit",
        "A running member learns of each loss, also if another one has committed since.",
        "client/smq/consuming/consumer_losses.py",
        "if it.acknowledged and not self._group.received:",
        "if it.acknowledged:",
        (
            "tests/unit/client/consuming/test_consumer_losses.py::"
            "test_a_running_member_learns_of_a_loss_before_the_groups_last_commit",
        ),
    ),
    Mutation(
        "share_no_connection_after_a_broken_one_ends",
        "The last reader of a broken connection leaves the newer one to the others.",
        "client/smq/transport/reader_channels.py",
        "if unused and self._channels.get(shared.replica) is shared:",
        "if unused and shared.replica in self._channels:",
        (f"{TEST_CHANNELS}::test_a_connection_is_cut_only_if_nobody_gets_frames_over_it",),
    ),
    Mutation(
        "leave_the_leader_for_a_former_failure",
        "A call that fails late leaves the leader that another call has found.",
        "client/smq/transport/leader_client.py",
        "            if self._current != failed:\n                return\n",
        "",
        (
            "tests/unit/client/transport/test_leader_client.py::"
            "test_a_call_that_fails_late_leaves_the_leader_that_another_one_has_found",
        ),
    ),
    Mutation(
        "share_a_connection_that_broke",
        "A connection that breaks is not given to the next reader.",
        TAIL_STREAM,
        "                shared.is_broken = True",
        "                shared.is_broken = False",
        (f"{TEST_CHANNELS}::test_a_connection_that_breaks_is_not_given_to_the_next_reader",),
    ),
    Mutation(
        "leave_a_call_that_hangs_before_it_begins",
        "A stream that is aborted before it begins cuts a connection over which nobody gets frames.",
        TAIL_STREAM,
        "        elif shared is not None:\n            shared.cut_if_unresponsive(time.monotonic())\n",
        "",
        (f"{TEST_CHANNELS}::test_a_stream_that_is_aborted_before_it_begins_cuts_a_connection_without_frames",),
    ),
    Mutation(
        "end_a_shutdown_that_cannot_report_an_error",
        "An error that cannot be reported ends no shutdown.",
        "storage/smq_storage/process/shutdown_steps.py",
        "            except Exception as second:\n                self.errors",
        "            except ValueError as second:\n                self.errors",
        ("tests/unit/storage/test_shutdown.py::test_an_error_that_cannot_be_reported_ends_no_shutdown",),
    ),
    # ---- readers
    Mutation(
        "revoke_segments_that_have_ended",
        "A member's program is told of no revocation of a segment that it has read to its end.",
        REBALANCE,
        "        self._held.discard(segment)\n",
        "        return\n",
        (TEST_REBALANCE,),
    ),
    Mutation(
        "revoke_segments_twice",
        "A member's program is told once that a segment is revoked.",
        REBALANCE,
        "frozenset(segments) & self._held",
        "frozenset(segments)",
        (TEST_REBALANCE,),
    ),
    Mutation(
        "read_the_seals_before_the_reports",
        "What a reader takes from a successor comes after all messages of its predecessors.",
        "client/smq/reading/topic_state.py",
        "        reaches = self._reports.reaches(at.topic, at.uid, living) if self._reports is not None else {}\n",
        "        read = {it.name: self._seal(it) for it in living}\n"
        "        reaches = self._reports.reaches(at.topic, at.uid, living) if self._reports is not None else {}\n"
        "        self._seal = lambda segment: read[segment.name]\n",
        (
            "tests/unit/client/test_topic_state.py::"
            "test_what_successors_have_comes_after_all_messages_of_their_predecessors",
        ),
    ),
    Mutation(
        "forget_the_end_of_a_segment_with_the_index",
        "A reader knows the end of a segment that it has seen sealed, also after the index has forgotten it.",
        "core/smq_core/reading/segment_dag.py",
        "        end = node.end if end is None and node is not None else end\n",
        "",
        (
            "tests/unit/client/consuming/test_segment_reads.py::"
            "test_the_end_of_a_segment_is_known_after_the_index_has_forgotten_it",
        ),
    ),
    Mutation(
        "report_a_loss_of_nothing",
        "A reader that has read a segment to its end has lost nothing when retention removes it.",
        FETCH_OUTPUT,
        "        if end is None or end > self.position:\n            self.put_item",
        "        if end is None or end >= self.position:\n            self.put_item",
        (f"{TEST_FETCHER}::test_only_what_was_not_read_of_a_segment_that_retention_has_removed_is_lost",),
    ),
    Mutation(
        "read_segments_that_began_after_the_present_ends",
        "A query with the trigger AvailableNow reads nothing of segments that begin later.",
        "spark/pyspark_smq/planning/stream_plan.py",
        "self._target.get(name, 0))",
        "self._target.get(name, end))",
        ("tests/unit/spark/test_stream_plan.py::test_available_now_reads_nothing_of_segments_that_begin_later",),
    ),
)
