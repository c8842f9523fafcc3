"""Broken rules of the client library: producing, consuming, groups and the view of a topic."""

from __future__ import annotations

from ..mutation import Mutation

ENGINE = "client/smq/producing/engine.py"
OUTCOMES = "client/smq/producing/batch_outcomes.py"
MACHINE = "core/smq_core/producing/producer_machine.py"
BUDGET = "client/smq/producing/in_flight_budget.py"
BATCHER = "client/smq/producing/message_batcher.py"
GROUP = "client/smq/producing/batching/message_group.py"
TEST_SEND_MANY = "tests/unit/client/producing/test_send_many.py"
TEST_ENGINE = "tests/unit/client/producing/test_producer_engine.py"
TIMERS = "client/smq/producing/runtime/timers.py"
TEST_TIMERS = "tests/unit/client/producing/test_timers.py"
TEST_BUDGET = "tests/unit/client/producing/test_producer_budget.py"
STATE = "client/smq/producing/delivery_state.py"
TEST_MACHINE = "tests/unit/core/producing/test_producer_machine.py"
VIEW = "client/smq/transport/topic_view.py"
TEST_VIEW = "tests/unit/client/transport/test_topic_view.py"
TEST_DELIVERY = "tests/unit/client/test_delivery.py"
FETCH_OUTPUT = "client/smq/consuming/fetching/fetch_output.py"
FETCH_PROGRESS = "client/smq/consuming/fetching/fetch_progress.py"
FILE_FETCHER = "client/smq/consuming/fetching/file_fetcher.py"
TAIL_FETCHER = "client/smq/consuming/fetching/tail_fetcher.py"
TEST_FETCHER = "tests/unit/client/consuming/test_fetcher.py"
PREFETCH = "client/smq/consuming/fetching/prefetch_buffer.py"
TEST_PREFETCH = "tests/unit/client/consuming/test_read_ahead.py"
MEMBERSHIP = "client/smq/consuming/groups/group_membership.py"
TEST_MEMBERSHIP = "tests/unit/client/consuming/test_group_membership.py"
CONSUMER = "client/smq/consumer.py"
MEMBER_POSITIONS = "client/smq/consuming/groups/member_positions.py"
TEST_CONSUMER = "tests/unit/client/consuming/test_consumer.py"
TEST_CONSUMER_GROUPS = "tests/unit/client/consuming/test_consumer_groups.py"
RANGE_READER = "client/smq/reading/range_reader.py"
TEST_RANGE_READER = "tests/unit/client/test_range_reader.py"
REPORTS = "client/smq/reading/broker_reports.py"
STARTS = "client/smq/consuming/start_positions.py"
TEST_STARTS = "tests/unit/client/consuming/test_start_positions.py"
FILER_HEALTH = "client/smq/transport/filer_health.py"
TEST_FILER_HEALTH = "tests/unit/client/transport/test_filer_health.py"

MUTATIONS = (
    # ---- a filer that is away
    Mutation(
        "keep_the_filer_s_error_to_oneself",
        "A reader that waits for the filer names it, in the log and as its error.",
        FETCH_PROGRESS,
        "            self._filer_health.failed(error, self._last_at)\n",
        "",
        (f"{TEST_FETCHER}::test_a_filer_that_is_away_is_named_until_it_is_back",),
    ),
    Mutation(
        "warn_of_the_filer_as_often_as_at_first",
        "Warnings of a filer that is away come less and less often.",
        FILER_HEALTH,
        "2 * self._interval",
        "self._interval",
        (f"{TEST_FILER_HEALTH}::test_warnings_come_less_and_less_often",),
    ),
    Mutation(
        "forget_the_history_s_error",
        "A consumer whose history waits for the filer has its error.",
        CONSUMER,
        "            self._refresh_failure = error\n",
        "            pass\n",
        (f"{TEST_CONSUMER}::test_a_consumer_has_the_error_of_a_filer_that_its_history_waits_for",),
    ),
    # ---- messages that are sent by one call
    Mutation(
        "count_the_rows_of_a_group_from_the_start_of_its_batch",
        "A receipt has the places of the call's own messages.",
        BATCHER,
        "MessageSpan(current.delivery_state, row, row + stop - start)",
        "MessageSpan(current.delivery_state, 0, stop - start)",
        (f"{TEST_SEND_MANY}::test_the_receipt_has_the_place_of_each_message",),
    ),
    Mutation(
        "raise_the_errors_of_other_calls",
        "A delivery has only the errors of its own messages.",
        GROUP,
        "span.state.first_error_between(span.start, span.stop)",
        "span.state.first_error()",
        (f"{TEST_SEND_MANY}::test_only_the_errors_of_its_own_messages_count",),
    ),
    Mutation(
        "add_a_message_to_a_full_batch",
        "Messages of one call fill batches as single ones do.",
        GROUP,
        "np.searchsorted(self.ends, before + capacity)) + 1",
        "np.searchsorted(self.ends, before + capacity)) + 2",
        (f"{TEST_SEND_MANY}::test_the_batches_are_those_of_single_messages",),
    ),
    # ---- the producer's engine
    Mutation(
        "keep_the_budget_of_an_expired_queue",
        "A batch that expires before it was sent gives its budget back.",
        OUTCOMES,
        "        else:\n            self._budget.release(sub_batch.cost)\n",
        "        else:\n            pass\n",
        (f"{TEST_BUDGET}::test_a_queue_that_expires_gives_its_budget_back",),
    ),
    Mutation(
        "let_writers_wait_after_a_queue_expired",
        "A writer that waits for budget goes on when a queue expires.",
        BUDGET,
        "            self.used -= nbytes\n            self._freed.notify_all()\n",
        "            self.used -= nbytes\n",
        (f"{TEST_BUDGET}::test_a_writer_that_waits_goes_on_when_a_queue_expires",),
    ),
    Mutation(
        "give_the_budget_of_a_sent_batch_back_when_it_expires",
        "A batch that was sent keeps its budget until its outcome is known.",
        OUTCOMES,
        "                if not is_sent:\n",
        "                if True:\n",
        (f"{TEST_BUDGET}::test_a_batch_that_was_sent_keeps_its_budget_until_its_outcome_is_known",),
    ),
    Mutation(
        "keep_the_budget_of_a_batch_that_was_not_submitted",
        "A batch that could not be submitted gives its budget back.",
        ENGINE,
        "            self._budget.release(cost)\n",
        "",
        (f"{TEST_BUDGET}::test_a_batch_that_could_not_be_submitted_gives_its_budget_back",),
    ),
    Mutation(
        "keep_the_budget_of_a_producer_that_ended",
        "A producer that ends holds no budget, and nobody waits for it.",
        BUDGET,
        "        self.used = 0\n        self._freed.notify_all()\n",
        "        self._freed.notify_all()\n",
        (f"{TEST_BUDGET}::test_a_producer_that_ends_holds_nothing_and_lets_nobody_wait",),
    ),
    Mutation(
        "report_a_forgotten_batch_as_expired_later",
        "A batch whose producer was forgotten fails at once and says that its outcome is not known.",
        MACHINE,
        "        self._instructions += map(ForgetSubBatch, unknown)\n",
        "",
        (f"{TEST_ENGINE}::test_a_batch_of_a_forgotten_producer_fails_once_and_the_next_one_is_sent",),
    ),
    Mutation(
        "drop_forgotten_batches_of_a_sealed_segment",
        "An outcome that does not name the producer fails its batches.",
        MACHINE,
        "            self._instructions += map(ForgetSubBatch, resolution.unknown)\n",
        "",
        (f"{TEST_ENGINE}::test_an_outcome_without_the_forgotten_producer_fails_its_batches",),
    ),
    Mutation(
        "reconnect_under_a_new_instance",
        "A session that is opened again has the same id, epoch and instance.",
        ENGINE,
        "hello=self._hello,",
        "hello=pb.ProducerHello(producer=self._hello.producer, epoch=self._hello.epoch, instance=str(number)),",
        (f"{TEST_ENGINE}::test_a_stream_that_is_opened_again_has_the_same_identity",),
    ),
    Mutation(
        "change_the_result_of_a_row_that_timed_out",
        "A row that was reported as timed out stays so, even if its ack comes later.",
        STATE,
        "waiting = self._offsets[rows] == _PENDING",
        "waiting = np.full(len(rows), True)",
        (f"{TEST_DELIVERY}::test_a_row_that_was_reported_as_timed_out_stays_so",),
    ),
    # ---- senders and the view of a topic
    Mutation(
        "try_again_what_is_refused_for_good",
        "A producer ends when its primary refuses it for good.",
        MACHINE,
        "isinstance(failure, (ProducerFenced, InvalidRequest))",
        "isinstance(failure, InvalidRequest)",
        (f"{TEST_MACHINE}::test_a_rejection_for_good_ends_the_producer",),
    ),
    Mutation(
        "report_a_broker_that_answers_as_unreachable",
        "A broker that has not opened the segment yet, or has it no more, is not reported as unreachable.",
        MACHINE,
        "isinstance(failure, (NotOpenYet, NotHosted, Overloaded, GrantMissing))",
        "isinstance(failure, (NotOpenYet, Overloaded, GrantMissing))",
        (f"{TEST_MACHINE}::test_a_broker_that_answers_is_not_reported_as_unreachable",),
    ),
    Mutation(
        "take_an_older_layout",
        "An older layout does not replace a newer one, from whichever source it comes.",
        VIEW,
        "new.layout.version > old.layout.version:",
        "new.layout.version != old.layout.version:",
        (f"{TEST_VIEW}::test_an_older_layout_does_not_replace_a_newer_one",),
    ),
    Mutation(
        "ignore_a_topic_that_was_created_again",
        "A topic that was created again replaces the former one, although its layouts count from the start.",
        VIEW,
        "old.topic.uid != new.topic.uid or ",
        "",
        (f"{TEST_VIEW}::test_a_topic_that_was_created_again_replaces_the_former_one",),
    ),
    Mutation(
        "believe_at_once_that_a_topic_was_deleted",
        "A topic counts as deleted only after leaders have not had it for a while.",
        VIEW,
        "isinstance(failure, UnknownTopic) and time.monotonic() - since >= DELETED_AFTER_SECONDS",
        "isinstance(failure, UnknownTopic) and since >= 0",
        (f"{TEST_VIEW}::test_a_topic_is_deleted_only_if_leaders_say_so_for_a_while",),
    ),
    Mutation(
        "read_a_part_of_a_history",
        "A reader knows the segments of all pages before it chooses where to begin.",
        VIEW,
        "pages = list(all_pages(self._leader.topics.History, request, timeout=2.0))",
        "pages = [self._leader.topics.History(request, timeout=2.0)]",
        (f"{TEST_VIEW}::test_a_history_has_all_pages_without_what_was_removed_meanwhile",),
    ),
    # ---- fetching
    Mutation(
        "keep_offsets_at_a_start_by_time",
        "Rows that a start by time leaves out count: the offset of the next row is beyond them.",
        FETCH_OUTPUT,
        "        self.position += early\n",
        "",
        (f"{TEST_FETCHER}::test_a_reader_that_resumes_after_a_start_by_time_repeats_and_misses_nothing",),
    ),
    Mutation(
        "repeat_rows_before_the_position",
        "Rows before the reader's position are withheld.",
        FETCH_OUTPUT,
        "        if skip > 0:\n",
        "        if skip > len(table):\n",
        (f"{TEST_FETCHER}::test_rows_before_the_position_are_withheld",),
    ),
    Mutation(
        "read_the_same_replica_again_after_it_broke",
        "A tail that breaks continues at another replica.",
        TAIL_FETCHER,
        "        self._ordinal += 1  # another replica next time\n",
        "",
        (f"{TEST_FETCHER}::test_a_tail_that_breaks_continues_at_another_replica_and_repeats_nothing",),
    ),
    Mutation(
        "pass_over_removed_chunks_in_silence",
        "Messages that retention removed before they were read are reported as lost.",
        FETCH_OUTPUT,
        "            self.put_item(FetchedLoss(Loss.from_offset(self.position, end)))\n",
        "            pass\n",
        (f"{TEST_FETCHER}::test_chunks_that_retention_removed_are_reported_as_lost",),
    ),
    Mutation(
        "take_the_position_for_the_watermark",
        "The watermark is known only when a replica or the chain has reported it.",
        FETCH_OUTPUT,
        "        self.watermark_known = False\n",
        "        self.watermark_known = True\n",
        (f"{TEST_FETCHER}::test_the_watermark_is_known_only_when_a_replica_has_reported_it",),
    ),
    Mutation(
        "end_a_tail_without_its_loss",
        "A loss at the end of the tail is reported before the segment's end.",
        TAIL_FETCHER,
        "loss_from_pb(frame.sealed.lost) if",
        "None if",
        (f"{TEST_FETCHER}::test_a_loss_at_the_end_of_the_tail_is_reported",),
    ),
    # ---- prefetching
    Mutation(
        "keep_the_budget_of_a_stopped_reader",
        "A reader that is stopped gives back the budget of what it had read ahead.",
        PREFETCH,
        "                self._bytes -= item.nbytes if isinstance(item, FetchedRows) else 0\n            self._ready",
        "                pass\n            self._ready",
        (f"{TEST_FETCHER}::test_a_reader_that_is_stopped_hands_out_nothing_more_and_gives_its_budget_back",),
    ),
    Mutation(
        "read_ahead_beyond_the_budget",
        "A reader waits while the budget is full.",
        PREFETCH,
        "(queue and self._bytes >= self._budget and isinstance(item, FetchedRows))",
        "False",
        (f"{TEST_PREFETCH}::test_a_full_budget_makes_a_reader_wait_but_never_one_with_nothing_in",),
    ),
    Mutation(
        "empty_one_reader_before_the_next",
        "Readers take turns.",
        PREFETCH,
        "            if queue:\n                self._ready.append(reader)",
        "            if queue:\n                self._ready.appendleft(reader)",
        (f"{TEST_PREFETCH}::test_readers_take_turns",),
    ),
    # ---- groups
    Mutation(
        "give_up_a_segment_whose_batch_is_worked_on",
        "A member acknowledges a revocation only after the program has finished its batch.",
        MEMBERSHIP,
        "        if generation_changed and not still_processing:\n",
        "        if generation_changed:\n",
        (f"{TEST_MEMBERSHIP}::test_a_segment_whose_batch_is_still_worked_on_is_not_given_up",),
    ),
    Mutation(
        "forget_which_segment_the_program_works_on",
        "The consumer reports that the program still works on a revoked segment.",
        MEMBER_POSITIONS,
        "return self._processing not in positions and self._processing in self._uncommitted",
        "return False",
        (f"{TEST_CONSUMER_GROUPS}::test_a_segment_whose_batch_is_still_worked_on_is_not_given_up",),
    ),
    Mutation(
        "acknowledge_the_newest_generation_in_a_heartbeat",
        "A heartbeat carries the generation that was acknowledged, not the newest one.",
        MEMBERSHIP,
        "                acknowledged_generation = self._acknowledged_generation\n            request",
        "                acknowledged_generation = self._generation\n            request",
        (f"{TEST_MEMBERSHIP}::test_a_segment_whose_batch_is_still_worked_on_is_not_given_up",),
    ),
    Mutation(
        "give_up_a_whole_commit_for_one_moved_segment",
        "A commit leaves out segments that belong to others and tries the rest again.",
        MEMBERSHIP,
        "if s not in refused or s in assigned}",
        "if not refused}",
        (f"{TEST_MEMBERSHIP}::test_a_commit_leaves_out_what_belongs_to_others_and_tries_the_rest_again",),
    ),
    Mutation(
        "hand_out_rows_of_a_revoked_segment",
        "Rows of a segment that was revoked while they were taken are withheld.",
        CONSUMER,
        "                return None  # the segment was revoked meanwhile\n",
        "                pass\n",
        (f"{TEST_CONSUMER_GROUPS}::test_rows_that_were_taken_while_their_segment_was_revoked_are_withheld",),
    ),
    Mutation(
        "read_on_behind_another_member",
        "A segment that another member has read further continues there.",
        MEMBER_POSITIONS,
        "return position > max(own, known)",
        "return False",
        (f"{TEST_CONSUMER_GROUPS}::test_a_segment_that_another_member_read_further_continues_there",),
    ),
    Mutation(
        "commit_the_batch_that_the_program_is_at",
        "auto_commit commits a batch when the program has polled again.",
        CONSUMER,
        "            self._try_commit(self._member.finished)\n        finally",
        "            self._try_commit(self._member.uncommitted)\n        finally",
        (f"{TEST_CONSUMER_GROUPS}::test_auto_commit_leaves_out_the_batch_that_the_program_was_at",),
    ),
    Mutation(
        "forget_positions_that_could_not_be_committed",
        "A commit that fails is made by the next one.",
        CONSUMER,
        "        done = self._membership.commit(wanted, reported, epoch)\n",
        "        self._member.commit(wanted, {})\n        done = self._membership.commit(wanted, reported, epoch)\n",
        (f"{TEST_CONSUMER_GROUPS}::test_a_commit_that_fails_is_made_by_the_next_one",),
    ),
    Mutation(
        "be_at_the_end_before_anyone_said_where_it_is",
        "A consumer is at the end only when a replica has said where that is.",
        CONSUMER,
        "f.watermark_known\n                and not f.may_end()",
        "not f.may_end()",
        (f"{TEST_CONSUMER}::test_it_is_at_the_end_only_when_a_replica_said_where_that_is",),
    ),
    # ---- start positions
    Mutation(
        "report_a_mistake_as_a_loss",
        "A start where no reader can have been is refused.",
        CONSUMER,
        "                search.check_saved(start)\n",
        "                pass\n",
        (f"{TEST_CONSUMER}::test_a_start_where_no_reader_can_have_been_is_refused",),
    ),
    Mutation(
        "refuse_what_was_read_of_a_segment_that_lost_messages",
        "A reader may have been behind the end of a segment that lost messages.",
        "client/smq/consuming/saved_positions.py",
        "if it.lost is not None}",
        "if it.lost is None}",
        (
            "tests/unit/client/consuming/test_saved_positions.py::test_what_was_read_of_a_segment_that_lost_messages_is_not_doubtful",
        ),
    ),
    Mutation(
        "trust_the_dates_of_chunks_to_the_second",
        "A chunk that a wrong clock may have dated is not skipped.",
        STARTS,
        "listed.modified + MAX_CLOCK_SKEW < start_time",
        "listed.modified < start_time",
        (f"{TEST_STARTS}::test_a_chunk_that_a_wrong_clock_may_have_dated_is_not_skipped",),
    ),
    Mutation(
        "skip_a_segment_that_was_sealed_after_the_start",
        "Only segments that were sealed before the time are skipped.",
        STARTS,
        "        if found.sealed_at < since:\n            reader",
        "        if found.sealed_at:\n            reader",
        (f"{TEST_STARTS}::test_only_segments_that_were_sealed_before_the_time_are_skipped",),
    ),
    Mutation(
        "take_the_watermark_of_another_incarnation",
        "The watermark of another incarnation or segment does not count.",
        REPORTS,
        "if status is None or status.incarnation != replica.incarnation:",
        "if status is None:",
        (f"{TEST_STARTS}::test_the_watermark_of_another_start_or_segment_does_not_count",),
    ),
    Mutation(
        "walk_the_chain_of_a_segment_with_a_file_list",
        "A sealed segment with a file list is read without listing or walking.",
        FILE_FETCHER,
        "return self._read_chunks() if file_list is None else self._read_files(file_list)",
        "return self._read_chunks()",
        (f"{TEST_FETCHER}::test_a_position_finds_its_file_by_the_file_list_without_listing_or_walking",),
    ),
    Mutation(
        "end_before_a_file_that_is_gone_without_a_report",
        "A file in a file list that is gone is reported as lost.",
        FILE_FETCHER,
        "                    return not self._is_replaced() and self._report_removed(self.sealed.end, error)\n",
        "                    break\n",
        (f"{TEST_FETCHER}::test_a_file_of_the_file_list_that_is_gone_is_reported_as_lost",),
    ),
    Mutation(
        "read_all_files_of_a_file_list_for_a_start_by_time",
        "A start by time skips the files in the file list that are older.",
        FILE_FETCHER,
        "if self._output.since:",
        "if self._output.since < 0:",
        (f"{TEST_FETCHER}::test_a_start_by_time_skips_the_files_that_are_older",),
    ),
    # ---- reads of planned ranges
    Mutation(
        "give_up_files_that_another_file_list_replaced",
        "Files that are gone are looked for where the index says now.",
        RANGE_READER,
        "        if at.position >= at.stop or at.segment != segment:\n",
        "        if at.position >= at.stop:\n",
        (f"{TEST_RANGE_READER}::test_files_that_were_replaced_since_the_plan",),
    ),
    Mutation(
        "end_a_range_silently_at_the_end_of_the_segment",
        "Messages that were planned and are not in the sealed segment are lost.",
        RANGE_READER,
        "                self._fail_or_skip(at, raised)\n        elif name in files.layout:\n",
        "                at.position = at.stop\n        elif name in files.layout:\n",
        (f"{TEST_RANGE_READER}::test_messages_after_the_end_are_lost",),
    ),
    # ---- what waits, and who waits for it
    Mutation(
        "leave_what_waits_after_an_ack",
        "An ack makes room for the next batch in flight.",
        MACHINE,
        "        if sender.send_queue.has_waiting:\n            self._notify(sender, now)\n",
        "",
        (f"{TEST_ENGINE}::test_what_waits_because_so_much_is_in_flight_is_sent_after_an_ack",),
    ),
    Mutation(
        "let_the_first_batch_after_a_pause_linger",
        "After a pause of all producers of a client, a batch goes out at once.",
        TIMERS,
        "return now if was_quiet else self.next_tick(now, linger)",
        "return self.next_tick(now, linger)",
        (f"{TEST_TIMERS}::test_a_batch_waits_for_the_next_tick_unless_the_client_was_quiet_for_so_long",),
    ),
    Mutation(
        "sleep_on_when_an_earlier_call_comes",
        "A call that is due earlier than all others ends the wait for them.",
        TIMERS,
        "                self._wakes_at = at\n                self._wake_thread()",
        "                self._wakes_at = at",
        (f"{TEST_TIMERS}::test_an_earlier_call_ends_the_wait_for_a_later_one",),
    ),
    Mutation(
        "wake_nobody_for_the_first_messages",
        "Messages wake the program that waits for them.",
        PREFETCH,
        "                if not self._ready:\n                    self.changed.notify_all()\n",
        "",
        (f"{TEST_PREFETCH}::test_who_waits_for_messages_is_woken_by_the_first_ones_and_by_those_of_a_resumed_reader",),
    ),
    Mutation(
        "free_the_budget_and_wake_no_reader",
        "A reader that waits for capacity goes on when messages are taken.",
        PREFETCH,
        "            if self._bytes >= self._budget:\n                self.changed.notify_all()\n",
        "",
        (f"{TEST_PREFETCH}::test_a_full_budget_makes_a_reader_wait_but_never_one_with_nothing_in",),
    ),
)
