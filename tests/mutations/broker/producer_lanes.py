"""Broken rules of the lanes of producers, in the client and at the broker, and of frames to many readers."""

from __future__ import annotations

from ..mutation import Mutation

SENDER = "core/smq_core/producing/segment_sender.py"
LANE = "client/smq/producing/lanes/lane.py"
LANES = "client/smq/producing/lanes/lanes.py"
SMALL = "client/smq/producing/batching/small_batch.py"
SESSION = "broker/smq_broker/producers/producer_session.py"
PORT = "broker/smq_broker/producers/session_port.py"
SERVED = "broker/smq_broker/producers/producer_lane.py"
SPACING = "broker/smq_broker/streams/frame_spacing.py"
TAILS = "client/smq/consuming/fetching/shared_tails.py"
FETCH_OUTPUT = "client/smq/consuming/fetching/fetch_output.py"
TAIL_FETCHER = "client/smq/consuming/fetching/tail_fetcher.py"
TEST_TAILS = "tests/unit/client/consuming/test_shared_tails.py"
TEST_SPACING = "tests/unit/broker/streams/test_frame_spacing.py"
TEST_CLIENT = "tests/unit/client/producing/test_producer_lane.py"
TEST_SMALL = "tests/unit/client/producing/test_small_batch.py"
TEST_BROKER = "tests/unit/broker/producers/test_lane.py"

MUTATIONS = (
    # ---- the client
    Mutation(
        "send_before_the_acks_of_the_message_before",
        "The next frame of a small lane waits for the acks of the one before, and takes in what comes meanwhile.",
        LANE,
        "self._unacked.update({session.number: sent.sequence for session, sent in batches})",
        "pass",
        (f"{TEST_CLIENT}::test_what_comes_before_the_acks_of_a_message_goes_out_as_one",),
    ),
    Mutation(
        "drop_given_timestamps_of_small_batches",
        "The timestamp that the program has given goes with its message.",
        SMALL,
        "timestamps_of(batch.times, batch.timestamps)",
        "timestamps_of(batch.times, {})",
        (f"{TEST_SMALL}::test_it_has_the_rows_of_all_batches",),
    ),
    Mutation(
        "drop_headers_of_small_batches",
        "Messages with headers or null values go as an Arrow batch.",
        SMALL,
        "batch.encoder.typed or batch.headers or",
        "batch.encoder.typed or",
        (f"{TEST_SMALL}::test_null_values_and_headers_go_as_an_arrow_batch",),
    ),
    Mutation(
        "wait_for_acks_for_ever",
        "A frame does not wait longer for acks than MAX_HOLD_SECONDS.",
        LANE,
        "                self._unacked.clear()\n",
        "                pass\n",
        (f"{TEST_CLIENT}::test_a_message_does_not_wait_for_acks_for_ever",),
    ),
    Mutation(
        "wait_for_the_acks_of_a_session_that_has_ended",
        "A frame does not wait for the acks of a session that has ended, because nobody takes them any more.",
        LANE,
        "            self._unacked.pop(session.number, None)\n",
        "",
        (f"{TEST_CLIENT}::test_nothing_waits_for_the_acks_of_a_session_that_has_ended",),
    ),
    Mutation(
        "let_what_did_not_fit_into_a_message_wait_for_ever",
        "What does not fit into a frame waits no longer for acks than MAX_HOLD_SECONDS either.",
        LANE,
        "            if self._ready and self._unacked:\n",
        "            if False:\n",
        (f"{TEST_CLIENT}::test_what_does_not_fit_into_a_message_does_not_wait_for_ever",),
    ),
    Mutation(
        "reply_to_each_segment_alone",
        "Acks that come soon after each other share a reply.",
        SERVED,
        "            self._hold_acks()\n",
        "",
        (f"{TEST_BROKER}::test_acks_of_different_segments_share_a_reply",),
    ),
    Mutation(
        "hold_what_is_no_ack",
        "Only acks wait for other acks.",
        SERVED,
        "not (self._is_bulk or port.is_urgent or self._refused or self._ended)",
        "not (self._is_bulk or self._refused or self._ended)",
        (f"{TEST_BROKER}::test_only_acks_wait_for_acks",),
    ),
    Mutation(
        "put_large_batches_on_the_small_lane",
        "A large batch goes on the bulk lane, where it holds up nothing that is small.",
        "client/smq/producing/batching/partitioning.py",
        "is_uploaded or self.cost > BULK_BYTES",
        "is_uploaded",
        (f"{TEST_CLIENT}::test_a_large_batch_goes_on_the_bulk_lane_and_keeps_its_place",),
    ),
    Mutation(
        "wait_for_acks_on_the_bulk_lane",
        "The next frame of a bulk lane waits for no acks.",
        LANE,
        "            if not self._is_bulk:\n                self._unacked.update",
        "            if True:\n                self._unacked.update",
        (f"{TEST_CLIENT}::test_large_batches_of_several_producers_take_turns_and_wait_for_no_acks",),
    ),
    Mutation(
        "put_several_large_batches_into_a_frame",
        "A frame of a bulk lane has one batch.",
        LANE,
        "        max_batches = 1 if self._is_bulk else MAX_BATCHES_PER_FRAME\n",
        "        max_batches = MAX_BATCHES_PER_FRAME\n",
        (f"{TEST_CLIENT}::test_large_batches_of_several_producers_take_turns_and_wait_for_no_acks",),
    ),
    Mutation(
        "stay_on_the_bulk_lane_for_good",
        "Small batches leave the bulk lane when nothing large has come for a while.",
        SENDER,
        "        return now - self._large_at >= SMALL_AFTER_SECONDS\n",
        "        return False\n",
        (f"{TEST_CLIENT}::test_small_batches_leave_the_bulk_lane_when_nothing_large_has_come_for_a_while",),
    ),
    Mutation(
        "keep_a_bulk_lane_whose_sessions_are_idle",
        "A bulk lane whose sessions are idle is closed.",
        LANE,
        "not (self._is_bulk and all(session.is_idle for session in sessions))",
        "True",
        (f"{TEST_CLIENT}::test_a_bulk_lane_whose_sessions_are_idle_is_closed_and_opened_again",),
    ),
    Mutation(
        "open_ahead_once",
        "A session that is opened ahead is tried again until the broker hosts the segment.",
        SENDER,
        "        self.failure = None\n        self._may_send = False\n",
        "        self.failure = None\n        self._open_ahead = self._may_send = False\n",
        (
            "tests/unit/core/producing/test_producer_machine.py"
            "::test_a_session_opened_ahead_is_tried_again_until_the_broker_hosts_the_segment",
        ),
    ),
    Mutation(
        "forget_sessions_of_a_broken_lane",
        "When a lane breaks, its sessions open again on another one.",
        LANE,
        "            sessions.append(self._sessions.popitem()[1])\n",
        "            self._sessions.popitem()\n",
        (f"{TEST_CLIENT}::test_when_the_stream_breaks_everything_is_sent_again_on_another_one",),
    ),
    Mutation(
        "keep_idle_lanes",
        "A lane that nobody uses is closed.",
        LANES,
        "                lane.close()  # sessions that are needed go on in another lane\n",
        "                pass\n",
        (f"{TEST_CLIENT}::test_a_stream_that_nobody_uses_is_closed",),
    ),
    # ---- the broker
    Mutation(
        "append_while_the_broker_leaves",
        "A broker that leaves takes no batches.",
        SESSION,
        "return self._port.accepting_batches.is_set() and self.hosted.memory.reserve(batch.incoming.nbytes)",
        "return self.hosted.memory.reserve(batch.incoming.nbytes)",
        (f"{TEST_BROKER}::test_a_broker_that_leaves_keeps_batches_waiting",),
    ),
    Mutation(
        "drop_batches_of_a_segment_that_waits",
        "A batch waits in its session while its segment is not open yet.",
        SESSION,
        "        self._waiting.append(batch)\n",
        "        pass\n",
        (f"{TEST_BROKER}::test_a_segment_that_is_not_open_yet_holds_up_its_own_sessions_only",),
    ),
    Mutation(
        "let_any_number_of_batches_wait",
        "What waits in the sessions of a small lane has a limit. Beyond it a session ends.",
        PORT,
        "if exceeds and not (self.is_bulk and may_exceed):",
        "if False:",
        (f"{TEST_BROKER}::test_too_many_waiting_batches_end_their_session",),
    ),
    Mutation(
        "read_a_bulk_lane_whatever_waits",
        "A bulk lane stops reading while too much waits for capacity.",
        SERVED,
        "        self._port.wait_for_capacity()\n",
        "",
        (f"{TEST_BROKER}::test_a_bulk_lane_stops_reading_while_too_much_waits",),
    ),
    Mutation(
        "hold_a_bulk_lane_whose_client_has_gone",
        "A bulk lane that has stopped reading ends with its client.",
        SERVED,
        "            self._port.close()\n",
        "            pass\n",
        (f"{TEST_BROKER}::test_a_bulk_lane_that_has_stopped_reading_ends_with_its_client",),
    ),
    Mutation(
        "stop_a_bulk_lane_for_a_segment_that_is_not_open",
        "What waits for a segment that is not open yet holds up no other one.",
        PORT,
        "                and any(session.is_open for session in self.waiting)\n",
        "",
        (f"{TEST_BROKER}::test_a_segment_that_is_not_open_yet_stops_no_bulk_lane",),
    ),
    Mutation(
        "give_all_capacity_to_one_session",
        "Sessions that wait for capacity take turns.",
        PORT,
        "            self.waiting[waiting[0]] = None\n",
        "            self.waiting = {waiting[0]: None} | self.waiting\n",
        (f"{TEST_BROKER}::test_sessions_that_wait_for_capacity_take_turns",),
    ),
    Mutation(
        "open_a_session_twice",
        "A session that is open is not replaced by another producer's.",
        SERVED,
        "        if number in self._sessions:\n",
        "        if False:\n",
        (f"{TEST_BROKER}::test_a_session_that_is_open_already_ends_the_stream",),
    ),
    Mutation(
        "end_the_lane_by_an_error_of_one_session",
        "An error of one producer ends its own session only.",
        SESSION,
        "        except SmqError as error:\n            self.fail(error)\n            return False\n",
        "        except SmqError:\n            raise\n",
        (f"{TEST_BROKER}::test_a_wrong_sequence_ends_its_own_session_only",),
    ),
    Mutation(
        "end_the_lane_by_a_frame_that_is_too_large",
        "A producer whose batch is too large ends its own session only.",
        SERVED,
        "            self._refuse_large(sub_batches, size)\n            return\n",
        "            raise MessageTooLarge(str(size))\n",
        (f"{TEST_BROKER}::test_a_frame_that_is_too_large_ends_its_session_only",),
    ),
    Mutation(
        "keep_sessions_after_the_end_of_the_lane",
        "The end of a lane closes its sessions: a producer without a session may be forgotten.",
        SERVED,
        "                for session in list(self._sessions.values()):\n                    session.close()\n",
        "                pass\n",
        (f"{TEST_BROKER}::test_the_end_of_the_stream_ends_all_sessions",),
    ),
    # ---- to readers
    Mutation(
        "send_each_reader_every_message_at_once",
        "A broker bounds the small frames that it sends to all readers together.",
        SPACING,
        "return max(0.0, self._sent_at + self._frame_rate.spacing_seconds - now)",
        "return 0.0",
        (f"{TEST_SPACING}::test_all_readers_together_get_a_bounded_number_of_frames",),
    ),
    Mutation(
        "hold_what_came_first_only",
        "A frame that was held has what came meanwhile, too.",
        "broker/smq_broker/streams/tail.py",
        "        with hosted.lock:\n            entries, last = _read_available(hosted, position)\n    return",
        "    return",
        (f"{TEST_SPACING}::test_a_held_frame_brings_what_came_meanwhile",),
    ),
    Mutation(
        "count_idle_readers",
        "Readers that get nothing do not make others wait.",
        SPACING,
        "            self._frame_rate.remove_readers(self._readers)\n",
        "            pass\n",
        (f"{TEST_SPACING}::test_readers_that_get_nothing_do_not_count",),
    ),
    Mutation(
        "count_a_shared_stream_as_one_reader",
        "A stream that several readers share counts for all of them.",
        SPACING,
        "self._readers = readers",
        "self._readers = 1",
        (f"{TEST_SPACING}::test_a_shared_stream_counts_for_all_of_its_readers",),
    ),
    # ---- tails that readers of a client share
    Mutation(
        "subscribe_to_a_tail_that_is_ahead",
        "A reader subscribes only to a tail that has not passed its position.",
        TAILS,
        " or position < self._position:",
        ":",
        (f"{TEST_TAILS}::test_a_subscriber_gets_what_follows_its_position",),
    ),
    Mutation(
        "publish_while_the_program_is_slow",
        "A reader whose program takes nothing holds up no other one.",
        FETCH_OUTPUT,
        "            self._tail.end_publication()\n            if not self.put_item",
        "            if not self.put_item",
        (f"{TEST_TAILS}::test_a_reader_whose_program_is_slow_holds_nobody_up",),
    ),
    Mutation(
        "begin_with_what_another_reader_knows",
        "A reader has the watermark from a replica before it subscribes.",
        TAIL_FETCHER,
        "self._published is None and self._output.watermark_known and self._subscribe()",
        "self._published is None and self._subscribe()",
        (f"{TEST_TAILS}::test_a_reader_gets_the_watermark_from_a_replica_first",),
    ),
    Mutation(
        "take_frames_behind_a_gap",
        "A subscriber that would miss messages reads by itself.",
        TAIL_FETCHER,
        "if frame.first > self._output.position:",
        "if False:",
        (f"{TEST_TAILS}::test_a_frame_that_lacks_messages_is_not_taken",),
    ),
)
