"""Broken rules of the broker: streams, the flusher, hosted segments, opening, sealing, memory and leaving."""

from __future__ import annotations

from ..mutation import Mutation

TAIL = "broker/smq_broker/streams/tail.py"
TEST_TAIL = "tests/unit/broker/streams/test_tail.py"
TEST_PRODUCER = "tests/unit/broker/producers/test_session.py"
TEST_JOURNAL = "tests/unit/broker/journal/test_journal.py"
TEST_MAPPED_ROWS = "tests/unit/broker/journal/test_mapped_rows.py"
TEST_JOURNAL_ON_DISK = "tests/unit/broker/journal/test_journal_files_on_disk.py"
TEST_JOURNAL_FILES = "tests/property/test_journal_files.py"
FILE_WRITER = "broker/smq_broker/journal/file_writer.py"
TEST_FILE_WRITER = "tests/unit/broker/journal/test_file_writer.py"
RECORD_FORMAT = "broker/smq_broker/journal/record_format.py"
PAYLOADS = "broker/smq_broker/rows/payloads.py"
TEST_PAYLOADS = "tests/unit/broker/rows/test_payloads.py"
FLUSHER = "broker/smq_broker/segments/flusher.py"
TEST_FLUSHER = "tests/unit/broker/segments/test_flusher.py"
HOSTED = "broker/smq_broker/segments/hosted_segment.py"
OPENING = "broker/smq_broker/segments/opening.py"
TEST_OPENING = "tests/unit/broker/segments/test_opening.py"
REGISTRY = "broker/smq_broker/segments/registry.py"
TEST_REGISTRY = "tests/unit/broker/segments/test_registry.py"
WATCHER = "broker/smq_broker/segments/seal_watcher.py"
TEST_WATCHER = "tests/unit/broker/segments/test_seal_watcher.py"
BUDGETS = "broker/smq_broker/memory/budgets.py"
TEST_BUDGETS = "tests/unit/broker/memory/test_memory_budget.py"
SHUTDOWN = "broker/smq_broker/shutdown.py"
TEST_SHUTDOWN = "tests/unit/broker/segments/test_leaving.py"

MUTATIONS = (
    Mutation(
        "take_a_journal_inside_its_segment",
        "The journal's lock is taken around the segment's.",
        "broker/smq_broker/segments/journaling.py",
        "    with journal.lock:\n        while not journal.ended:\n            with hosted.lock:",
        "    with hosted.lock:\n        while not journal.ended:\n            with journal.lock:",
        (f"{TEST_JOURNAL}::test_a_stream_that_breaks_before_the_journal_is_written_leaves_no_gap",),
    ),
    Mutation(
        "open_a_segment_again_with_another_key",
        "A request that contradicts the open segment is refused.",
        OPENING,
        "elif hosted.topic.spec.key != topic.spec.key:",
        "elif False:",
        (f"{TEST_OPENING}::test_an_open_segment_is_not_opened_with_another_key",),
    ),
    # ---- streams
    Mutation(
        "send_readers_rows_above_the_watermark",
        "A reader gets nothing above the watermark.",
        TAIL,
        "hosted.machine.readable(position, MAX_MESSAGE_BYTES)",
        "[entry for entry in hosted.machine.tail if entry.end > position]",
        (
            f"{TEST_TAIL}::test_rows_above_the_watermark_are_withheld",
            f"{TEST_TAIL}::test_a_reader_that_joins_gets_nothing_above_the_watermark",
        ),
    ),
    Mutation(
        "go_on_after_acks_were_lost",
        "A session whose acks cannot be delivered ends, so that the producer opens another one.",
        HOSTED,
        "        if not self._call(stream.acked, acks):\n",
        "        if self._call(stream.acked, acks) is None:\n",
        (f"{TEST_PRODUCER}::test_a_segment_that_cannot_deliver_acks_ends_the_session",),
    ),
    # ---- the flusher
    Mutation(
        "encode_every_small_block_for_itself",
        "The small blocks of a chunk are encoded as one.",
        PAYLOADS,
        "        if groups and size <= JOIN_BYTES:\n",
        "        if False:\n",
        (f"{TEST_PAYLOADS}::test_small_blocks_become_one_batch_of_a_chunk",),
    ),
    Mutation(
        "copy_large_blocks_for_a_chunk",
        "The large blocks of a chunk are not copied.",
        PAYLOADS,
        "        if groups and size <= JOIN_BYTES:\n",
        "        if groups:\n",
        (f"{TEST_PAYLOADS}::test_large_blocks_are_not_copied_for_a_chunk",),
    ),
    Mutation(
        "keep_the_producers_of_the_chunk_before",
        "After a chunk the chain has the producers' state that is in it.",
        "core/smq_core/replica/log_state.py",
        "ProducerMap.of_snapshot(chunk.producers, chunk.forgotten_upto),\n",
        "self._at_chain_end.producers,\n",
        ("tests/property/test_producers_in_chunks.py",),
    ),
    Mutation(
        "forget_producers_before_their_last_batches",
        "What a log entry forgets is forgotten after the batches before it.",
        "core/smq_core/replica/producer_map.py",
        "                self._fold_each(pending)\n                pending.clear()\n",
        "",
        ("tests/unit/core/replica/test_producer_map.py::test_apply_all_is_apply_in_turn",),
    ),
    Mutation(
        "retry_an_unclear_put_under_a_new_nonce",
        "A chunk whose PUT was unclear keeps its nonce, so that an earlier attempt is recognised.",
        FLUSHER,
        "        chunk, info = pending\n",
        "        chunk, info = pending[0], chunk_info(hosted, pending[0])\n",
        (f"{TEST_FLUSHER}::test_an_unclear_put_that_was_applied_is_recognised_at_the_second_attempt",),
    ),
    Mutation(
        "forget_a_chunk_whose_put_was_unclear",
        "A chunk whose PUT was unclear is tried again as it is.",
        FLUSHER,
        "                    schedule.unconfirmed_chunk = pending\n",
        "                    machine.chunk_failed()\n",
        (f"{TEST_FLUSHER}::test_an_unclear_put_that_was_not_applied_is_written_by_the_second_attempt",),
    ),
    Mutation(
        "hammer_a_filer_that_does_not_answer",
        "An unclear PUT is tried again after a pause.",
        FLUSHER,
        "                    schedule.not_before_us = hosted.clock.now() + RETRY_AFTER_US\n",
        "",
        (f"{TEST_FLUSHER}::test_an_unclear_put_that_was_applied_is_recognised_at_the_second_attempt",),
    ),
    Mutation(
        "ack_a_chunk_whose_offset_is_taken",
        "A segment acks nothing of a chunk whose offset another writer has taken.",
        FLUSHER,
        "            self._offset_taken(hosted, result.info)\n",
        "            with hosted as machine:\n                machine.chunk_written(chunk)\n"
        "            self._on_chunk_taken(hosted)\n",
        (f"{TEST_FLUSHER}::test_a_taken_offset_fences_the_segment_and_acks_nothing",),
    ),
    Mutation(
        "count_no_chunks",
        "Written chunks are counted.",
        FLUSHER,
        "        self._metrics.chunks.inc()\n",
        "",
        (f"{TEST_FLUSHER}::test_nothing_is_acked_before_its_chunk_is_in_the_filer",),
    ),
    Mutation(
        "count_no_seals",
        "Sealed segments are counted.",
        "broker/smq_broker/segments/sealing.py",
        "                self._metrics.seals.inc()\n",
        "",
        (f"{TEST_FLUSHER}::test_a_seal_is_counted",),
    ),
    Mutation(
        "defer_a_requested_flush_in_a_burst",
        "A requested chunk does not wait for the end of a burst.",
        "broker/smq_broker/segments/flush_scheduling.py",
        "(self.requested or machine.has_reference_to_write or (full and not deferred))",
        "(machine.has_reference_to_write or (full and not deferred))",
        ("tests/unit/broker/segments/test_flush_scheduler.py::test_a_requested_flush_does_not_wait",),
    ),
    # ---- hosted segments and memory
    Mutation(
        "keep_the_credit_of_a_sealed_segment",
        "A follower gives the credit of a sealed segment back.",
        HOSTED,
        "            self.memory.release()\n",
        "",
        (f"{TEST_OPENING}::test_a_follower_gives_back_the_credit_of_a_sealed_segment",),
    ),
    Mutation(
        "keep_the_memory_of_a_written_tail",
        "The memory of a tail is given back when its chunk is written.",
        "broker/smq_broker/segments/segment_memory.py",
        "            self._process.change(used - self._reserved, in_memory - self._reserved_in_memory)\n",
        "            self._process.change(max(0, used - self._reserved), in_memory - self._reserved_in_memory)\n",
        (f"{TEST_FLUSHER}::test_nothing_is_acked_before_its_chunk_is_in_the_filer",),
    ),
    Mutation(
        "refuse_a_batch_that_is_larger_than_the_budget",
        "A batch that is larger than the budget is admitted alone.",
        BUDGETS,
        "if self.used and (self.in_memory + nbytes > self.limit",
        "if (self.in_memory + nbytes > self.limit",
        (f"{TEST_BUDGETS}::test_one_batch_larger_than_the_budget_is_admitted_alone",),
    ),
    Mutation(
        "change_a_credit_that_is_not_acknowledged",
        "A credit does not change again before its primary keeps within it.",
        BUDGETS,
        "        if acknowledged != credit.announced:\n            return credit.announced\n",
        "",
        (f"{TEST_BUDGETS}::test_a_credit_is_not_changed_again_before_its_primary_keeps_within_it",),
    ),
    Mutation(
        "keep_the_credit_of_a_segment_that_failed_to_open",
        "A segment that could not be opened gives back what it took.",
        HOSTED,
        '        """Gives back what the constructor took, because the segment could not be opened."""\n'
        "        self.memory.release()\n",
        '        """Gives back what the constructor took, because the segment could not be opened."""\n',
        (f"{TEST_OPENING}::test_the_credit_of_a_follower_that_failed_to_open_is_given_back",),
    ),
    # ---- opening
    Mutation(
        "report_followers_of_ended_segments",
        "The links of a segment that was fenced do not say that a follower is unresponsive.",
        REGISTRY,
        "if hosted.machine.state not in ended)",
        ")",
        (f"{TEST_REGISTRY}::test_links_of_ended_segments_do_not_say_that_a_follower_is_unresponsive",),
    ),
    Mutation(
        "register_a_segment_whose_threads_do_not_run",
        "A segment whose threads cannot start leaves no trace, so that it can be opened later.",
        REGISTRY,
        "            hosted = create()\n            self._hosted[key] = hosted\n            self.version += 1\n",
        "            self._used_keys.add(key)\n            hosted = create()\n            self._hosted[key] = hosted\n"
        "            self.version += 1\n",
        (f"{TEST_OPENING}::test_a_segment_whose_threads_cannot_start_is_not_open",),
    ),
    Mutation(
        "stay_open_without_replication",
        "A segment whose replication has died for good is fenced, so that the leader seals it.",
        OPENING,
        "on_fenced=self._sealer.follow_seal, on_death=fence)",
        "on_fenced=self._sealer.follow_seal, on_death=lambda: None)",
        (f"{TEST_OPENING}::test_a_segment_whose_replication_dies_is_fenced",),
    ),
    Mutation(
        "wait_for_ever_without_the_thread_that_opens",
        "A segment that cannot wait for its predecessors any more is fenced.",
        OPENING,
        "hosted.name, on_death=fence))",
        "hosted.name, on_death=lambda: None))",
        (f"{TEST_OPENING}::test_a_segment_that_cannot_wait_for_its_predecessors_is_fenced",),
    ),
    # ---- the registry
    Mutation(
        "open_a_segment_that_was_refused",
        "An incarnation never opens a segment that it has refused or hosted before.",
        REGISTRY,
        "if hosted is not None or key in self._used_keys:",
        "if hosted is not None:",
        (f"{TEST_REGISTRY}::test_a_segment_that_was_refused_is_never_opened",),
    ),
    Mutation(
        "answer_for_another_incarnation",
        "A request for another incarnation is refused.",
        REGISTRY,
        "        self.check_incarnation(incarnation)\n        with self._lock:\n            if uid:",
        "        with self._lock:\n            if uid:",
        (f"{TEST_REGISTRY}::test_a_request_for_another_incarnation_is_refused",),
    ),
    Mutation(
        "open_segments_while_draining",
        "A broker that drains opens nothing new.",
        REGISTRY,
        "            if self.draining:\n                raise Unavailable(",
        "            if self.draining and hosted is not None:\n                raise Unavailable(",
        (f"{TEST_REGISTRY}::test_a_broker_that_drains_opens_nothing_new",),
    ),
    Mutation(
        "forget_the_counters_of_released_segments",
        "The sums in the metrics do not go back when a segment is released.",
        REGISTRY,
        'self.released_totals["primary" if hosted.is_primary else "follower"].add(hosted)',
        "pass",
        (f"{TEST_REGISTRY}::test_a_sealed_segment_is_released_after_a_while_and_still_counted",),
    ),
    # ---- seals that others make
    Mutation(
        "forget_fenced_segments",
        "A fenced segment is checked for the seal that another replica may write.",
        WATCHER,
        "suspect = fenced or acks_wait or hosted.key in self._unassigned or hosted.primary_lost",
        "suspect = acks_wait or hosted.key in self._unassigned or hosted.primary_lost",
        (f"{TEST_WATCHER}::test_a_seal_that_another_process_wrote_is_found",),
    ),
    Mutation(
        "trust_a_layout_that_lacks_a_segment",
        "A segment that the leader does not assign any more is checked for a seal.",
        WATCHER,
        "suspect = fenced or acks_wait or hosted.key in self._unassigned or hosted.primary_lost",
        "suspect = fenced or acks_wait or hosted.primary_lost",
        (f"{TEST_WATCHER}::test_a_seal_that_another_process_wrote_is_found",),
    ),
    Mutation(
        "trust_a_segment_whose_primary_is_gone",
        "A follower whose primary has disconnected checks whether the segment is sealed.",
        WATCHER,
        "suspect = fenced or acks_wait or hosted.key in self._unassigned or hosted.primary_lost",
        "suspect = fenced or acks_wait or hosted.key in self._unassigned",
        (f"{TEST_WATCHER}::test_a_seal_that_another_process_wrote_is_found",),
    ),
    Mutation(
        "ack_at_once_after_a_pause",
        "A primary whose process was paused acks nothing before it has looked for its seal.",
        HOSTED,
        "            if machine.has_due_acks() and not self.awaits_seal_check:\n",
        "            if machine.has_due_acks():\n",
        (
            "tests/unit/broker/runtime/test_pauses.py::test_a_primary_that_resumes_after_its_loss_was_accepted_acks_nothing_more",
        ),
    ),
    Mutation(
        "hold_acks_for_ever_after_a_pause",
        "A primary that was paused acks what waits once its chain is found unsealed.",
        WATCHER,
        "                hosted.confirm_unsealed(pauses)\n",
        "                pass\n",
        (
            "tests/unit/broker/runtime/test_pauses.py::test_a_primary_that_resumes_acks_what_waits_once_its_chain_is_found_unsealed",
        ),
    ),
    # ---- leaving
    Mutation(
        "try_the_last_flush_once_only",
        "The last flush of a leaving broker is repeated until all is written.",
        SHUTDOWN,
        "            self.sleep(FLUSH_CHECK_SECONDS)\n",
        "            return\n",
        (f"{TEST_SHUTDOWN}::test_the_last_flush_is_repeated_until_all_is_written",),
    ),
    Mutation(
        "go_on_taking_in_during_the_last_flush",
        "A broker accepts nothing more before the last flush begins.",
        SHUTDOWN,
        "            self.accepting_batches.clear()\n",
        "",
        (f"{TEST_SHUTDOWN}::test_it_accepts_nothing_more_before_the_last_flush",),
    ),
    Mutation(
        "leave_before_the_leader_has_sealed",
        "Answers of the leader keep a leaving broker until its segments are sealed elsewhere.",
        SHUTDOWN,
        "max(self.session.answered_at, began) if self.has_leader else began",
        "began",
        (f"{TEST_SHUTDOWN}::test_answers_of_the_leader_keep_it",),
    ),
    # ---- the journal
    Mutation(
        "ack_nothing_when_the_primary_has_written_its_journal",
        "The primary's own journal may be the last one that has a batch. Then the batch is acked.",
        HOSTED,
        "            if machine.watermark != before:\n",
        "            if machine.watermark < before:\n",
        (f"{TEST_JOURNAL}::test_a_batch_is_acked_when_the_primarys_journal_is_the_last_one_to_have_it",),
    ),
    Mutation(
        "let_other_threads_run_during_a_small_write",
        "A small write to the journal keeps the interpreter's lock.",
        FILE_WRITER,
        "ctypes.PyDLL(",
        "ctypes.CDLL(",
        (f"{TEST_FILE_WRITER}::test_no_other_thread_runs_during_a_small_write",),
    ),
    Mutation(
        "hold_up_all_threads_for_a_slow_disk",
        "For a while after a slow write to the journal, all writes release the interpreter's lock.",
        FILE_WRITER,
        "if ended - began > SLOW_SECONDS:",
        "if ended < began:",
        (f"{TEST_FILE_WRITER}::test_after_a_slow_write_all_writes_release_the_lock_for_a_while",),
    ),
    Mutation(
        "trust_a_journal_without_records",
        "A journal that begins after the chain's end lacks a part, also if it has no whole record.",
        "broker/smq_broker/recovery/recovered_segment.py",
        "self._has_gap = log.first > chain_end",
        "self._has_gap = log.end > log.first > chain_end",
        (f"{TEST_JOURNAL}::test_a_journal_of_which_only_a_torn_record_is_left_is_incomplete",),
    ),
    Mutation(
        "take_a_failed_journal_for_complete",
        "After a failed write a journal is never taken for complete.",
        "broker/smq_broker/journal/segment_journal.py",
        "if not (self._created and mark_broken(self.folder)):",
        "if not self._created:",
        (f"{TEST_JOURNAL}::test_a_full_disk_stops_nothing_and_is_reported",),
    ),
    Mutation(
        "host_a_segment_that_no_journal_names",
        "If the journal of a segment cannot be created, the incarnation's journal is marked as not whole.",
        "broker/smq_broker/journal/segment_journal.py",
        "            self._process.mark_not_whole()",
        "            pass",
        (f"{TEST_JOURNAL}::test_a_disk_that_fails_while_a_segment_opens_leaves_it_without_a_journal",),
    ),
    Mutation(
        "keep_the_journal_of_a_segment_that_others_sealed",
        "When a seal chunk of another process is found, the journal is removed.",
        "broker/smq_broker/segments/sealing.py",
        "        self._enqueue_file_list(hosted)\n        remove_journal(hosted)\n",
        "        self._enqueue_file_list(hosted)\n",
        (f"{TEST_JOURNAL}::test_a_seal_that_another_process_made_removes_the_journal",),
    ),
    Mutation(
        "find_no_sealed_segment",
        "A stream to a sealed segment finds it, and gets its outcome.",
        "broker/smq_broker/segments/registry.py",
        "is not ReplicaState.SEALED] or matching",
        "is not ReplicaState.SEALED]",
        (f"{TEST_JOURNAL}::test_a_seal_that_another_process_made_removes_the_journal",),
    ),
    Mutation(
        "take_a_torn_file_before_the_last_for_complete",
        "Only the last file of a journal can end in the middle of a record.",
        "broker/smq_broker/journal/recovery.py",
        "scanned.state is FileState.TORN and number + 1 == len(files)",
        "scanned.state is FileState.TORN",
        (f"{TEST_JOURNAL_FILES}::test_a_journal_is_incomplete_if_a_file_before_the_last_is_cut_off",),
    ),
    Mutation(
        "write_records_that_overlap",
        "A message that the journal has in part is not written a second time.",
        "broker/smq_broker/segments/journaling.py",
        "if message.base_offset == hosted.machine.journal_end:",
        "if message.base_offset <= hosted.machine.journal_end:",
        (f"{TEST_JOURNAL}::test_a_message_that_the_journal_has_in_part_is_not_written_twice",),
    ),
    Mutation(
        "do_not_start_on_a_full_disk",
        "A broker starts on a disk of its journal that is full.",
        "broker/smq_broker/journal/folder.py",
        "if error.errno not in UNWRITABLE:",
        "if True:",
        (
            f"{TEST_JOURNAL}::test_a_broker_starts_on_a_disk_that_cannot_be_written",
            f"{TEST_JOURNAL}::test_a_broker_starts_on_a_full_disk_that_no_process_has_used",
        ),
    ),
    Mutation(
        "take_a_journal_that_began_late_for_whole",
        "A journal that began after the first segment is not whole.",
        "broker/smq_broker/journal/folder.py",
        "            self._is_whole = False\n",
        "",
        (f"{TEST_JOURNAL}::test_a_broker_starts_on_a_disk_that_cannot_be_written",),
    ),
    Mutation(
        "give_up_a_journal_that_cannot_be_listed",
        "A broker that cannot list its journal does not start: the former processes' messages would count as gone.",
        "broker/smq_broker/journal/folder.py",
        'raise InvalidRequest(\n                f"the journal {self._folder} cannot be read',
        'return []\n            raise InvalidRequest(\n                f"the journal',
        (f"{TEST_JOURNAL}::test_a_folder_that_cannot_be_listed_is_not_given_up",),
    ),
    Mutation(
        "forget_a_whole_journal_with_its_last_log",
        "A whole journal says what was not hosted, also when all of its logs are sealed.",
        "broker/smq_broker/recovery/recovered_logs.py",
        "if is_last and not held.former.whole:",
        "if is_last:",
        (f"{TEST_JOURNAL}::test_a_journal_whose_last_log_is_sealed_is_still_a_proof",),
    ),
    Mutation(
        "remember_a_gap_for_good",
        "A journal is incomplete only while the chain ends before its beginning.",
        "broker/smq_broker/recovery/recovered_segment.py",
        '                problem = f"it begins at',
        '                problem = log.problem = f"it begins at',
        (f"{TEST_JOURNAL}::test_a_chain_that_was_read_too_early_leaves_a_journal_complete",),
    ),
    Mutation(
        "go_on_with_a_journal_that_is_not_marked",
        "A replica that cannot mark its journal as incomplete acks nothing more.",
        "broker/smq_broker/segments/journaling.py",
        "            machine.fence()\n        return False",
        "            machine.journal_failed()\n        return False",
        (f"{TEST_JOURNAL}::test_a_replica_that_cannot_mark_its_journal_acks_nothing_more",),
    ),
    Mutation(
        "trust_the_page_cache_of_another_boot",
        "After a reboot no journal is complete.",
        "broker/smq_broker/journal/folder.py",
        "if not process.boot or process.boot != self._process.boot:",
        "if not process.boot:",
        (f"{TEST_JOURNAL}::test_after_a_reboot_no_journal_is_complete",),
    ),
    Mutation(
        "seal_below_a_known_watermark",
        "A journal that ends before a known watermark is incomplete.",
        "broker/smq_broker/recovery/recovered_segment.py",
        "elif max(log.end, chain_end) < known_watermark:",
        "elif False:",
        (f"{TEST_JOURNAL}::test_a_journal_that_ends_before_a_known_watermark_is_incomplete",),
    ),
    Mutation(
        "take_a_damaged_length_for_a_torn_record",
        "A flipped bit in a record's lengths is damage, and not the end of a crash.",
        RECORD_FORMAT,
        "        return FileState.TORN if at + _MARK.size > len(view) else FileState.DAMAGED",
        "        return FileState.TORN",
        (f"{TEST_JOURNAL_FILES}::test_no_flipped_bit_goes_unnoticed",),
    ),
    Mutation(
        "take_a_damaged_last_record_for_a_torn_one",
        "A record with a wrong checksum that a mark follows was written, and is damaged.",
        RECORD_FORMAT,
        "        return FileState.TORN if _read_mark(view, end, nonce ^ end) is None else FileState.DAMAGED",
        "        return FileState.TORN",
        (f"{TEST_JOURNAL_FILES}::test_no_flipped_bit_goes_unnoticed",),
    ),
    Mutation(
        "let_a_page_begin_with_a_mark",
        "A record's checksum and the mark behind it are in one page, so a kill leaves both or neither.",
        RECORD_FORMAT,
        "    if end % _PAGE == 0:",
        "    if False:",
        (f"{TEST_JOURNAL_FILES}::test_a_kill_at_a_page_is_no_damage_whatever_the_length_of_the_record",),
    ),
    Mutation(
        "believe_the_former_records_of_a_file",
        "What a file had before its last use never counts.",
        "broker/smq_broker/journal/segment_journal.py",
        "            self._write(fd, [empty_file(nonce)], 0)\n            if recycled is not None:\n",
        "            if recycled is None:\n                self._write(fd, [empty_file(nonce)], 0)\n"
        "            else:\n",
        (f"{TEST_JOURNAL_ON_DISK}::test_a_trimmed_file_is_used_again",),
    ),
    Mutation(
        "use_a_recycled_file_before_it_is_empty",
        "A recycled file is empty before it is one of the segment's.",
        "broker/smq_broker/journal/segment_journal.py",
        "            self._write(fd, [empty_file(nonce)], 0)\n            if recycled is not None:\n",
        "            if recycled is not None:\n                recycled.path.rename(path)\n"
        "            self._write(fd, [empty_file(nonce)], 0)\n            if False:\n",
        (f"{TEST_JOURNAL_ON_DISK}::test_a_kill_between_any_two_steps_leaves_a_complete_journal",),
    ),
    Mutation(
        "keep_recycled_files_on_a_full_disk",
        "Recycled files are deleted before a write fails for lack of space.",
        "broker/smq_broker/journal/segment_journal.py",
        "error.errno in _NO_SPACE and self._recycled.clear()",
        "False",
        (f"{TEST_JOURNAL_ON_DISK}::test_recycled_files_give_their_space_to_a_full_disk",),
    ),
    Mutation(
        "keep_the_size_of_emptied_files",
        "Many segments that are seldom used do not fill the disk with empty files.",
        "broker/smq_broker/journal/segment_journal.py",
        "        os.ftruncate(self._fd, EMPTY_BYTES)",
        "        pass",
        (f"{TEST_JOURNAL_ON_DISK}::test_an_emptied_file_gives_its_space_back",),
    ),
    Mutation(
        "use_a_file_again_whose_rows_are_read",
        "A journal's file is used again only when nobody can read its former rows any more.",
        "broker/smq_broker/journal/recycled_files.py",
        "if not self._files[at][2].in_use())",
        "if True)",
        (f"{TEST_MAPPED_ROWS}::test_a_file_is_not_used_again_while_its_rows_may_be_read",),
    ),
    Mutation(
        "cut_off_a_file_whose_rows_are_read",
        "A file is not cut off under a reader, because that ends the process.",
        "broker/smq_broker/journal/segment_journal.py",
        "        if current.mapped.in_use():",
        "        if False:",
        (f"{TEST_MAPPED_ROWS}::test_the_last_file_is_not_cut_off_while_its_rows_may_be_read",),
    ),
    Mutation(
        "use_the_files_of_a_sealed_segment_while_its_rows_are_read",
        "Readers of a segment that has been sealed keep its rows.",
        "broker/smq_broker/journal/segment_journal.py",
        "                recycled.add(path, mapped.get(path.name))\n",
        "                recycled.add(path)\n",
        (f"{TEST_MAPPED_ROWS}::test_files_of_a_sealed_segment_stay_while_their_rows_may_be_read",),
    ),
    Mutation(
        "keep_large_rows_twice",
        "Large rows that the journal has are in no other memory.",
        "broker/smq_broker/segments/journaling.py",
        "    if written[0] is None:",
        "    if True:",
        (f"{TEST_MAPPED_ROWS}::test_the_tail_of_a_replica_has_large_rows_in_its_journal_only",),
    ),
    Mutation(
        "count_rows_in_the_journal_as_memory",
        "Rows that are in the journal's files only take no memory, so producers go on while the filer is away.",
        "broker/smq_broker/segments/hosted_segment.py",
        "            if mapped:\n",
        "            if False:\n",
        (f"{TEST_MAPPED_ROWS}::test_producers_go_on_beyond_the_memory_while_the_filer_takes_nothing",),
    ),
    Mutation(
        "let_followers_take_any_memory",
        "A follower whose rows are not in its journal's files takes no more memory than without a journal.",
        "broker/smq_broker/memory/budgets.py",
        "        if self.in_memory > self.memory_limit:",
        "        if False:",
        (
            "tests/unit/broker/memory/test_memory_budget.py"
            "::test_a_follower_takes_no_more_in_memory_than_without_a_journal",
        ),
    ),
    Mutation(
        "report_while_the_disk_does_not_answer",
        "A broker whose journal's disk does not answer has no status, so that its segments move to others.",
        "broker/smq_broker/leader_client/reports.py",
        "        if self.disk.seconds(oldest) <= MAX_DISK_SECONDS:\n",
        "        if True:\n",
        ("tests/unit/broker/test_reports.py",),
    ),
    Mutation(
        "stop_reporting_for_good_once_the_disk_was_slow",
        "Reports go on when the disk answers again.",
        "broker/smq_broker/journal/segment_journal.py",
        "                if is_outermost:\n",
        "                if False:\n",
        (f"{TEST_JOURNAL_ON_DISK}::test_a_journal_is_busy_from_the_beginning_of_an_operation_to_its_end",),
    ),
    Mutation(
        "report_without_a_status",
        "A broker that has no status sends no report.",
        "broker/smq_broker/leader_client/leader_session.py",
        "                return False\n",
        "                status = pb.BrokerStatus()\n",
        (
            "tests/unit/broker/streams/test_session_faults.py"
            "::test_a_broker_whose_disk_does_not_answer_reports_nothing_until_it_does",
        ),
    ),
    Mutation(
        "take_a_late_observation_for_a_disk_that_does_not_answer",
        "An operation that ends at once, as after a pause of the process, costs the broker no report.",
        "broker/smq_broker/leader_client/reports.py",
        "        if self.disk.oldest() == oldest:\n",
        "        if True:\n",
        ("tests/unit/broker/test_reports.py::test_an_operation_that_ends_at_once_was_only_seen_late",),
    ),
    Mutation(
        "wait_for_the_removal_of_a_journal",
        "A seal is answered when the seal chunk exists, even if the journal's disk does not answer.",
        "broker/smq_broker/segments/sealing.py",
        "            if hosted.machine.outcome is not None:\n                run.done",
        "            if False:\n                run.done",
        (f"{TEST_JOURNAL}::test_a_seal_does_not_wait_for_the_removal_of_a_journal",),
    ),
    Mutation(
        "forget_a_change_that_came_with_a_report",
        "A change that comes while a report is being made is in the next one, which follows at once.",
        "broker/smq_broker/leader_client/leader_session.py",
        "                return False\n            report = ",
        "                return False\n            self._report_due.clear()\n            report = ",
        (
            "tests/unit/broker/streams/test_session_faults.py"
            "::test_a_change_that_comes_after_the_status_was_taken_is_reported_at_once",
        ),
    ),
)
