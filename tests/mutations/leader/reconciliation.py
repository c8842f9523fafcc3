"""Broken rules of the leader: brokers, effects, groups, cleanup, proofs and the status on Kubernetes."""

from __future__ import annotations

from ..mutation import Mutation

REGISTRY = "operator/smq_operator/brokers/registry.py"
TEST_REGISTRY = "tests/unit/operator/brokers/test_registry.py"
TEST_JOURNALS = "tests/unit/operator/brokers/test_journals.py"
TEST_RECOVERED = "tests/unit/operator/reconcile/test_recovered_journals.py"
TEST_PAUSES = "tests/unit/operator/brokers/test_leader_pauses.py"
EFFECTS = "operator/smq_operator/reconcile/effects.py"
CHAIN = "storage/smq_storage/chunks/chain.py"
SEALING = "operator/smq_operator/brokers/sealing.py"
TEST_SEALING = "tests/unit/operator/brokers/test_sealing.py"
GROUPS = "operator/smq_operator/groups/group_coordinator.py"
POSITIONS = "operator/smq_operator/groups/position_writer.py"
TEST_GROUPS = "tests/unit/operator/groups/test_group_coordinator.py"
RETENTION = "operator/smq_operator/cleanup/retention.py"
TEST_PAUSED = "tests/unit/operator/cleanup/test_paused_retention.py"
TEST_COLLECTION = "tests/unit/operator/cleanup/test_garbage_collection.py"
TEST_PINS = "tests/unit/operator/cleanup/test_reader_pins.py"
TEST_SKEW = "tests/unit/operator/cleanup/test_clock_skew.py"
TEST_TERMINATION = "tests/unit/operator/kube/test_termination_tracker.py"
TEST_REBUILT = "tests/unit/core/reconcile/test_layout_recovery.py"
TEST_LOST = "tests/unit/operator/reconcile/test_lost_documents.py"
TEST_DOCUMENTS = "tests/unit/operator/cleanup/test_unreadable_documents.py"
PROOFS = "operator/smq_operator/kube/termination.py"
TEST_PROOFS = "tests/unit/operator/kube/test_termination_tracker.py"
STATUS = "operator/smq_operator/kube/status/reconciler.py"
WRITER = "operator/smq_operator/kube/status/writer.py"
TEST_STATUS = "tests/unit/operator/kube/test_status_writer.py"
TASKS = "operator/smq_operator/runtime/task_runner.py"
TEST_TASKS = "tests/unit/operator/runtime/test_task_runner.py"
TRIM = "operator/smq_operator/cleanup/trim.py"
TEST_TRIM = "tests/unit/operator/cleanup/test_trim.py"
MANAGED_TOPIC = "operator/smq_operator/reconcile/topics/managed_topic.py"
TEST_COUNTS = "tests/unit/operator/reconcile/test_message_counts.py"

MUTATIONS = (
    Mutation(
        "begin_a_new_story_when_a_topic_restarts",
        "The story of a topic shows why its reconciler was restarted.",
        MANAGED_TOPIC,
        ", warm_up_until=warm_up_until, story=self.story\n",
        ", warm_up_until=warm_up_until\n",
        ("tests/unit/operator/api/test_story.py",),
    ),
    Mutation(
        "keep_every_event_of_a_story",
        "The story of a topic is bounded in events and in bytes.",
        "core/smq_core/reconcile/topic_story.py",
        "while len(self.events) > MAX_EVENTS or self.size_bytes > MAX_BYTES:",
        "while len(self.events) > MAX_EVENTS:",
        ("tests/unit/core/reconcile/test_topic_story.py::test_it_is_bounded_in_events_and_in_bytes[10000]",),
    ),
    Mutation(
        "forget_the_answers_in_a_story",
        "The story of a topic has effects and answers.",
        "core/smq_core/reconcile/topic_reconciler.py",
        "        self.story.add(now, answer, known)\n",
        "",
        (
            "tests/unit/core/reconcile/test_topic_story.py::test_it_has_every_effect_and_every_answer_in_order",
            "tests/unit/operator/api/test_story.py",
        ),
    ),
    Mutation(
        "answer_before_the_broker_drains",
        "A drain is done when the broker reports it, because the leader may change and has it in memory only.",
        "operator/smq_operator/api/admin.py",
        "while any(it.terminated is None and not it.status.draining for it in living):",
        "while False:",
        (
            "tests/unit/operator/api/test_invalid_input.py::"
            "test_a_drain_is_confirmed_by_the_broker_from_which_another_leader_learns_it",
        ),
    ),
    Mutation(
        "fail_at_a_pid_that_a_thread_has",
        "A broker whose pid a thread has by now has ended; the leader starts all the same.",
        "storage/smq_storage/process/pids.py",
        "if error.errno in NO_PROCESS:",
        "if error.errno == errno.ESRCH:",
        ("tests/unit/operator/local/test_processes.py::test_a_pid_that_a_thread_has_now_is_no_process",),
    ),
    Mutation(
        "say_nothing_of_a_broker_that_was_killed",
        "The cause of an unexpected end is among the decisions.",
        "operator/smq_operator/brokers/registry.py",
        "return self.ended is not None and not self.draining and self.has_reported",
        "return False",
        (
            "tests/unit/operator/reconcile/test_recovered_journals.py"
            "::test_the_cause_of_a_broker_that_was_killed_is_a_decision_and_in_the_list",
        ),
    ),
    Mutation(
        "count_what_nobody_reported_as_empty",
        "How many messages a topic holds is unknown while the end of a segment is.",
        "operator/smq_operator/reconcile/topics/managed_topic.py",
        "        if any(name not in ends for name in living):\n            return None\n",
        "        ends = dict.fromkeys(living, 0) | ends\n",
        (
            "tests/unit/operator/reconcile/test_message_counts.py"
            "::test_sealed_and_living_segments_are_counted_and_unknown_is_not_zero",
        ),
    ),
    Mutation(
        "trim_what_groups_have_not_read",
        "A trim keeps what a group has not read, unless it may be skipped.",
        "operator/smq_operator/cleanup/trim.py",
        "spec.retention_keeps_unread and not request.skip_unread",
        "False",
        ("tests/unit/operator/cleanup/test_trim.py::test_what_a_group_has_not_read_stays_unless_it_may_be_skipped",),
    ),
    Mutation(
        "trim_by_size",
        "A trim removes what was sealed before its time, whatever size the topic may have.",
        "operator/smq_operator/cleanup/trim.py",
        "        retention_bytes=None,\n",
        "",
        ("tests/unit/operator/cleanup/test_trim.py::test_the_size_that_a_topic_may_have_is_no_matter_of_a_trim",),
    ),
    Mutation(
        "say_that_a_full_pass_is_all",
        "A trim that has removed as many segments as one pass may says that there are more.",
        "operator/smq_operator/cleanup/trim.py",
        "len(removals) == MAX_SEGMENTS_PER_PASS",
        "len(removals) > MAX_SEGMENTS_PER_PASS",
        ("tests/unit/operator/cleanup/test_trim.py::test_a_trim_of_many_segments_is_to_be_repeated",),
    ),
    Mutation(
        "trim_during_a_publish",
        "A trim removes nothing while an atomic publish is unfinished.",
        "operator/smq_operator/cleanup/trim.py",
        "        if is_held(store, topic, retry_policy):\n",
        "        if False:\n",
        ("tests/unit/operator/cleanup/test_trim.py::test_an_unfinished_publish_removes_nothing_and_is_an_error",),
    ),
    # ---- the registry of brokers
    Mutation(
        "let_a_report_clear_a_failed_probe",
        "Only a successful probe clears a suspicion that a probe confirmed.",
        REGISTRY,
        "        broker.last_report_at = broker.status_at = now\n",
        "        broker.suspected = False\n        broker.last_report_at = broker.status_at = now\n",
        (f"{TEST_REGISTRY}::test_a_pending_liveness_probe_is_not_cleared_by_reports",),
    ),
    Mutation(
        "register_an_incarnation_that_is_gone",
        "An incarnation that was declared gone stays gone, and its reports are refused.",
        REGISTRY,
        "        if broker.terminated is not None:\n            raise WrongIncarnation(",
        "        if known is None and broker.terminated is not None:\n            raise WrongIncarnation(",
        (f"{TEST_REGISTRY}::test_a_newer_incarnation_makes_the_older_one_gone_for_ever",),
    ),
    Mutation(
        "take_an_unreachable_broker_for_gone",
        "A broker whose reports stop is suspected, and gone only by proof.",
        REGISTRY,
        "            return Liveness.SUSPECT\n        return Liveness.ALIVE",
        "            return Liveness.GONE\n        return Liveness.ALIVE",
        (f"{TEST_REGISTRY}::test_a_broker_is_alive_while_it_reports",),
    ),
    Mutation(
        "suspect_a_slow_broker_as_soon_as_before",
        "A broker that was suspected wrongly gets a longer timeout.",
        REGISTRY,
        "min(2 * self.report_timeout_us, MAX_REPORT_TIMEOUT_US),",
        "self.report_timeout_us,",
        (f"{TEST_REGISTRY}::test_a_wrongly_suspected_broker_gets_a_longer_timeout_until_it_is_stable",),
    ),
    Mutation(
        "blame_brokers_for_a_pause_of_the_leader",
        "Reports that are missing because the leader was paused say nothing about the brokers.",
        REGISTRY,
        "            broker.last_report_at += microseconds\n",
        "            pass\n",
        (f"{TEST_REGISTRY}::test_a_pause_of_the_leader_is_no_evidence_against_brokers",),
    ),
    Mutation(
        "let_a_broker_stop_draining",
        "A broker that drains does so until it is gone.",
        REGISTRY,
        "broker.draining = broker.draining or report.leaving or report.status.draining",
        "broker.draining = report.leaving or report.status.draining",
        (f"{TEST_REGISTRY}::test_draining_stays",),
    ),
    Mutation(
        "take_a_process_that_ended_for_gone",
        "A process that ended is not gone, because its journal may come back.",
        REGISTRY,
        "        if journal_gone:\n",
        "        if why:\n",
        (f"{TEST_JOURNALS}::test_a_process_that_ended_is_not_gone",),
    ),
    Mutation(
        "wait_for_a_journal_that_the_next_process_lacks",
        "A process that registers without the journal of a former one proves that it is gone.",
        REGISTRY,
        'registered without its journal", now, journal_gone=True)',
        'registered without its journal", now, journal_gone=False)',
        (f"{TEST_JOURNALS}::test_a_process_that_comes_back_without_the_journal_proves_that_it_is_gone",),
    ),
    Mutation(
        "request_a_seal_of_the_process_that_ended",
        "A replica whose journal was recovered is sealed by the process that has the journal.",
        REGISTRY,
        "return replica if holder is None else holder.replica",
        "return replica",
        (
            f"{TEST_JOURNALS}::test_the_next_process_seals_for_the_one_whose_journal_it_has",
            f"{TEST_RECOVERED}::test_one_journal_is_enough_and_a_later_leader_finds_it",
        ),
    ),
    Mutation(
        "report_a_loss_where_a_whole_journal_lacks_the_segment",
        "A whole journal without the segment proves that nothing was acked.",
        "core/smq_core/sealing/seal_coordinator.py",
        "attempt.acked_nothing or error.certain",
        "attempt.acked_nothing",
        (f"{TEST_RECOVERED}::test_a_whole_journal_without_the_segment_proves_that_nothing_was_lost[True]",),
    ),
    Mutation(
        "let_a_broker_leave_with_recovered_journals",
        "A broker stays until the journals that it recovered are sealed.",
        "operator/smq_operator/api/brokers.py",
        "held = (report.incarnation, *report.recovered)",
        "held = (report.incarnation,)",
        (f"{TEST_RECOVERED}::test_a_broker_stays_until_its_recovered_journals_are_sealed",),
    ),
    Mutation(
        "repeat_requests_to_an_incomplete_journal",
        "An incomplete journal is used only when nothing better is left.",
        "core/smq_core/sealing/seal_coordinator.py",
        "attempt.failed_at, attempt.recovered_end = now, error.end",
        "attempt.failed_at = now",
        (f"{TEST_RECOVERED}::test_damaged_journals_are_used_if_there_is_nothing_better",),
    ),
    Mutation(
        "believe_a_probe_that_a_pause_interrupted",
        "A probe that timed out because the leader was paused is repeated.",
        "operator/smq_operator/brokers/liveness.py",
        "if not answered and self._pauses != pauses:",
        "if not answered and self._pauses < pauses:",
        (f"{TEST_PAUSES}::test_a_probe_that_timed_out_because_the_leader_was_paused_is_repeated",),
    ),
    # ---- effects and sealing
    Mutation(
        "take_an_index_that_is_behind_its_layout",
        "An index that lacks what the layout has sealed is read again.",
        EFFECTS,
        "if layout is not None and index_is_stale(layout, known.entries, known.removed):",
        "if layout is None and known.removed:",
        ("tests/unit/operator/reconcile/test_effects.py::test_an_index_that_is_behind_its_layout_is_not_taken",),
    ),
    Mutation(
        "seal_in_the_middle_of_a_chain",
        "A seal is at the end of the chain, even if the chunk with the state of all producers is missing.",
        CHAIN,
        "return info.snapshot_at if self.info(info.snapshot_at) is not None else 0",
        "return info.snapshot_at",
        (f"{TEST_SEALING}::test_the_seal_is_at_the_end_even_if_the_chunk_with_all_producers_is_missing",),
    ),
    Mutation(
        "seal_with_the_producers_of_the_last_chunk",
        "A seal has the state of the producers of all chunks.",
        SEALING,
        "start=chain.snapshot_hint(), ",
        "start=chain.latest_hint(), ",
        (f"{TEST_SEALING}::test_the_seal_has_the_producers_of_all_chunks",),
    ),
    Mutation(
        "seal_segments_of_a_topic_that_is_only_absent_now",
        "A segment is stale only if the filer has another topic, or none, under its topic's name.",
        "operator/smq_operator/cleanup/stale_segments.py",
        "if current is None or current[0] == topic.uid:",
        "if current is None:",
        ("tests/unit/operator/api/test_service.py::test_segments_of_a_topic_that_is_only_absent_now_are_left_alone",),
    ),
    # ---- groups
    Mutation(
        "let_a_repeated_commit_hang",
        "A commit that arrives while the same positions are written is answered when they are.",
        POSITIONS,
        "            it.answer_waiting(None)",
        "            pass",
        (f"{TEST_GROUPS}::test_a_commit_that_repeats_one_that_is_being_written_is_answered",),
    ),
    Mutation(
        "answer_a_commit_before_it_is_written",
        "A commit is answered when its positions are in the filer.",
        POSITIONS,
        "        if not it.group.pending and not it.touch_due:\n",
        "        if it.waiters:\n",
        (f"{TEST_GROUPS}::test_a_repeated_commit_with_a_new_position_waits_for_the_write_of_that",),
    ),
    Mutation(
        "let_retention_believe_a_group_that_another_leader_took",
        "What a leader knows of a group counts only while the group's file has its generation.",
        GROUPS,
        "            if kept is not None and kept.generation > it.group.generation:\n",
        "            if False:\n",
        (f"{TEST_GROUPS}::test_retention_sees_the_positions_that_another_leader_has_set_back",),
    ),
    Mutation(
        "answer_no_commit_of_a_group_that_another_leader_took",
        "Commits that wait are answered when another leader has taken the group.",
        GROUPS,
        "        it.answer_waiting(why)\n",
        "        it.waiters = []\n",
        (f"{TEST_GROUPS}::test_a_commit_that_waits_for_a_write_is_answered_when_another_leader_took_the_group",),
    ),
    Mutation(
        "answer_no_commit_when_the_leader_stops",
        "Commits that wait are answered when the leader stops.",
        POSITIONS,
        "        except BaseException:\n            self._on_failure(",
        "        except BaseException:\n            _ = lambda *_: (",
        (f"{TEST_GROUPS}::test_a_commit_that_waits_for_a_write_is_answered_when_the_leader_stops",),
    ),
    Mutation(
        "expire_members_for_a_pause_of_the_leader",
        "No member expires because the leader was paused.",
        GROUPS,
        "            it.group.compensate_pause(microseconds)\n",
        "            pass\n",
        (f"{TEST_GROUPS}::test_no_member_expires_because_the_leader_was_paused",),
    ),
    Mutation(
        "forget_a_group_that_cannot_be_read",
        "A group whose positions cannot be read has read nothing, so retention keeps everything for it.",
        GROUPS,
        "        known = {name: _progress(name, kept) for name, kept in stored.items()}\n",
        "        known = {name: _progress(name, kept) for name, kept in stored.items() if kept is not None}\n",
        (
            f"{TEST_DOCUMENTS}"
            "::test_a_group_whose_positions_cannot_be_read_keeps_segments_and_does_not_hide_the_other_groups",
        ),
    ),
    # ---- retention and garbage collection
    Mutation(
        "read_the_clocks_after_the_groups",
        "Retention reads the clocks before the groups, because its leader may be paused in between.",
        "operator/smq_operator/cleanup/garbage_collection.py",
        "        return clocks, known, await self._groups.states(managed, topic)\n",
        "        groups = await self._groups.states(managed, topic)\n"
        "        return await self._filer_clock.read(), known, groups\n",
        (f"{TEST_PAUSED}::test_what_expires_during_the_pause_stays_for_groups_that_begin_in_it",),
    ),
    Mutation(
        "read_the_index_after_the_groups",
        "Retention reads the index before the groups, because its leader may be paused in between.",
        "operator/smq_operator/cleanup/garbage_collection.py",
        "        return clocks, known, await self._groups.states(managed, topic)\n",
        "        groups = await self._groups.states(managed, topic)\n"
        "        return clocks, await self._store.run(read_consistent, topic), groups\n",
        (f"{TEST_PAUSED}::test_segments_that_are_sealed_during_the_pause_make_no_other_one_expire",),
    ),
    Mutation(
        "remove_the_predecessor_of_a_segment_that_has_to_open",
        "The predecessors of a segment stay until its primary has read their seal chunks.",
        RETENTION,
        "        if (segment.primary.incarnation, segment.name) not in started\n",
        "        if not segment.replicas\n",
        (f"{TEST_COLLECTION}::test_the_predecessor_of_a_segment_that_has_still_to_open_stays",),
    ),
    Mutation(
        "remove_by_an_index_that_is_behind",
        "Nothing is removed while index and layout do not match.",
        RETENTION,
        "    if index_is_stale(*known) or layout_is_stale(*known):\n        return None\n",
        "",
        (
            f"{TEST_COLLECTION}::test_a_layout_that_was_read_too_old_removes_nothing",
            f"{TEST_COLLECTION}::test_an_index_that_is_behind_the_layout_removes_nothing",
        ),
    ),
    Mutation(
        "remove_in_the_name_of_a_former_topic",
        "A leader of an earlier topic of the name removes nothing.",
        RETENTION,
        "current is None or current[0] != topic.uid",
        "current is None",
        (f"{TEST_COLLECTION}::test_a_leader_of_an_earlier_life_of_the_name_removes_nothing",),
    ),
    Mutation(
        "delete_files_from_the_beginning_of_the_chain",
        "Files are deleted from the end of the chain to its beginning, so that the rest is found from offset 0.",
        RETENTION,
        "    for path in (*sorted(large_values), *sorted(files, reverse=True)):\n",
        "    for path in (*sorted(large_values), *sorted(files)):\n",
        (f"{TEST_COLLECTION}::test_files_missing_from_listings_are_deleted_after_a_crash_too",),
    ),
    Mutation(
        "delete_files_as_soon_as_their_segment_is_removed",
        "Files stay for a while after their segment was removed, because readers may still read them.",
        RETENTION,
        "if age_of_removal(it, clocks) >= grace_us]",
        "if grace_us]",
        (f"{TEST_COLLECTION}::test_files_stay_for_a_while_after_their_segment_was_removed",),
    ),
    Mutation(
        "keep_no_replaced_file_list_for_pins",
        "A replaced file list stays while a reader's pin may need it.",
        "operator/smq_operator/cleanup/orphaned_files.py",
        "    if orphaned and has_pins(store, topic):\n",
        "    if not orphaned:\n",
        (f"{TEST_PINS}::test_a_replaced_file_list_stays_while_there_is_a_pin",),
    ),
    Mutation(
        "end_a_pin_that_was_renewed",
        "A pin that its reader renewed while the leader ended it protects its files.",
        "operator/smq_operator/cleanup/reader_pins.py",
        "        else:\n            living.append(pin)\n",
        "",
        (f"{TEST_PINS}::test_a_pin_that_is_renewed_while_the_leader_ends_it_protects_its_files",),
    ),
    Mutation(
        "trust_the_leaders_clock_alone",
        "The age of a segment is the smaller one of what the leader's and the filer's clock say.",
        "operator/smq_operator/cleanup/filer_clock.py",
        "return age if modified_at is None else min(age, self.filer - modified_at)",
        "return age",
        (
            f"{TEST_SKEW}::test_retention_removes_nothing_if_only_the_leader_s_clock_says_that_it_is_old",
            f"{TEST_SKEW}::test_a_group_is_abandoned_only_if_both_clocks_say_so",
        ),
    ),
    # ---- termination proofs
    Mutation(
        "believe_a_deleted_pod_whose_broker_reported_just_now",
        "What a person did is no proof before the incarnation has been silent for the grace.",
        PROOFS,
        "removed = self._is_removed(pod.node, max(pod.at, last_reporting))",
        "removed = self._is_removed(pod.node, pod.at)",
        (f"{TEST_PROOFS}::test_a_termination_claimed_manually_is_not_believed_while_the_broker_reports",),
    ),
    Mutation(
        "count_the_grace_of_a_node_from_its_removal_only",
        "A report during the grace of a removed Node begins it anew.",
        PROOFS,
        "        return self._is_confirmed(max(missing_since, since))\n",
        "        return self._is_confirmed(missing_since)\n",
        (f"{TEST_PROOFS}::test_a_report_during_the_grace_of_a_removed_node_begins_it_anew",),
    ),
    Mutation(
        "believe_a_cache_that_was_not_updated",
        "Only a list of Nodes that was requested after the grace confirms a removal.",
        PROOFS,
        "        if self._cache.listed_at.get(NODES, 0) >= due:\n",
        "        if self._cache.listed_at.get(NODES, 0) >= 0:\n",
        (f"{TEST_PROOFS}::test_a_cache_that_was_not_updated_since_the_grace_proves_nothing",),
    ),
    Mutation(
        "take_a_missing_pod_for_deleted_at_once",
        "A Pod that is not in the cache is missing only if a later list does not have it either.",
        PROOFS,
        "        if listed is None or listed <= since:\n            return None\n",
        "",
        (f"{TEST_PROOFS}::test_an_unknown_pod_is_looked_up_and_only_then_missing",),
    ),
    Mutation(
        "take_the_journal_of_a_container_for_gone",
        "The journal of a container that ended is in its Pod.",
        PROOFS,
        "journal_gone=not _has_journal(pod)",
        "journal_gone=True",
        (f"{TEST_PROOFS}::test_the_journal_of_a_container_that_ended_is_in_its_pod_until_the_pod_is_gone",),
    ),
    # ---- the status on Kubernetes
    Mutation(
        "write_a_status_before_it_is_known",
        "A new leader writes no status before it knows it.",
        STATUS,
        "        if not (is_new or self._health.warmed_up):\n            return False\n",
        "        if not is_new:\n            return True\n",
        (f"{TEST_STATUS}::test_a_new_leader_writes_no_status_before_it_knows_it",),
    ),
    Mutation(
        "give_up_a_status_that_could_not_be_written",
        "A status that could not be written is written later.",
        STATUS,
        "        state.not_before = asyncio.get_running_loop().time() + backoff\n        self._queue[name] = None\n",
        "        state.not_before = asyncio.get_running_loop().time() + backoff\n",
        (f"{TEST_STATUS}::test_what_could_not_be_written_is_written_later",),
    ),
    Mutation(
        "write_an_ignored_status_again_and_again",
        "A status that the API server accepts without effect is not written again.",
        WRITER,
        "            self._ignored_writes[kind, namespace, name] = (resource_version_of(before), write)\n",
        "",
        (f"{TEST_STATUS}::test_an_older_definition_that_drops_a_field_is_not_written_again_and_again",),
    ),
    Mutation(
        "show_the_state_of_a_former_topic",
        "A new Topic never shows the state of a former one of its name.",
        STATUS,
        "        if managed.topic is not None and managed.topic.uid != uid:\n            return",
        "        if managed.topic is not None and not uid:\n            return",
        (f"{TEST_STATUS}::test_a_new_topic_never_shows_the_state_of_a_former_one_of_its_name",),
    ),
    Mutation(
        "keep_a_segment_resource_of_a_former_topic",
        "A Segment resource that belongs to an earlier Topic of the name is replaced.",
        "operator/smq_operator/kube/status/diff.py",
        "        elif _belongs_to_another(snapshot, resource):\n",
        "        elif not snapshot.uid:\n",
        (
            "tests/unit/operator/kube/test_desired_resources.py"
            "::test_a_segment_resource_of_an_earlier_topic_is_replaced",
        ),
    ),
    # ---- the leader's tasks
    Mutation(
        "let_a_background_task_die_in_silence",
        "A background task of the leader that fails is run again.",
        TASKS,
        "            await asyncio.sleep(backoff)\n            backoff = min",
        "            return\n            backoff = min",
        (TEST_TASKS,),
    ),
    Mutation(
        "hide_that_a_background_task_failed",
        "A failed background task is a problem that the leader reports.",
        TASKS,
        "            self.problems.report(\n                where,",
        "            str.join(\n                where,",
        (TEST_TASKS,),
    ),
    # ---- judgements of silence
    Mutation(
        "take_groups_for_abandoned_at_once",
        "A new leader takes no group for abandoned before its members could call.",
        "operator/smq_operator/groups/group_coordinator.py",
        "if self._members_unknown_for(REJOIN_TIME) > 0:",
        "if False:",
        (f"{TEST_DOCUMENTS}::test_a_new_leader_takes_no_group_for_abandoned_before_its_members_could_call",),
    ),
    Mutation(
        "end_pins_that_nobody_could_renew",
        "A pin's lifetime begins when the filer answers at the earliest.",
        "core/smq_core/reading/pins.py",
        "max(self.renewed_at, renewable_since)",
        "self.renewed_at",
        ("tests/unit/operator/cleanup/test_reader_pins.py::test_a_pin_that_nobody_could_renew_lives_on",),
    ),
    Mutation(
        "delete_topics_before_the_desired_ones_are_known",
        "A topic counts as deleted only if the desired topics are known.",
        "operator/smq_operator/cleanup/deleted_topics_collector.py",
        "self._topics.synced and not self._platform.problems()",
        "not self._platform.problems()",
        (f"{TEST_DOCUMENTS}::test_no_topic_is_deleted_before_the_desired_topics_are_known",),
    ),
    Mutation(
        "let_a_sidecar_prove_the_end_of_its_broker",
        "Only the broker's own container proves that an incarnation has ended.",
        "operator/smq_operator/kube/termination.py",
        ' if it.get("name") == BROKER_CONTAINER]',
        "]",
        (f"{TEST_TERMINATION}::test_a_restarted_sidecar_says_nothing_of_the_broker",),
    ),
    Mutation(
        "prove_the_end_of_a_reporting_incarnation",
        "Nothing proves that an incarnation has ended while it reports.",
        "operator/smq_operator/kube/termination.py",
        "                self._last_reporting.popitem(last=False)\n            return None\n",
        "                self._last_reporting.popitem(last=False)\n",
        (f"{TEST_TERMINATION}::test_nothing_proves_the_end_of_an_incarnation_that_reports",),
    ),
    Mutation(
        "go_on_after_being_declared_gone",
        "A broker that is declared gone ends.",
        "broker/smq_broker/leader_client/leader_session.py",
        '            self._threads.end_process(f"the leader has declared',
        '            str(f"the leader has declared',
        ("tests/unit/broker/streams/test_session_faults.py::test_a_process_that_is_declared_gone_ends",),
    ),
    # ---- lost documents
    Mutation(
        "begin_anew_after_a_lost_layout",
        "A topic that has an index or segments is not new.",
        "storage/smq_storage/catalog/topic_traces.py",
        "    if folders or sealed_index.load(store, topic, uid).exists:\n",
        "    if False:\n",
        (f"{TEST_LOST}::test_a_topic_that_has_lost_a_document_is_not_new[layout]",),
    ),
    Mutation(
        "give_a_name_with_data_another_uid",
        "A name under which a topic has data is not free.",
        "storage/smq_storage/catalog/topic_traces.py",
        "        if wanted is None and store.folders(folder)",
        "        if False and store.folders(folder)",
        (f"{TEST_LOST}::test_a_topic_that_has_lost_a_document_is_not_new[current]",),
    ),
    Mutation(
        "begin_anew_while_brokers_host_segments",
        "A topic of which a broker hosts segments is not new.",
        "operator/smq_operator/reconcile/effects.py",
        "        hosted = self._host_of(reconciler.topic.uid)\n",
        '        hosted = ""\n',
        (f"{TEST_LOST}::test_a_topic_whose_folder_was_deleted_is_not_new_while_brokers_host_it",),
    ),
    Mutation(
        "leave_no_trace_of_a_first_layout",
        "The index exists as soon as there is a layout.",
        "operator/smq_operator/reconcile/effects.py",
        "        sealed_index.create_first_page(store, layout.topic, layout.uid, retry_policy)\n",
        "        pass\n",
        (f"{TEST_LOST}::test_the_first_page_of_the_index_is_created_with_the_layout",),
    ),
    Mutation(
        "lead_on_without_the_layout_in_the_filer",
        "A layout that vanishes under a leader is named.",
        "operator/smq_operator/reconcile/effects.py",
        "        if was_known:\n",
        "        if False:\n",
        (f"{TEST_LOST}::test_a_layout_that_vanishes_under_a_leader_is_named_and_comes_back_from_its_memory",),
    ),
    Mutation(
        "be_ready_without_the_layout_in_the_filer",
        "Ready says which document is missing, also while the leader has the layout in memory.",
        "operator/smq_operator/status/topic_conditions.py",
        "    if snapshot.unreadable is not None:\n",
        "    if snapshot.unreadable is not None and snapshot.layout is None:\n",
        (f"{TEST_LOST}::test_a_layout_that_vanishes_under_a_leader_is_named_and_comes_back_from_its_memory",),
    ),
    Mutation(
        "recover_without_consent",
        "A recovery that may lose messages needs consent.",
        "operator/smq_operator/reconcile/topic_recovery.py",
        "        if report.unknown and not accept_loss:\n",
        "        if False:\n",
        (f"{TEST_LOST}::test_a_recover_that_may_lose_messages_needs_consent",),
    ),
    Mutation(
        "take_later_columns_for_the_first",
        "A lost spec is rebuilt with the topic's first columns alone, because the oldest segments have them.",
        "operator/smq_operator/reconcile/topic_recovery.py",
        "            if not opened.topic.schema or opened.segment.schema_version == 0:\n",
        "            if True:\n",
        (f"{TEST_LOST}::test_later_columns_are_not_taken_for_the_first_ones",),
    ),
    Mutation(
        "recover_segments_that_no_broker_has_as_whole",
        "A segment that no broker has may have lost messages.",
        "core/smq_core/reconcile/layout_recovery.py",
        '            self._unknown.append(f"{name}: acked',
        '            self._found.append(f"{name}: acked',
        (
            f"{TEST_REBUILT}::test_a_segment_that_no_broker_has_may_have_lost_messages[unsealed chain]",
            f"{TEST_LOST}::test_a_recover_that_may_lose_messages_needs_consent",
        ),
    ),
    Mutation(
        "take_a_sealed_segment_for_one_that_accepts_messages",
        "A segment without a known successor that is sealed leaves a gap.",
        "core/smq_core/reconcile/layout_recovery.py",
        "            if name not in followed and not is_sealed:\n",
        "            if name not in followed:\n",
        (f"{TEST_REBUILT}::test_partitions_without_any_segment_get_a_new_one_under_a_new_name",),
    ),
    Mutation(
        "forget_the_sealed_sibling_of_a_merge",
        "Segments that are merged leave the layout together.",
        "core/smq_core/reconcile/layout_recovery.py",
        "        self._add_sealed_siblings()\n",
        "",
        (f"{TEST_REBUILT}::test_a_sealed_segment_that_waits_for_the_other_one_of_its_merge_is_in_the_layout",),
    ),
    Mutation(
        "use_the_next_number_after_a_recovery",
        "A segment that nobody knows any more keeps its name.",
        "core/smq_core/reconcile/layout_recovery.py",
        "SKIPPED_NUMBERS = 1000\n",
        "SKIPPED_NUMBERS = 0\n",
        (f"{TEST_REBUILT}::test_numbers_of_segments_that_nobody_knows_are_skipped",),
    ),
    # ---- the filer
    Mutation(
        "wait_for_the_timeout_of_a_filer_that_hangs",
        "A write without an answer counts as an outage before its timeout.",
        "broker/smq_broker/segments/filer_failure.py",
        "        if began is None or now - began < UNANSWERED_SECONDS:\n",
        "        if True:\n",
        ("tests/unit/broker/segments/test_flusher.py::test_a_write_without_an_answer_counts_before_its_timeout",),
    ),
    Mutation(
        "be_ready_while_producers_wait",
        "Ready follows what producers meet.",
        "operator/smq_operator/status/topic_conditions.py",
        "    if issues.stalled:\n",
        "    if False:\n",
        ("tests/unit/operator/status/test_filer_outage.py::test_what_brokers_and_their_producers_meet_counts",),
    ),
    Mutation(
        "hide_what_the_leader_meets_at_the_filer",
        "FilerAvailable says what the leader meets, not brokers alone.",
        "operator/smq_operator/cleanup/filer_clock.py",
        "                self.problem = error.message\n",
        "                pass\n",
        ("tests/unit/operator/status/test_filer_outage.py::test_a_leader_that_cannot_write_says_so_until_it_can",),
    ),
    Mutation(
        "forget_that_a_chunk_was_not_written",
        "A primary reports since when the filer takes no chunks.",
        "broker/smq_broker/segments/flusher.py",
        "            hosted.filer_failure.failed(error.message)\n",
        "",
        ("tests/unit/broker/segments/test_flusher.py::test_a_primary_reports_since_when_the_filer_takes_no_chunks",),
    ),
    Mutation(
        "count_the_messages_of_a_former_topic",
        "What was counted of a topic is not shown of another one with its name.",
        "operator/smq_operator/reconcile/topics/index_copy.py",
        "        self.changes += 1  # what was counted is of the former topic of that name\n",
        "",
        (f"{TEST_COUNTS}::test_a_topic_that_takes_the_place_of_another_one_has_none_of_its_messages",),
    ),
    Mutation(
        "end_a_trim_with_its_client",
        "What a trim removed from the index is removed from the leader's copy, though the client stopped waiting.",
        "operator/smq_operator/cleanup/garbage_collection.py",
        "        return await asyncio.shield(trimming)\n",
        "        return await trimming\n",
        (f"{TEST_TRIM}::test_the_leader_plans_a_trim_and_refuses_the_future",),
    ),
    Mutation(
        "count_a_segment_twice_when_it_is_sealed",
        "A sealed segment that is still in the layout is counted once.",
        MANAGED_TOPIC,
        "[it.name for it in self.layout.segments if it.name not in self.index.sealed]",
        "[it.name for it in self.layout.segments]",
        (f"{TEST_COUNTS}::test_sealed_and_living_segments_are_counted_and_unknown_is_not_zero",),
    ),
    Mutation(
        "count_what_was_acked_beyond_the_end",
        "A segment's seal chunk says its end, and a report does not.",
        MANAGED_TOPIC,
        "                ends[segment.name] = outcome.end\n",
        "                ends.setdefault(segment.name, outcome.end)\n",
        (f"{TEST_COUNTS}::test_sealed_and_living_segments_are_counted_and_unknown_is_not_zero",),
    ),
    # ---- brokers as child processes
    Mutation(
        "request_the_end_of_a_local_broker_twice",
        "A second SIGTERM ends a broker at once, with tails that are not written.",
        "operator/smq_operator/local/broker_processes.py",
        "        if not child.terminating:\n",
        "        if True:\n",
        ("tests/unit/operator/local/test_processes.py::test_a_broker_gets_only_one_request_to_end",),
    ),
)
