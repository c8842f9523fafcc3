"""Broken rules of streams that producers share, in the client and at the broker, and of frames to many readers."""

from __future__ import annotations

from ..mutation import Mutation

SENDER = "client/smq/producing/streams/segment_sender.py"
STREAM = "client/smq/producing/streams/shared_stream.py"
STREAMS = "client/smq/producing/streams/shared_streams.py"
SMALL = "client/smq/producing/batching/small_batch.py"
SESSION = "broker/smq_broker/streams/producer_session.py"
SERVED = "broker/smq_broker/streams/shared_stream.py"
SPACING = "broker/smq_broker/streams/frame_spacing.py"
TAILS = "client/smq/consuming/fetching/shared_tails.py"
FETCH_OUTPUT = "client/smq/consuming/fetching/fetch_output.py"
TAIL_FETCHER = "client/smq/consuming/fetching/tail_fetcher.py"
TEST_TAILS = "tests/unit/client/consuming/test_shared_tails.py"
TEST_SPACING = "tests/unit/broker/streams/test_frame_spacing.py"
TEST_CLIENT = "tests/unit/client/producing/test_shared_stream.py"
TEST_SMALL = "tests/unit/client/producing/test_small_batch.py"
TEST_BROKER = "tests/unit/broker/streams/test_shared_stream.py"

MUTATIONS = (
    # ---- the client
    Mutation(
        "send_before_the_acks_of_the_message_before",
        "The next message of a shared stream waits for the acks of the one before, and takes in what comes meanwhile.",
        STREAM,
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
        "A message does not wait longer for acks than MAX_HOLD_SECONDS.",
        STREAM,
        "                self._unacked.clear()\n",
        "                pass\n",
        (f"{TEST_CLIENT}::test_a_message_does_not_wait_for_acks_for_ever",),
    ),
    Mutation(
        "wait_for_the_acks_of_a_session_that_has_ended",
        "A message does not wait for the acks of a session that has ended, because nobody takes them any more.",
        STREAM,
        "            self._unacked.pop(session.number, None)\n",
        "",
        (f"{TEST_CLIENT}::test_nothing_waits_for_the_acks_of_a_session_that_has_ended",),
    ),
    Mutation(
        "let_what_did_not_fit_into_a_message_wait_for_ever",
        "What does not fit into a message waits no longer for acks than MAX_HOLD_SECONDS either.",
        STREAM,
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
        "not (port.is_urgent or self._refused or self._ended)",
        "not (self._refused or self._ended)",
        (f"{TEST_BROKER}::test_only_acks_wait_for_acks",),
    ),
    Mutation(
        "share_large_batches",
        "A large batch gets a stream of its own, where it holds up nobody else.",
        SENDER,
        "        and sub_batch.cost <= MAX_SHARED_BYTES\n",
        "",
        (f"{TEST_CLIENT}::test_a_large_batch_gets_a_stream_of_its_own_and_keeps_its_place",),
    ),
    Mutation(
        "forget_sessions_of_a_broken_stream",
        "When a stream breaks, its sessions open again on another one.",
        STREAM,
        "            sessions.append(self._sessions.popitem()[1])\n",
        "            self._sessions.popitem()\n",
        (f"{TEST_CLIENT}::test_when_the_stream_breaks_everything_is_sent_again_on_another_one",),
    ),
    Mutation(
        "keep_idle_streams",
        "A shared stream that nobody uses is closed.",
        STREAMS,
        "                    stream.close()\n",
        "                    pass\n",
        (f"{TEST_CLIENT}::test_a_stream_that_nobody_uses_is_closed",),
    ),
    # ---- the broker
    Mutation(
        "append_while_the_broker_leaves",
        "A broker that leaves takes no batches from shared streams.",
        SESSION,
        "return self._port.accepting_batches.is_set() and self.hosted.reserve(batch.nbytes)",
        "return self.hosted.reserve(batch.nbytes)",
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
        "What waits in the sessions of a stream has a limit. Beyond it a session ends.",
        SESSION,
        "if not self._port.waiting_bytes.reserve(batch.nbytes):",
        "if False:",
        (f"{TEST_BROKER}::test_too_many_waiting_batches_end_their_session",),
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
        "end_the_stream_by_an_error_of_one_session",
        "An error of one producer ends its own session only.",
        SESSION,
        "        except SmqError as error:\n            self.fail(error)\n            return False\n",
        "        except SmqError:\n            raise\n",
        (f"{TEST_BROKER}::test_a_wrong_sequence_ends_its_own_session_only",),
    ),
    Mutation(
        "keep_sessions_after_the_end_of_the_stream",
        "The end of a stream closes its sessions: a producer without a stream may be forgotten.",
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
