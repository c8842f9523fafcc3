"""Broken rules of replication: the primary's streams to its followers, and what followers answer."""

from __future__ import annotations

from ..mutation import Mutation

STREAM = "broker/smq_broker/replication/stream.py"
STATE = "broker/smq_broker/replication/link_state.py"
OWN = "broker/smq_broker/replication/own_stream.py"
SHARED = "broker/smq_broker/replication/shared_stream.py"
LINK = "broker/smq_broker/replication/shared_link.py"
FOLLOWED = "broker/smq_broker/replication/follower.py"
SHARED_FOLLOWER = "broker/smq_broker/replication/shared_follower.py"
MESSAGES = "broker/smq_broker/rows/replication_messages.py"
TEST_OWN = "tests/unit/broker/replication/test_own_replication_stream.py"
TEST_SHARED = "tests/unit/broker/replication/test_shared_replication_stream.py"
TEST_FOLLOWED = "tests/unit/broker/replication/test_followed_segment.py"
TEST_SHARED_FOLLOWER = "tests/unit/broker/replication/test_shared_follower.py"
TEST_JOURNAL = "tests/unit/broker/journal/test_journal.py"
TEST_CLIENT_STREAM = "tests/unit/broker/streams/test_shared_stream.py"

MUTATIONS = (
    Mutation(
        "count_messages_and_replies_at_once",
        "A reply that comes while a message is counted does not hide that the message is unanswered.",
        "broker/smq_broker/replication/stream.py",
        "        with self._counting:\n            if self._sent == self._answered:\n",
        "        if True:\n            if self._sent == self._answered:\n",
        (
            "tests/unit/broker/replication/test_replication_stream.py::"
            "test_a_reply_while_a_message_is_counted_does_not_hide_that_it_is_unanswered",
        ),
    ),
    # ---- the primary
    Mutation(
        "take_what_was_sent_for_acked",
        "The watermark follows the followers' answers only.",
        STATE,
        "machine.follower_acked(self.incarnation, reply.end)",
        "machine.follower_acked(self.incarnation, machine.end)",
        (f"{TEST_OWN}::test_the_watermark_follows_the_followers_answers_only",),
    ),
    Mutation(
        "keep_the_first_credit_of_a_follower",
        "The credit is what the follower granted last.",
        STATE,
        "                    machine.follower_granted(self.incarnation, reply.credit)\n",
        "",
        (f"{TEST_OWN}::test_credit_is_what_the_follower_granted_last",),
    ),
    Mutation(
        "hide_that_a_follower_is_fenced",
        "A primary learns that a follower is fenced, and fences itself.",
        OWN,
        "                self._on_fenced(self._hosted)\n",
        "                pass\n",
        (f"{TEST_OWN}::test_a_fenced_follower_is_reported_once_and_ends_the_link",),
    ),
    Mutation(
        "take_a_new_connection_for_an_answer",
        "A follower is unresponsive until it answers, also over a new connection.",
        STREAM,
        "self._unanswered_since = self._unanswered_since or time.monotonic()\n        client",
        "self._unanswered_since = None\n        client",
        (
            f"{TEST_OWN}::test_a_follower_that_does_not_answer_is_unresponsive_until_it_does",
            f"{TEST_SHARED}::test_a_follower_that_does_not_answer_is_unresponsive_for_all_segments",
        ),
    ),
    Mutation(
        "replicate_each_small_batch_alone",
        "Small batches that come while a message is unanswered are replicated as one message.",
        OWN,
        "return self._sent_at + MAX_HOLD_SECONDS - now",
        "return 0.0",
        (f"{TEST_OWN}::test_small_batches_wait_for_the_answer_and_go_out_as_one_message",),
    ),
    Mutation(
        "forget_what_cannot_be_sent_at_once",
        "What the thread that appended it cannot send after all is sent by the thread of the link.",
        OWN,
        "                    if self._send_next():\n                        return\n",
        "                    self._send_next()\n                    return\n",
        (f"{TEST_OWN}::test_what_cannot_be_sent_at_once_after_all_is_sent_by_the_link",),
    ),
    Mutation(
        "hold_large_batches",
        "Many bytes are replicated at once, even if a message is unanswered.",
        "core/smq_core/replica/segment_replica.py",
        "                if size > max_bytes:\n                    return True\n",
        "",
        (f"{TEST_OWN}::test_many_bytes_do_not_wait_for_the_answer",),
    ),
    Mutation(
        "forget_what_a_broken_stream_did_not_write",
        "A primary writes to its journal what the follower has, although nothing is sent again.",
        LINK,
        "            behind = not message.entries and state.is_journal_behind\n",
        "            behind = False\n",
        (f"{TEST_JOURNAL}::test_a_stream_that_breaks_before_the_journal_is_written_leaves_no_gap[0]",),
    ),
    # ---- the primary's shared streams
    Mutation(
        "send_before_the_follower_has_answered",
        "While a message of a shared stream is unanswered, what comes waits and goes out as one.",
        SHARED,
        "        return self._sent_at + MAX_HOLD_SECONDS\n",
        "        return spaced_until\n",
        (f"{TEST_SHARED}::test_what_comes_while_a_message_is_unanswered_goes_out_as_one_for_all_segments",),
    ),
    Mutation(
        "replicate_the_batches_of_each_client_alone",
        "Batches of several clients wait a little for each other, and share a message to the follower.",
        SHARED,
        "        return self._sent_at + self._clients.spacing_seconds\n",
        "        return self._sent_at\n",
        (f"{TEST_SHARED}::test_batches_of_several_clients_wait_for_each_other",),
    ),
    Mutation(
        "send_the_watermark_alone_too",
        "A message with entries takes the watermark along, so that no other message has to.",
        SHARED,
        "                self._progress.pop(link, None)\n        return links\n",
        "                pass\n        return links\n",
        (f"{TEST_SHARED}::test_entries_take_the_watermark_along",),
    ),
    Mutation(
        "leave_small_batches_out_of_the_recovery",
        "A journal's record may have its messages as a small batch.",
        "broker/smq_broker/recovery/recovered_segment.py",
        "self.wire.accept_small(read_small_batch(header.small_batch))",
        "self.wire.empty",
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
        "broker/smq_broker/streams/shared_stream.py",
        "        self._activity.check(time.monotonic())\n",
        "",
        (f"{TEST_CLIENT_STREAM}::test_a_stream_counts_as_an_active_client_while_it_brings_batches",),
    ),
    Mutation(
        "send_the_batches_of_each_segment_alone",
        "Who appends to several segments at once sends them as one message.",
        "broker/smq_broker/streams/shared_stream.py",
        "                links += hosted.links_to_send_now()\n",
        "                for link in hosted.links_to_send_now():\n                    link.send_now()\n",
        (f"{TEST_CLIENT_STREAM}::test_batches_of_several_segments_are_sent_when_all_are_appended",),
    ),
    Mutation(
        "use_the_same_number_on_the_next_stream",
        "A reply of a former stream cannot be taken for one of the next.",
        SHARED,
        "        number = next(self._numbers)\n",
        "        number = link.number or next(self._numbers)\n",
        (f"{TEST_SHARED}::test_what_was_not_answered_is_sent_again_over_the_next_stream",),
    ),
    Mutation(
        "let_one_segment_end_the_shared_stream",
        "A segment that the follower has not opened holds up no other.",
        SHARED,
        "            pause = link.fail(error)\n",
        "            raise\n            pause = link.fail(error)\n",
        (f"{TEST_SHARED}::test_a_segment_that_the_follower_has_not_opened_holds_up_no_other",),
    ),
    Mutation(
        "hide_that_a_follower_is_fenced_on_a_shared_stream",
        "A primary learns that a follower is fenced, and the other segments go on.",
        SHARED,
        "            link.on_fenced()  #",
        "            pass  #",
        (f"{TEST_SHARED}::test_a_fenced_follower_is_reported_once_and_the_other_segment_goes_on",),
    ),
    Mutation(
        "keep_fenced_segments_on_the_shared_stream",
        "A segment that is fenced leaves the stream, so that its follower knows that nothing more comes.",
        LINK,
        "                return NoPart.UNWANTED\n",
        "                return NoPart.NOTHING\n",
        (f"{TEST_SHARED}::test_a_fenced_segment_leaves_the_stream",),
    ),
    Mutation(
        "send_large_messages_among_small_ones",
        "A segment with much to send gets a stream of its own.",
        LINK,
        "            if state.needs_own_stream and time.monotonic() >= self._shares_until:\n",
        "            if False:\n",
        (f"{TEST_SHARED}::test_a_segment_with_much_to_send_gets_a_stream_of_its_own_until_it_is_quiet",),
    ),
    Mutation(
        "keep_its_own_stream_for_ever",
        "A segment that sends small messages only shares a stream again.",
        OWN,
        "                if heartbeat is not None and self._may_end():\n                    return\n",
        "",
        (f"{TEST_SHARED}::test_a_segment_with_much_to_send_gets_a_stream_of_its_own_until_it_is_quiet",),
    ),
    Mutation(
        "never_confirm_the_credit_of_an_idle_segment",
        "Heartbeats confirm credits, so that the follower may free the rest.",
        SHARED,
        "if (part := link.credit_part()) is not None]",
        "if False and (part := link.credit_part()) is not None]",
        (f"{TEST_SHARED}::test_a_heartbeat_confirms_the_credit_of_an_idle_segment",),
    ),
    Mutation(
        "outlive_the_thread_of_a_shared_stream",
        "Segments whose stream's thread has died are fenced, so that the leader seals them.",
        SHARED,
        "            link.on_death()\n",
        "            pass\n",
        (f"{TEST_SHARED}::test_a_stream_whose_thread_dies_fences_its_segments",),
    ),
    # ---- the follower
    Mutation(
        "replicate_for_a_former_primary",
        "A follower takes batches from its segment's primary only.",
        FOLLOWED,
        "if hosted.is_primary or primary_incarnation != primary.incarnation:",
        "if hosted.is_primary:",
        (
            f"{TEST_FOLLOWED}::test_nobody_but_the_primary_replicates",
            f"{TEST_SHARED_FOLLOWER}::test_nobody_but_the_primary_replicates",
        ),
    ),
    Mutation(
        "believe_the_row_counts_of_entries",
        "The entries of a message have as many rows as its batch.",
        MESSAGES,
        "if sum(rows) != batch.num_rows or not all(entry.rows for entry in header.entries):",
        "if not all(entry.rows for entry in header.entries):",
        (f"{TEST_FOLLOWED}::test_entries_that_do_not_have_the_rows_of_their_batch_are_refused",),
    ),
    Mutation(
        "count_a_primary_that_left_as_connected",
        "A follower knows that its primary has disconnected.",
        FOLLOWED,
        "            self.hosted.primary_stream_closed()\n",
        "            pass\n",
        (
            f"{TEST_FOLLOWED}::test_each_batch_is_answered_with_the_end_and_the_credit",
            f"{TEST_SHARED_FOLLOWER}::test_a_segment_whose_primary_has_left_knows_it",
        ),
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
        "end_all_links_with_one",
        "A bad part ends the link of its segment, and no other.",
        SHARED_FOLLOWER,
        "            self._close(link)\n            answer",
        "            for other in list(self._followed):\n                self._close(other)\n            answer",
        (f"{TEST_SHARED_FOLLOWER}::test_a_bad_part_ends_its_link_only",),
    ),
    Mutation(
        "hide_which_idle_segments_were_fenced",
        "The primary of an idle segment learns from a heartbeat that it was fenced.",
        FOLLOWED,
        "            machine.replicate(NOTHING)\n",
        "",
        (f"{TEST_SHARED_FOLLOWER}::test_the_primary_learns_from_a_heartbeat_which_segments_were_fenced",),
    ),
    Mutation(
        "never_announce_another_credit_of_an_idle_segment",
        "An idle segment gives back the credit that it does not need.",
        FOLLOWED,
        "            if credit == self._announced_credit:\n",
        "            if True:\n",
        (f"{TEST_SHARED_FOLLOWER}::test_a_heartbeat_announces_another_credit",),
    ),
)
