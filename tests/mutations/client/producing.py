"""Broken rules of producers: what a call sends, threads of a client, processes, and streams."""

from __future__ import annotations

from ..mutation import Mutation

PRODUCER = "client/smq/producer.py"
BUDGET = "client/smq/producing/in_flight_budget.py"
TEST_BUDGET = "tests/unit/client/producing/test_producer_budget.py"
AIO = "client/smq/aio.py"
VIEWS = "client/smq/transport/topic_views.py"
TEST_VIEWS = "tests/unit/client/transport/test_topic_views.py"
STATE = "client/smq/producing/delivery_state.py"
BATCHER = "client/smq/producing/message_batcher.py"
TEST_ERRORS = "tests/unit/client/producing/test_errors_once.py"
TEST_CALLBACKS = "tests/unit/client/producing/test_callbacks.py"
TEST_FORK = "tests/integration/client/producing/test_fork.py"
FORKS = "client/smq/forks.py"
TEST_FORK_OF_PRODUCER = "tests/unit/client/producing/test_fork_of_producer.py"
TEST_LOSSES = "tests/unit/client/consuming/test_consumer_losses.py"
ENGINE = "client/smq/producing/engine.py"
MACHINE = "core/smq_core/producing/producer_machine.py"
TEST_MACHINE = "tests/unit/core/producing/test_producer_machine.py"
TEST_FENCED = "tests/unit/client/producing/test_fenced_outcomes.py"
TEST_ENGINE = "tests/unit/client/producing/test_producer_engine.py"
TEST_CAPACITY = "tests/unit/client/producing/test_capacity_of_calls.py"

MUTATIONS = (
    Mutation(
        "call_the_program_with_the_engines_lock",
        "Delivery callbacks run in a thread that holds no lock.",
        ENGINE,
        "            callbacks = self._apply(event)\n        run_callbacks(callbacks)\n",
        "            callbacks = self._apply(event)\n            run_callbacks(callbacks)\n",
        (f"{TEST_CALLBACKS}::test_a_callback_may_send_and_see_what_is_done",),
    ),
    Mutation(
        "send_the_rows_of_a_table_that_have_capacity",
        "A table is sent as a whole or not at all, if it fits into the capacity.",
        PRODUCER,
        "for together in [parts] if fits and parts else [[part] for part in parts]:",
        "for together in [[part] for part in parts]:",
        (f"{TEST_CAPACITY}::test_a_call_without_capacity_for_all_of_it_sends_nothing[write]",),
    ),
    Mutation(
        "send_the_messages_that_have_capacity",
        "Messages of one call are sent all or none, if they fit into the capacity.",
        PRODUCER,
        "reserved = int(group.ends[-1]) if group.ends[-1] <= self._engine.max_undivided_bytes else 0",
        "reserved = 0",
        (f"{TEST_CAPACITY}::test_a_call_without_capacity_for_all_of_it_sends_nothing[send_many]",),
    ),
    Mutation(
        "keep_the_reservation_of_a_call",
        "A reservation for all messages of a call ends when their batches count their bytes.",
        PRODUCER,
        "            self._engine.release(reserved)  # batches have counted the same bytes",
        "            pass",
        (f"{TEST_CAPACITY}::test_a_call_without_capacity_for_all_of_it_sends_nothing[send_many]",),
    ),
    Mutation(
        "raise_the_cause_of_a_part_that_was_not_sent",
        "An error in the middle of a call carries the delivery of what was sent.",
        PRODUCER,
        "                raise _partly_sent(TableDelivery(states), sent, converted.num_rows, error) from error",
        "                raise",
        (f"{TEST_CAPACITY}::test_a_call_beyond_the_capacity_says_what_it_has_sent[write]",),
    ),
    Mutation(
        "give_coroutines_a_delivery_that_blocks",
        "The delivery of what was sent can be awaited.",
        AIO,
        "        error.delivery = AsyncDelivery(error.delivery)\n",
        "",
        (f"{TEST_CAPACITY}::test_the_delivery_of_what_was_sent_can_be_awaited",),
    ),
    Mutation(
        "let_small_batches_overtake_a_table_that_waits",
        "A call that waits for much capacity gets it, although small batches go on.",
        BUDGET,
        "return self.used >= self.limit or bool(self._turns)",
        "return self.used >= self.limit",
        (f"{TEST_CAPACITY}::test_small_batches_do_not_take_the_capacity_that_a_table_waits_for",),
    ),
    Mutation(
        "keep_all_views",
        "A client keeps the views of those topics that it uses, and a few others.",
        VIEWS,
        "idle[: max(0, len(idle) - MAX_IDLE_VIEWS)]",
        "idle[:0]",
        (f"{TEST_VIEWS}::test_of_many_topics_those_that_were_used_last_are_kept",),
    ),
    Mutation(
        "close_a_view_that_is_in_use",
        "The view of an open producer or consumer stays.",
        VIEWS,
        "return self._leases[topic] > 0 or view.has_listeners",
        "return self._leases[topic] > 0",
        (f"{TEST_VIEWS}::test_a_view_is_kept_while_it_is_in_use",),
    ),
    Mutation(
        "open_a_deleted_topic_by_what_is_known_of_it",
        "A topic that was deleted is unknown.",
        VIEWS,
        "if (deleted := view.deleted) is not None:",
        "if (deleted := None) is not None:",
        (f"{TEST_VIEWS}::test_a_topic_that_proves_deleted_is_not_kept",),
    ),
    Mutation(
        "raise_at_the_close_what_a_delivery_has_raised",
        "An error that the program has got from a delivery is not raised again.",
        STATE,
        "            self._raised[start:stop] = True",
        "            pass",
        (f"{TEST_ERRORS}::test_what_a_delivery_has_raised_is_not_raised_again",),
    ),
    Mutation(
        "take_the_error_of_one_message_for_those_of_its_batch",
        "The error of one message does not hide the errors of others in its batch.",
        STATE,
        "            self._raised[start:stop] = True",
        "            self._raised[:] = True",
        (f"{TEST_ERRORS}::test_the_errors_of_other_messages_of_the_batch_are_raised",),
    ),
    Mutation(
        "forget_the_first_of_many_errors",
        "The flush raises an error, however many batches have failed since.",
        "client/smq/producing/unresolved_batches.py",
        "        self._error = self._error or self._first_error()\n        self._failed = []\n\n",
        "        self._error, self._failed = None, []\n\n",
        (f"{TEST_ERRORS}::test_an_error_is_raised_although_thousands_came_after_it",),
    ),
    Mutation(
        "send_a_batch_although_many_have_no_outcome",
        "A small batch waits while the brokers are behind.",
        "client/smq/producing/batching/batch_delay.py",
        "    return max(0.0, MAX_BATCH_DELAY_SECONDS * delays - age)",
        "    return 0.0",
        (
            "tests/unit/client/producing/test_batching.py::"
            "test_a_small_batch_that_has_lingered_waits_for_the_one_before",
        ),
    ),
    Mutation(
        "close_nothing_after_the_first_error",
        "The close of a client closes every producer, whatever fails.",
        "client/smq/closing.py",
        "            if raised is None:\n                raised = failure\n            elif",
        "            raise\n            if",
        (f"{TEST_ERRORS}::test_everything_is_closed_although_the_first_close_fails",),
    ),
    Mutation(
        "replace_the_error_of_the_program",
        "An error of the program goes on when the close fails, too.",
        "client/smq/closing.py",
        "    raised = error\n",
        "    raised = error = None\n",
        (f"{TEST_ERRORS}::test_the_error_of_the_block_goes_on_and_names_those_of_the_close",),
    ),
    Mutation(
        "call_back_with_the_lock_of_submissions",
        "A callback runs when its thread holds no lock, because the program may wait for both.",
        "client/smq/producing/callbacks.py",
        "    if waiting is not None:\n",
        "    if False:\n",
        (f"{TEST_CALLBACKS}::test_a_callback_runs_without_a_lock_for_which_the_program_may_wait",),
    ),
    Mutation(
        "let_a_callback_wait_for_outcomes",
        "A callback that would wait for an outcome gets an error.",
        "client/smq/producing/callbacks.py",
        "    if in_callback():\n        raise",
        "    if False:\n        raise",
        (f"{TEST_CALLBACKS}::test_a_callback_that_would_wait_for_an_outcome_gets_an_error[result]",),
    ),
    Mutation(
        "let_a_callback_wait_for_capacity",
        "A callback that sends without capacity gets an error at once.",
        BUDGET,
        "if in_callback():",
        "if False:",
        (f"{TEST_CALLBACKS}::test_a_callback_that_sends_without_capacity_gets_an_error_at_once",),
    ),
    Mutation(
        "close_a_producer_in_a_callback_that_cannot_wait",
        "A close that would wait in a callback changes nothing.",
        BATCHER,
        "                refuse_to_wait()\n            self.closed = True",
        "                pass\n            self.closed = True",
        (f"{TEST_CALLBACKS}::test_a_callback_that_would_wait_for_an_outcome_gets_an_error[close]",),
    ),
    Mutation(
        "let_a_signal_handler_wait_for_its_own_submission",
        "A signal handler that runs in the middle of a submission may write.",
        BATCHER,
        "self._handover_lock = make_rlock(ClientLock.HANDOVER)",
        "self._handover_lock = make_lock(ClientLock.HANDOVER)",
        (f"{TEST_CALLBACKS}::test_a_signal_handler_may_write_in_the_middle_of_a_submission",),
    ),
    Mutation(
        "use_a_client_in_a_fork",
        "Every call of a client in a fork is an error.",
        "client/smq/forks.py",
        "        one.__class__ = _class_in_fork(kind, parent)",
        "        pass",
        (f"{TEST_FORK}::test_what_a_fork_does_with_its_parents_client_is_an_error",),
    ),
    Mutation(
        "let_a_failure_in_a_fork_keep_others_usable",
        "Every use of a client in a fork is an error, whatever fails there.",
        FORKS,
        "            except Exception:\n                log",
        "            except ImportError:\n                log",
        (f"{TEST_FORK_OF_PRODUCER}::test_what_fails_in_a_fork_does_not_keep_others_usable",),
    ),
    Mutation(
        "keep_the_lock_of_a_thread_that_a_fork_does_not_have",
        "A delivery in a fork does not wait for a lock that nobody releases.",
        BATCHER,
        "        renew(self.engine.lock)",
        "        pass",
        (f"{TEST_FORK_OF_PRODUCER}::test_deliveries_end_in_a_fork_although_a_thread_of_the_parent_has_the_lock",),
    ),
    Mutation(
        "close_a_client_in_a_callback_that_cannot_wait",
        "The close of a client changes nothing in a callback.",
        "client/smq/client.py",
        "            refuse_to_wait()",
        "            pass",
        (f"{TEST_CALLBACKS}::test_a_client_that_a_callback_closes_stays_open",),
    ),
    Mutation(
        "leave_producers_open_after_an_error_of_the_program",
        "The close of a client closes everything, although a callback of the program fails.",
        "client/smq/closing.py",
        "except Exception as failure:",
        "except OSError as failure:",
        (f"{TEST_ERRORS}::test_everything_is_closed_although_the_first_close_fails",),
    ),
    Mutation(
        "flush_twice_at_exit",
        "What ends without close is flushed once, with multiprocessing too.",
        "client/smq/producing/exit_flush.py",
        "opened, self._open = list(self._open), weakref.WeakSet()",
        "opened = list(self._open)",
        (
            "tests/unit/client/producing/test_exit_flush.py::"
            "test_each_is_flushed_once_although_multiprocessing_ends_the_program_too",
        ),
    ),
    Mutation(
        "let_an_empty_table_wait",
        "A table without rows does not wait for capacity.",
        PRODUCER,
        "if fits and parts else",
        "if fits else",
        (f"{TEST_CAPACITY}::test_a_call_without_messages_does_not_wait_for_capacity[write]",),
    ),
    Mutation(
        "keep_the_view_of_a_deleted_topic",
        "A topic that was created again is located again.",
        VIEWS,
        "view.deleted is not None and not",
        "False and not",
        (f"{TEST_VIEWS}::test_a_topic_that_was_created_again_is_located_again",),
    ),
    Mutation(
        "end_a_program_without_its_messages",
        "A program that ends without close delivers what it has sent.",
        "client/smq/producing/exit_flush.py",
        "            atexit.register(self.flush)",
        "            pass",
        (
            f"{TEST_FORK}::test_what_ends_without_close_has_delivered_everything"
            "[a thread that goes on after the main one]",
        ),
    ),
    Mutation(
        "deliver_where_no_thread_starts",
        "What was sent is delivered before Python starts no more threads.",
        "client/smq/producing/exit_flush.py",
        "                threading._register_atexit(self._deliver)",
        "                pass",
        (
            f"{TEST_FORK}::test_what_ends_without_close_has_delivered_everything"
            "[a program that starts no threads at its end]",
        ),
    ),
    Mutation(
        "report_less_than_a_reader_had",
        "The range of a loss contains what the reader had from the tail, so it can tell what comes again.",
        "client/smq/consuming/reader_losses.py",
        "return replace(lost, stop=max(lost.stop, position))",
        "return lost",
        (f"{TEST_LOSSES}::test_a_reader_learns_that_a_loss_covers_what_it_had_from_the_tail_before_it_gets_it_again",),
    ),
    Mutation(
        "apply_replies_of_a_former_stream",
        "A reply counts only in the session that the sender has now.",
        MACHINE,
        "            case Acked(session):\n                if (sender := self._sessions.get(session)) is not None:",
        "            case Acked(session):\n"
        "                if (sender := next(iter(self._sessions.values()), None)) is not None:",
        (f"{TEST_ENGINE}::test_a_reply_of_a_former_stream_changes_nothing",),
    ),
    Mutation(
        "end_the_present_stream_with_a_former_one",
        "The end of a former session leaves the present one.",
        MACHINE,
        "sender = self._sessions.pop(event.session, None)",
        "sender = self._sessions.pop(max(self._sessions, default=0), None)",
        (f"{TEST_ENGINE}::test_the_end_of_a_former_stream_leaves_the_present_one",),
    ),
    Mutation(
        "keep_an_outcome_that_fences_the_producer",
        "An outcome that fences the producer ends it when it comes, not in the thread that applies it.",
        MACHINE,
        "            send_queue.check_fence(outcome, identity.producer, identity.epoch, identity.instance)\n",
        "            pass\n",
        (f"{TEST_FENCED}::test_an_outcome_without_successors_ends_a_fenced_producer",),
    ),
    Mutation(
        "ignore_the_fence_of_another_brokers_outcome",
        "A producer that an outcome of another broker fences ends.",
        MACHINE,
        "            self._fail(error)\n            return\n        self._outcomes[",
        "            return\n        self._outcomes[",
        (f"{TEST_FENCED}::test_an_outcome_of_another_broker_ends_a_fenced_producer",),
    ),
    Mutation(
        "ignore_errors_of_replies",
        "A producer ends when a reply on its stream fences it.",
        MACHINE,
        "or the log lacks what it acked\n            self._fail(error)\n",
        "or the log lacks what it acked\n",
        (f"{TEST_MACHINE}::test_another_process_with_the_same_id_ends_the_producer",),
    ),
    Mutation(
        "report_an_unreachable_broker_each_time",
        "A broker that does not answer is reported once in an interval.",
        "client/smq/producing/runtime/unreachable_reports.py",
        "            if incarnation in self._reported_at:\n                return",
        "            pass",
        (f"{TEST_ENGINE}::test_a_broker_is_reported_as_unreachable_once_in_an_interval",),
    ),
    Mutation(
        "leave_who_waits_behind_one_that_gave_up",
        "A call that gives up its turn lets the next one go on.",
        BUDGET,
        "                self._turns.remove(turn)\n                self._freed.notify_all()\n",
        "                self._turns.remove(turn)\n",
        (f"{TEST_BUDGET}::test_who_waits_behind_one_that_gives_up_goes_on",),
    ),
    Mutation(
        "free_what_the_end_has_freed",
        "An outcome that comes after the end changes nothing.",
        BUDGET,
        "        if not self._closed:\n            self.used -= nbytes\n",
        "        if True:\n            self.used -= nbytes\n",
        (f"{TEST_BUDGET}::test_an_outcome_after_the_end_frees_nothing_twice",),
    ),
    Mutation(
        "hold_back_until_the_outcome",
        "A segment may send as soon as nothing of those before it is in flight.",
        "core/smq_core/producing/producer_machine.py",
        "        if self._held_back and sender.send_queue.idle:\n",
        "        if False:\n",
        (
            "tests/unit/core/producing/test_producer_machine.py"
            "::test_a_segment_of_two_predecessors_may_send_when_nothing_is_left_of_the_second",
        ),
    ),
)
