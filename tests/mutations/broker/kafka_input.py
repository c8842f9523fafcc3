"""Broken rules about what clients of Kafka may cost the broker, and the lag that the leader shows of their groups."""

from __future__ import annotations

from ..mutation import Mutation

PRODUCE = "broker/smq_broker/kafka/apis/produce.py"
FETCH = "broker/smq_broker/kafka/apis/fetch.py"
METADATA = "broker/smq_broker/kafka/apis/metadata.py"
DECODING = "broker/smq_broker/kafka/records/decoding.py"
SUBSCRIPTIONS = "broker/smq_broker/kafka/groups/subscriptions.py"
LAG = "core/smq_core/kafka_groups/lag.py"
SAMPLES = "operator/smq_operator/groups/kafka_lag_samples.py"
TEST_FETCH = "tests/unit/broker/kafka/test_fetch.py"
TEST_APIS = "tests/unit/broker/kafka/test_kafka_apis.py"
TEST_RECORDS = "tests/unit/broker/kafka/test_record_batches.py"
TEST_HOSTILE = "tests/unit/broker/kafka/test_hostile_batches.py"
TEST_SUBSCRIPTIONS = "tests/unit/broker/kafka/test_subscriptions.py"
SESSIONS = "broker/smq_broker/kafka/apis/fetch_sessions.py"
TOPICS = "broker/smq_broker/kafka/topics.py"
TEST_MESSAGES = "tests/unit/broker/kafka/test_kafka_messages.py"
TEST_LISTENER = "tests/unit/broker/kafka/test_kafka_listener.py"
TEST_SESSIONS = "tests/unit/broker/kafka/test_fetch_sessions.py"
TEST_TOPICS = "tests/unit/broker/kafka/test_kafka_topics.py"
TEST_LAG = "tests/unit/core/kafka_groups/test_lag.py"
TEST_SAMPLES = "tests/unit/operator/groups/test_kafka_lag_samples.py"

MUTATIONS = (
    Mutation(
        "decompress_bombs_of_kafka_records_in_the_loop",
        "A small batch that becomes large is decoded in another thread.",
        PRODUCE,
        "return decode(min(DECOMPRESSED_RATIO * limit, self._max_batch))",
        "return decode(self._max_batch)",
        (f"{TEST_HOSTILE}::test_what_becomes_large_is_decoded_in_another_thread",),
    ),
    Mutation(
        "follow_names_of_negative_length",
        "A subscription with a name of negative length is none.",
        SUBSCRIPTIONS,
        "if not 0 <= length <= len(metadata) - at:",
        "if length > len(metadata) - at:",
        (f"{TEST_SUBSCRIPTIONS}::test_what_is_no_subscription_has_no_topics_and_costs_nothing",),
    ),
    Mutation(
        "say_that_topics_with_impossible_names_are_unknown",
        "A client learns at once that a name is none.",
        METADATA,
        "if name is not None and not is_kafka_name(name):",
        "if False:",
        (f"{TEST_APIS}::test_impossible_names_are_refused",),
    ),
    Mutation(
        "refuse_times_as_other_records",
        "A timestamp that is refused has the code of timestamps.",
        DECODING,
        "raise InvalidTimestamp(",
        "raise InvalidRecord(",
        (f"{TEST_RECORDS}::test_a_time_that_python_does_not_have_is_refused",),
    ),
    Mutation(
        "encode_what_was_encoded_again",
        "A Fetch that waits for many bytes encodes each message once.",
        FETCH,
        "        if hosted is not wanted.hosted:\n            wanted.begin_anew()",
        "        wanted.begin_anew()",
        (f"{TEST_FETCH}::test_a_fetch_that_waits_for_many_bytes_encodes_each_message_once",),
    ),
    Mutation(
        "reserve_only_the_bytes_of_a_request",
        "The memory of large requests is that of what they are decoded to.",
        "broker/smq_broker/kafka/transport/frames.py",
        "return size if api_key == PRODUCE else size * DECODED_BYTES_PER_BYTE",
        "return size",
        (f"{TEST_LISTENER}::test_requests_reserve_memory_for_what_they_are_decoded_to",),
    ),
    Mutation(
        "end_new_epochs_where_old_ones_ended",
        "The end of an epoch is that of its own segment, however new that is.",
        "storage/smq_storage/partitions/history.py",
        "if known is not None and not any(it.entry.number >= epoch for it in known.segments):",
        "if False:",
        (
            "tests/unit/storage/partitions/test_partition_reader.py"
            "::test_an_epoch_that_is_newer_than_what_is_known_does_not_end_where_an_older_one_did",
        ),
    ),
    Mutation(
        "take_null_for_any_array",
        "A request with null in place of an array that has to be there is malformed.",
        "broker/smq_broker/kafka/protocol/entities.py",
        "            if not may_be_null:",
        "            if False:",
        (f"{TEST_MESSAGES}::test_null_in_place_of_an_array_is_refused",),
    ),
    Mutation(
        "look_for_ids_of_zeros_by_name",
        "Nobody has an id of zeros.",
        FETCH,
        'return (topic.topic_id or UNKNOWN_ID) if hasattr(topic, "topic_id") else topic.topic',
        'return topic.topic_id if getattr(topic, "topic_id", None) else topic.topic',
        (f"{TEST_FETCH}::test_nobody_has_an_id_of_zeros",),
    ),
    Mutation(
        "give_each_connection_a_buffer",
        "Connections in TLS receive into one buffer.",
        "broker/smq_broker/kafka/transport/connection.py",
        "        share_buffer(transport)\n",
        "",
        ("tests/unit/broker/kafka/security/test_tls.py::test_connections_receive_into_one_buffer",),
    ),
    Mutation(
        "let_fetch_sessions_grow",
        "A fetch session that has grown too large ends.",
        SESSIONS,
        "if session.id != NO_SESSION and self._partitions() > MAX_SESSION_PARTITIONS:",
        "if False:",
        (f"{TEST_SESSIONS}::test_a_session_that_grows_too_large_ends",),
    ),
    Mutation(
        "keep_topics_that_nobody_fetches",
        "A topic goes with its last partition.",
        SESSIONS,
        "            del self.topics[topic]",
        "            pass",
        (f"{TEST_SESSIONS}::test_a_topic_goes_with_its_last_partition",),
    ),
    Mutation(
        "keep_topics_without_partitions",
        "Topics without partitions take no memory of a session.",
        FETCH,
        "            if not topic.partitions:",
        "            if False:",
        (f"{TEST_SESSIONS}::test_topics_without_partitions_take_no_memory",),
    ),
    Mutation(
        "look_for_each_unknown_id_alone",
        "Ids that nobody has share one search through all topics.",
        TOPICS,
        "if name is None and is_due:",
        "if name is None:",
        (f"{TEST_TOPICS}::test_ids_that_nobody_has_share_one_search",),
    ),
    Mutation(
        "read_each_of_thousands_of_topics",
        "A list says which of thousands of topics there are not.",
        METADATA,
        "if len(wanted) > TOPICS_AT_ONCE:",
        "if False:",
        (f"{TEST_APIS}::test_thousands_of_topics_are_answered_in_their_order",),
    ),
    Mutation(
        "count_no_messages_in_memory",
        "The lag of a Kafka group counts messages that are in no file yet.",
        LAG,
        "+ of_segment.messages)",
        ")",
        (f"{TEST_LAG}::test_unwritten_messages_count_for_a_group_that_reads_all_partitions_of_their_segment",),
    ),
    Mutation(
        "count_messages_of_partitions_that_nobody_reads",
        "Messages in memory count for a group that reads all partitions of their segment.",
        LAG,
        "if own and all(at in behind for at in filled):",
        "if own:",
        (f"{TEST_LAG}::test_unwritten_messages_count_for_a_group_that_reads_all_partitions_of_their_segment",),
    ),
    Mutation(
        "subtract_what_a_kafka_group_has_read_beyond_files",
        "What a group is ahead in one partition hides nothing of another.",
        LAG,
        "return unread + sum(max(0, it) for it in behind.values())",
        "return unread + sum(behind.values())",
        (f"{TEST_LAG}::test_messages_in_files_count_for_partitions_with_a_committed_offset",),
    ),
    Mutation(
        "read_topics_without_kafka_groups",
        "Topics without groups of Kafka clients cost the leader no reads.",
        SAMPLES,
        "await self._report(managed, topic, mine) if mine else []",
        "await self._report(managed, topic, mine)",
        (f"{TEST_SAMPLES}::test_topics_without_such_groups_are_not_read",),
    ),
    Mutation(
        "show_all_kafka_groups",
        "Metrics show a bounded number of groups of each topic.",
        SAMPLES,
        "[:MAX_REPORTED_GROUPS]",
        "",
        (f"{TEST_SAMPLES}::test_only_groups_that_were_active_last_are_shown",),
    ),
)
