"""Broken rules of replication: the primary's connections to its followers, and what followers answer."""

from __future__ import annotations

from ..mutation import Mutation

LANES = "core/smq_core/sessions/lanes.py"
CONNECTION = "broker/smq_broker/replication/connection.py"
SESSION = "broker/smq_broker/replication/replica_session.py"
LANE = "broker/smq_broker/replication/primary_lane.py"
FOLLOWED = "broker/smq_broker/replication/follower.py"
FOLLOWER_LANE = "broker/smq_broker/replication/follower_lane.py"
MESSAGES = "broker/smq_broker/rows/replication_messages.py"
TEST_LANES = "tests/unit/core/sessions/test_lanes.py"
TEST_CONNECTION = "tests/unit/broker/replication/test_replica_connection.py"
TEST_FOLLOWER_LANE = "tests/unit/broker/replication/test_follower_lane.py"
TEST_JOURNAL = "tests/unit/broker/journal/test_journal.py"
TEST_CLIENT_STREAM = "tests/unit/broker/producers/test_lane.py"

MUTATIONS = (
    # ---- the primary
    Mutation(
        "take_what_was_sent_for_acked",
        "The watermark follows the followers' answers only.",
        SESSION,
        "machine.follower_acked(self.incarnation, reply.end)",
        "machine.follower_acked(self.incarnation, machine.end)",
        (f"{TEST_CONNECTION}::test_what_comes_while_a_message_is_unanswered_goes_out_as_one_for_all_segments",),
    ),
    Mutation(
        "keep_the_first_credit_of_a_follower",
        "The credit is what the follower granted last.",
        SESSION,
        "                    machine.follower_granted(self.incarnation, reply.credit)\n",
        "",
        (f"{TEST_CONNECTION}::test_credit_is_what_the_follower_granted_last",),
    ),
    Mutation(
        "take_a_new_connection_for_an_answer",
        "A follower is unresponsive until it answers, also over a new connection.",
        LANES,
        "        self._broken_since = self._broken_since or self.unanswered_since or now\n",
        "        self._broken_since = None\n",
        (f"{TEST_LANES}::test_the_next_connection_has_other_numbers_and_is_no_answer",),
    ),
    Mutation(
        "forget_what_a_broken_stream_did_not_write",
        "A primary writes to its journal what the follower has, although nothing is sent again.",
        SESSION,
        "            behind = not message.entries and self._is_journal_behind\n",
        "            behind = False\n",
        (f"{TEST_JOURNAL}::test_a_stream_that_breaks_before_the_journal_is_written_leaves_no_gap[0]",),
    ),
    # ---- the primary's lanes
    Mutation(
        "send_before_the_follower_has_answered",
        "While a small frame is unanswered, what comes waits and goes out as one.",
        LANES,
        "        return small.sent_at + self._times.hold_seconds\n",
        "        return spaced_until\n",
        (f"{TEST_LANES}::test_a_small_frame_waits_for_the_answer_to_the_one_before_but_not_for_ever",),
    ),
    Mutation(
        "replicate_the_batches_of_each_client_alone",
        "Batches of several clients wait a little for each other, and share a frame to the follower.",
        LANES,
        "        spaced_until = small.sent_at + spacing\n",
        "        spaced_until = small.sent_at\n",
        (f"{TEST_LANES}::test_small_frames_are_spaced_although_the_last_one_is_answered",),
    ),
    Mutation(
        "send_the_watermark_alone_too",
        "A message with entries takes the watermark along, so that no other message has to.",
        LANES,
        "            self._updates.pop(number, None)\n        return taken\n",
        "        return taken\n",
        (f"{TEST_CONNECTION}::test_entries_take_the_watermark_along",),
    ),
    Mutation(
        "leave_small_batches_out_of_the_recovery",
        "A journal's record may have its messages as a small batch.",
        "broker/smq_broker/recovery/recovered_segment.py",
        "rows_of(header, batch) or ArrowBlock(self.wire.empty)",
        "ArrowBlock(batch or self.wire.empty)",
        (f"{TEST_JOURNAL}::test_small_batches_are_recovered",),
    ),
    Mutation(
        "take_small_batches_that_lack_a_part",
        "A small batch has one partition, timestamp and value for each message, and keys for all or none.",
        "broker/smq_broker/rows/small_batches.py",
        "len(message.keys) not in (0, rows)",
        "False",
        ("tests/unit/broker/rows/test_small_batches.py::test_a_message_that_lacks_a_part_is_refused",),
    ),
    Mutation(
        "take_small_batches_of_typed_topics",
        "A topic with a schema takes no small batches, which have keys and values.",
        "broker/smq_broker/rows/batches.py",
        "        if not self.takes_small_batches:\n",
        "        if False:\n",
        (f"{TEST_CLIENT_STREAM}::test_a_small_batch_for_a_topic_with_a_schema_ends_its_session_only",),
    ),
    Mutation(
        "count_idle_clients",
        "Clients that send nothing do not make others wait.",
        "broker/smq_broker/producers/producer_lane.py",
        "        self._activity.check(time.monotonic())\n",
        "",
        (f"{TEST_CLIENT_STREAM}::test_a_stream_counts_as_an_active_client_while_it_brings_batches",),
    ),
    Mutation(
        "send_the_batches_of_each_segment_alone",
        "Who appends to several segments at once sends them as one message.",
        "broker/smq_broker/producers/producer_lane.py",
        "            links += hosted.links_to_send_now()\n",
        "            for link in hosted.links_to_send_now():\n                link.send_now()\n",
        (f"{TEST_CLIENT_STREAM}::test_batches_of_several_segments_are_sent_when_all_are_appended",),
    ),
    Mutation(
        "use_the_same_numbers_on_the_next_connection",
        "A reply of a former connection cannot be taken for one of the next.",
        LANES,
        "self._updates, self._retries = {}, {}, {}, []\n",
        "self._updates, self._retries = {}, {}, {}, []\n        self._last_number = 0\n",
        (f"{TEST_LANES}::test_the_next_connection_has_other_numbers_and_is_no_answer",),
    ),
    Mutation(
        "let_one_segment_end_the_connection",
        "A segment that the follower has not opened holds up no other.",
        CONNECTION,
        "        except SmqError as error:\n            with self.lock:\n                if self.sessions.pop",
        "        except OSError as error:\n            with self.lock:\n                if self.sessions.pop",
        (f"{TEST_CONNECTION}::test_a_segment_that_the_follower_has_not_opened_holds_up_no_other",),
    ),
    Mutation(
        "hide_that_a_follower_is_fenced",
        "A primary learns that a follower is fenced, and the other segments go on.",
        CONNECTION,
        "            session.fenced()  #",
        "            pass  #",
        (f"{TEST_CONNECTION}::test_a_fenced_follower_is_reported_once_and_the_other_segment_goes_on",),
    ),
    Mutation(
        "keep_fenced_segments_on_the_connection",
        "A segment that is fenced leaves the connection, so that its follower knows that nothing more comes.",
        SESSION,
        "                return NoPart.UNWANTED\n",
        "                return NoPart.NOTHING\n",
        (f"{TEST_CONNECTION}::test_a_fenced_segment_leaves_the_stream",),
    ),
    Mutation(
        "never_confirm_the_credit_of_an_idle_segment",
        "Heartbeats confirm credits, so that the follower may free the rest.",
        LANE,
        "if (part := session.credit_part()) is not None]",
        "if False and (part := session.credit_part()) is not None]",
        (f"{TEST_CONNECTION}::test_a_heartbeat_confirms_the_credit_of_an_idle_segment",),
    ),
    Mutation(
        "outlive_the_thread_of_a_connection",
        "Segments whose connection's thread has died are fenced, so that the leader seals them.",
        CONNECTION,
        "            session.on_death()\n",
        "            pass\n",
        (f"{TEST_CONNECTION}::test_a_stream_whose_thread_dies_fences_its_segments",),
    ),
    Mutation(
        "let_a_small_batch_overtake_a_bulk_one",
        "A session's batches keep their order on two lanes: one waits while others are unanswered on the other lane.",
        LANES,
        "        if session.unanswered and session.lane != wanted:\n",
        "        if False:\n",
        (f"{TEST_LANES}::test_a_session_changes_its_lane_when_nothing_of_it_is_unanswered",),
    ),
    Mutation(
        "forget_who_waits_for_the_other_lane",
        "Who waits for another lane gets its turn there when nothing is unanswered any more.",
        LANES,
        "                self._make_ready(session.waits_for, number, now)\n",
        "",
        (f"{TEST_LANES}::test_a_session_changes_its_lane_when_nothing_of_it_is_unanswered",),
    ),
    Mutation(
        "send_large_batches_among_small_ones",
        "What is large goes on a bulk lane, so that it holds up nothing small.",
        SESSION,
        "            if not connection.begin(self, lane, bulk=bulk):\n",
        "            if not connection.begin(self, lane, bulk=False):\n",
        (f"{TEST_CONNECTION}::test_a_segment_with_much_to_send_uses_a_bulk_lane_and_holds_up_no_other",),
    ),
    Mutation(
        "keep_an_unused_bulk_lane",
        "A bulk lane that nobody uses is closed, although it has heartbeats.",
        LANES,
        "state.ready or any(state.frames) or now",
        "state.ready or state.frames or now",
        (f"{TEST_LANES}::test_an_unused_bulk_lane_is_closed_although_a_heartbeat_is_unanswered",),
    ),
    Mutation(
        "go_on_without_a_broken_bulk_lane",
        "If a lane breaks, the whole connection is opened again, and what was not answered is sent again.",
        LANE,
        "            if not self._stopped:\n                self._connection.fail(error)\n",
        "            if not self._stopped and self.number == SMALL:\n                self._connection.fail(error)\n",
        (f"{TEST_CONNECTION}::test_a_bulk_lane_that_breaks_ends_the_connection_and_nothing_is_lost",),
    ),
    Mutation(
        "give_up_replication_without_threads",
        "If the thread of a bulk lane cannot start, bulk goes on the small lane.",
        CONNECTION,
        "            self._no_bulk_until = time.monotonic() + RETRY_SECONDS\n            return SMALL\n",
        "            return lane.number\n",
        (f"{TEST_CONNECTION}::test_bulk_goes_on_the_small_lane_if_no_thread_can_be_started",),
    ),
    Mutation(
        "serve_a_bulk_lane_alone",
        "A bulk lane belongs to the sessions of its connection, which end with the small lane.",
        FOLLOWER_LANE,
        "        while sessions:\n            sessions.popitem()[1].close()\n",
        "",
        (f"{TEST_FOLLOWER_LANE}::test_a_segment_whose_primary_has_left_knows_it",),
    ),
    # ---- the follower
    Mutation(
        "replicate_for_a_former_primary",
        "A follower takes batches from its segment's primary only.",
        FOLLOWED,
        "if hosted.is_primary or primary_incarnation != primary.incarnation:",
        "if hosted.is_primary:",
        (f"{TEST_FOLLOWER_LANE}::test_nobody_but_the_primary_replicates",),
    ),
    Mutation(
        "believe_the_row_counts_of_entries",
        "The entries of a message have as many rows as its batch.",
        MESSAGES,
        "if sum(rows) != block.num_rows or not all(entry.rows for entry in header.entries):",
        "if not all(entry.rows for entry in header.entries):",
        (f"{TEST_FOLLOWER_LANE}::test_a_bad_part_ends_its_session_only",),
    ),
    Mutation(
        "count_a_primary_that_left_as_connected",
        "A follower knows that its primary has disconnected.",
        FOLLOWED,
        "            self.hosted.primary_stream_closed()\n",
        "            pass\n",
        (f"{TEST_FOLLOWER_LANE}::test_a_segment_whose_primary_has_left_knows_it",),
    ),
    Mutation(
        "answer_before_the_journal_is_written",
        "A follower's answer counts only what is in its journal.",
        FOLLOWED,
        "            end, behind = machine.durable_end, is_journal_behind(hosted)",
        "            end, behind = machine.end, False",
        (f"{TEST_JOURNAL}::test_nothing_is_acked_before_both_journals_have_it[1]",),
    ),
    Mutation(
        "end_all_sessions_with_one",
        "A bad part ends the session of its segment, and no other.",
        FOLLOWER_LANE,
        "            self._close(session)\n            answer",
        "            for other in list(self._sessions):\n                self._close(other)\n            answer",
        (f"{TEST_FOLLOWER_LANE}::test_a_bad_part_ends_its_session_only",),
    ),
    Mutation(
        "hide_which_idle_segments_were_fenced",
        "The primary of an idle segment learns from a heartbeat that it was fenced.",
        FOLLOWED,
        "            machine.replicate(NOTHING)\n",
        "",
        (f"{TEST_FOLLOWER_LANE}::test_the_primary_learns_from_a_heartbeat_which_segments_were_fenced",),
    ),
    Mutation(
        "never_announce_another_credit_of_an_idle_segment",
        "An idle segment gives back the credit that it does not need.",
        FOLLOWED,
        "            if credit == self._announced_credit:\n",
        "            if True:\n",
        (f"{TEST_FOLLOWER_LANE}::test_a_heartbeat_announces_another_credit",),
    ),
)
