"""Broken rules of the listener for Kafka clients."""

from __future__ import annotations

from ..mutation import Mutation

CONNECTION = "broker/smq_broker/kafka/transport/connection.py"
FRAMES = "broker/smq_broker/kafka/transport/frames.py"
MEMORY = "broker/smq_broker/kafka/transport/request_memory.py"
TEST_LISTENER = "tests/unit/broker/kafka/test_kafka_listener.py"
PRODUCE_REQUEST = "broker/smq_broker/kafka/protocol/produce_request.py"
API_VERSIONS = "broker/smq_broker/kafka/protocol/api_versions.py"
TEST_MESSAGES = "tests/unit/broker/kafka/test_kafka_messages.py"
HEADER = "broker/smq_broker/kafka/records/batch_header.py"
DECODING = "broker/smq_broker/kafka/records/decoding.py"
DECOMPRESSION = "broker/smq_broker/kafka/records/decompression.py"
TEST_RECORDS = "tests/unit/broker/kafka/test_record_batches.py"

APPEND = "broker/smq_broker/kafka/partitions/append.py"
TAIL_INDEX = "broker/smq_broker/kafka/partitions/tail_index.py"
TEST_APPEND = "tests/unit/broker/kafka/test_batch_append.py"
TEST_TAIL_INDEX = "tests/unit/broker/kafka/test_tail_index.py"

FETCH = "broker/smq_broker/kafka/apis/fetch.py"
LEADERS = "broker/smq_broker/kafka/apis/leaders.py"
PRIMARIES = "broker/smq_broker/kafka/partitions/primaries.py"
TAIL_READER = "broker/smq_broker/kafka/partitions/tail_reader.py"
TEST_FETCH = "tests/unit/broker/kafka/test_fetch.py"
SESSIONS = "broker/smq_broker/kafka/apis/fetch_sessions.py"
TEST_SESSIONS = "tests/unit/broker/kafka/test_fetch_sessions.py"

ROWS = "broker/smq_broker/kafka/partitions/rows.py"
TEST_INCOMING = "tests/unit/broker/kafka/test_incoming_batches.py"

JSON_ROWS = "broker/smq_broker/kafka/partitions/json_rows.py"
TEST_JSON_ROWS = "tests/unit/broker/kafka/test_json_rows.py"

MUTATIONS = (
    Mutation(
        "lose_the_key_of_a_typed_record",
        "A key that no column has is refused.",
        JSON_ROWS,
        "    _check_keys(keys, rows, topic.spec.key)\n",
        "",
        (f"{TEST_JSON_ROWS}::test_a_key_that_the_log_would_lose_is_refused",),
    ),
    Mutation(
        "lose_headers_in_the_value_of_a_typed_record",
        "Headers and times in the value are refused, because those of the record count.",
        JSON_ROWS,
        "if headers is not None or time is not None:",
        "if False:",
        (f"{TEST_JSON_ROWS}::test_what_is_no_row_is_refused_with_its_place_and_the_reason",),
    ),
    Mutation(
        "drop_keys_of_a_batch_that_has_some",
        "Messages of which some have no key keep the keys that they have.",
        ROWS,
        " or records.keys.count(None) not in (0, header.records)",
        "",
        (f"{TEST_INCOMING}::test_few_plain_messages_are_lists",),
    ),
    Mutation(
        "drop_headers_of_few_messages",
        "Messages with headers keep them, however few they are.",
        ROWS,
        "any(records.headers) or ",
        "",
        (f"{TEST_INCOMING}::test_the_rows_are_those_of_the_batch",),
    ),
    Mutation(
        "read_all_partitions_of_a_fetch_again",
        "A Fetch that waits reads the partitions that have changed.",
        SESSIONS,
        "and ((changed := progress[it.hosted]) is None or it.request.partition in changed)",
        "",
        (f"{TEST_FETCH}::test_a_fetch_that_waits_reads_only_what_has_changed",),
    ),
    Mutation(
        "read_partitions_again_that_have_nothing",
        "The request of a session reads nothing if nothing has changed.",
        SESSIONS,
        "        if it.is_at_end:\n            self.due.pop(it.key, None)",
        "        pass",
        (f"{TEST_SESSIONS}::test_a_request_without_changes_reads_nothing_and_gets_nothing",),
    ),
    Mutation(
        "send_the_same_partitions_of_a_session_first",
        "Partitions of a session take turns when a response is full.",
        SESSIONS,
        "                self.due.pop(it.key, None)\n                self.due[it.key] = it",
        "                self.due[it.key] = it",
        (f"{TEST_SESSIONS}::test_partitions_take_turns_when_a_response_is_full",),
    ),
    Mutation(
        "continue_the_session_of_another_client",
        "A fetch session belongs to the identity that began it.",
        SESSIONS,
        "if found is None or found.identity != identity:",
        "if found is None:",
        (f"{TEST_SESSIONS}::test_a_session_belongs_to_one_client_and_has_one_next_request",),
    ),
    Mutation(
        "keep_any_number_of_fetch_sessions",
        "The partitions of all fetch sessions together have a limit.",
        SESSIONS,
        "if self._partitions() + len(session.partitions) <= MAX_SESSION_PARTITIONS:",
        "if True:",
        (f"{TEST_SESSIONS}::test_sessions_have_a_limit_and_end_when_they_are_idle",),
    ),
    Mutation(
        "miss_that_a_segment_is_sealed_while_a_fetch_waits",
        "A Fetch that waits is answered when its segment is sealed.",
        TAIL_READER,
        "if machine.state is not ReplicaState.OPEN or since < machine.tail_start:",
        "if since < machine.tail_start:",
        (f"{TEST_FETCH}::test_a_fetch_that_waits_ends_when_its_segment_is_sealed",),
    ),
    Mutation(
        "read_the_next_topic_of_a_name_by_the_id_of_the_former_one",
        "A topic id is that of one topic, whatever the name of another one is.",
        LEADERS,
        "if id_ is not None and topic_id(hosted.topic.uid) != id_:",
        "if False:",
        (f"{TEST_FETCH}::test_a_fetch_of_a_former_topic_of_the_name_gets_nothing",),
    ),
    Mutation(
        "never_see_segments_that_are_opened_later",
        "The index of primaries follows the registry.",
        PRIMARIES,
        "if self._registry.version != self._version:\n            self._read_registry()\n        found",
        "if self._version == -1:\n            self._read_registry()\n        found",
        (f"{TEST_FETCH}::test_a_partition_is_found_in_its_newest_segment",),
    ),
    Mutation(
        "ack_kafka_batches_that_the_seal_left_out",
        "Of a batch without an ack the outcome of the segment decides.",
        APPEND,
        "if entry is None or entry.end > outcome.end:",
        "if entry is None:",
        (f"{TEST_APPEND}::test_the_outcome_of_a_sealed_segment_decides",),
    ),
    Mutation(
        "keep_appends_whose_client_has_left",
        "A segment forgets an append with its ack.",
        APPEND,
        "self._hosted.streams.discard(self)  # also if",
        "pass  # also if",
        (f"{TEST_APPEND}::test_an_append_whose_client_has_left_is_forgotten_with_its_ack",),
    ),
    Mutation(
        "deliver_kafka_messages_above_the_watermark",
        "A Kafka client gets only messages that are durable.",
        TAIL_INDEX,
        "            if entries[number].entry.end > watermark:\n                return\n",
        "",
        (f"{TEST_TAIL_INDEX}::test_messages_above_the_watermark_are_not_found",),
    ),
    Mutation(
        "miss_entries_that_left_the_memory_between_two_reads",
        "The offsets of a partition count entries that came and left the memory unseen.",
        TAIL_INDEX,
        "if self._end < machine.tail_start:",
        "if False:",
        (f"{TEST_TAIL_INDEX}::test_entries_that_came_and_left_between_two_updates_are_counted",),
    ),
    Mutation(
        "answer_kafka_requests_as_they_are_done",
        "Responses have the order of their requests.",
        CONNECTION,
        "        while self._places and (parts := self._places[0].parts) is not None:\n"
        "            self._places.popleft()\n"
        "            self._outbox.extend(packed(parts))\n",
        "        self._places.remove(place)\n        self._outbox.extend(packed(place.parts or ()))\n",
        (f"{TEST_LISTENER}::test_requests_are_handled_at_once_and_answered_in_their_order",),
    ),
    Mutation(
        "handle_any_number_of_kafka_requests",
        "A connection reads no more requests while its limit is handled.",
        CONNECTION,
        "            or self._handled >= limits.max_handled\n",
        "",
        (f"{TEST_LISTENER}::test_no_more_requests_than_the_limit_are_handled_at_once",),
    ),
    Mutation(
        "handle_requests_of_kafka_clients_that_read_nothing",
        "A connection starts no request while responses are unsent.",
        CONNECTION,
        "            or self._outbox\n            or not self._writable\n",
        "",
        (f"{TEST_LISTENER}::test_a_client_that_reads_nothing_gets_no_more_requests_handled",),
    ),
    Mutation(
        "keep_a_kafka_connection_without_an_answer",
        "A connection whose request gets no answer ends.",
        CONNECTION,
        '            self._end("failed_request", f"a request of API {request.api_key} failed", error=error)\n',
        "",
        (f"{TEST_LISTENER}::test_a_handler_that_fails_closes_its_connection_and_is_logged_once",),
    ),
    Mutation(
        "keep_memory_of_kafka_requests_that_end",
        "The memory of requests is free again when their connection ends.",
        CONNECTION,
        "        memory.release(self._reserved_bytes + sum(place.reserved_bytes for place in self._places))\n",
        "",
        (f"{TEST_LISTENER}::test_requests_of_a_connection_that_ends_are_cancelled",),
    ),
    Mutation(
        "receive_large_kafka_requests_without_memory",
        "Large requests of all connections together have a limit of memory.",
        CONNECTION,
        "if size > SMALL_BYTES and not self._reserved_bytes:",
        "if False:",
        (f"{TEST_LISTENER}::test_large_requests_wait_for_memory_and_small_ones_do_not",),
    ),
    Mutation(
        "give_memory_of_kafka_requests_out_of_turn",
        "A large request is not passed by for ever by smaller ones.",
        MEMORY,
        "if not self._waiting and self._fits(size):",
        "if self._fits(size):",
        (f"{TEST_LISTENER}::test_somebody_who_gives_up_lets_those_behind_pass",),
    ),
    Mutation(
        "receive_kafka_frames_of_any_size",
        "A frame that no request has closes its connection before it is received.",
        FRAMES,
        "if not HEADER_START.size <= size <= most:",
        "if False:",
        (f"{TEST_LISTENER}::test_bytes_that_are_no_request_close_the_connection[absurd]",),
    ),
    Mutation(
        "decode_large_kafka_requests",
        "Only Produce requests are large, because decoded ones take many times their size.",
        FRAMES,
        "if api_key != PRODUCE and size > self._limits.max_other_request_bytes:",
        "if False:",
        (f"{TEST_LISTENER}::test_bytes_that_are_no_request_close_the_connection[large]",),
    ),
    Mutation(
        "decode_any_number_of_kafka_partitions",
        "A Produce request has a limit of partitions.",
        PRODUCE_REQUEST,
        "if max(size, 1) > max_partitions:",
        "if False:",
        (f"{TEST_MESSAGES}::test_a_request_of_millions_of_tiny_partitions_is_refused",),
    ),
    Mutation(
        "advertise_produce_from_the_first_version_served",
        "Produce is advertised from version 0, or old versions of librdkafka compress nothing.",
        API_VERSIONS,
        "ADVERTISED_FROM = {PRODUCE: 0}",
        "ADVERTISED_FROM = {PRODUCE: 3}",
        (f"{TEST_MESSAGES}::test_api_versions_lists_the_table",),
    ),
    Mutation(
        "accept_kafka_records_that_have_changed",
        "A batch whose CRC does not match is refused.",
        HEADER,
        "if crc32c(data[CRC_END:]) != header.crc:",
        "if False:",
        (f"{TEST_RECORDS}::test_a_wrong_batch_is_refused",),
    ),
    Mutation(
        "accept_kafka_transactions",
        "Batches of transactions are refused.",
        HEADER,
        "if header.attributes & _TRANSACTIONAL:",
        "if False:",
        (f"{TEST_RECORDS}::test_a_wrong_batch_is_refused",),
    ),
    Mutation(
        "accept_kafka_batches_with_another_number_of_records",
        "The offsets of a batch are as many as its records.",
        HEADER,
        "if header.records < 1 or header.records != header.last_offset_delta + 1:",
        "if header.records < 1:",
        (f"{TEST_RECORDS}::test_a_wrong_batch_is_refused",),
    ),
    Mutation(
        "accept_kafka_records_with_gaps",
        "The records of a batch have consecutive offsets.",
        DECODING,
        "if record.offset != index:",
        "if False:",
        (f"{TEST_RECORDS}::test_a_wrong_record_is_refused_with_its_index",),
    ),
    Mutation(
        "accept_bytes_behind_kafka_records",
        "Nothing follows the records of a batch.",
        DECODING,
        "    _check_end(iterator, header.records)\n",
        "",
        (f"{TEST_RECORDS}::test_a_wrong_record_is_refused_with_its_index",),
    ),
    Mutation(
        "accept_kafka_records_of_any_time",
        "The times of records are those that topics accept.",
        DECODING,
        "    _check_times(timestamps, first)\n",
        "",
        (f"{TEST_RECORDS}::test_a_time_that_python_does_not_have_is_refused",),
    ),
    Mutation(
        "decompress_kafka_records_of_any_size",
        "Snappy says how much memory it takes, and is refused before it takes that.",
        DECOMPRESSION,
        "if cramjam.snappy.decompress_raw_len(data) > max_bytes:",
        "if False:",
        (f"{TEST_RECORDS}::test_data_is_decompressed_up_to_the_limit",),
    ),
    Mutation(
        "unzip_kafka_records_of_any_size",
        "Memory for records that are compressed with gzip is bounded.",
        DECOMPRESSION,
        "member.decompress(data, max_bytes + 1)",
        "member.decompress(data)",
        (f"{TEST_RECORDS}::test_a_bomb_takes_no_more_memory_than_the_limit[gzip]",),
    ),
)
