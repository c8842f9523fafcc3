"""Broken rules of the listener for Kafka clients whose loss would let somebody in, or let it do too much."""

from __future__ import annotations

from ..mutation import Mutation

KAFKA = "broker/smq_broker/kafka"
TESTS = "tests/unit/broker/kafka/security"
CONNECTIONS, LOGIN = f"{KAFKA}/security/connection_access.py", f"{KAFKA}/security/login.py"
RIGHTS, IDENTITIES = f"{KAFKA}/security/caller_rights.py", f"{KAFKA}/security/identities.py"
MECHANISMS = f"{KAFKA}/security/mechanisms.py"
TEST_LOGIN, TEST_RIGHTS = f"{TESTS}/test_login.py", f"{TESTS}/test_rights.py"
TEST_APIS = f"{TESTS}/test_every_api_checks.py"
REFUSED = f"{TEST_APIS}::test_without_a_right_a_request_is_refused_in_every_version"
LISTED = f"{TEST_APIS}::test_lists_have_nothing_that_the_client_may_not_use"

MUTATIONS = (
    Mutation(
        "serve_kafka_clients_before_their_login",
        "Before its login a client may do nothing but log in.",
        CONNECTIONS,
        "if call.before_login:",
        "if call.before_login or connection.session is None:",
        (f"{TEST_LOGIN}::test_before_a_login_there_is_only_what_leads_to_one",),
    ),
    Mutation(
        "serve_kafka_apis_without_a_rule",
        "An API without a rule is used by nobody.",
        CONNECTIONS,
        "call = KAFKA_CALLS.get(api_key)",
        "call = KAFKA_CALLS.get(api_key, KafkaCall())",
        (f"{TEST_LOGIN}::test_an_api_without_a_rule_is_used_by_nobody",),
    ),
    Mutation(
        "serve_kafka_sessions_after_their_token",
        "A session ends with its token.",
        CONNECTIONS,
        "if now > session.ends_at:",
        "if False:",
        (f"{TEST_LOGIN}::test_a_session_ends_with_its_token_unless_the_client_logs_in_again",),
    ),
    Mutation(
        "take_long_kafka_requests_of_strangers",
        "A stranger sends short requests only.",
        CONNECTIONS,
        "return MAX_FRAME_BYTES_BEFORE_LOGIN if connection.session is None else None",
        "return None",
        (f"{TEST_LOGIN}::test_strangers_send_short_requests_and_have_little_time",),
    ),
    Mutation(
        "let_kafka_clients_change_who_they_are",
        "Who logs in again on a connection stays who it is.",
        LOGIN,
        "if former is not None and former.identity != session.identity:",
        "if False:",
        (f"{TEST_LOGIN}::test_who_logs_in_again_stays_who_it_is_and_keeps_to_its_mechanism",),
    ),
    Mutation(
        "believe_the_user_name_of_plain",
        "The user name of PLAIN is that of the token.",
        LOGIN,
        "if given.user and given.user != found.name:",
        "if False:",
        (f"{TEST_LOGIN}::test_whoever_has_no_such_token_is_refused_and_recorded_and_the_connection_ends",),
    ),
    Mutation(
        "keep_what_kafka_tokens_are_for_ever",
        "The answer of a leader about a token counts for a minute.",
        IDENTITIES,
        "if known is None or not 0 <= self._clock() - at < KEPT_SECONDS:",
        "if known is None:",
        (f"{TEST_LOGIN}::test_a_token_is_looked_up_once_in_a_minute",),
    ),
    Mutation(
        "let_expired_kafka_tokens_in",
        "A token that has expired lets nobody in.",
        IDENTITIES,
        "if not known.name or (known.expires_at and known.expires_at <= self._clock()):",
        "if not known.name:",
        (f"{TEST_LOGIN}::test_a_token_that_has_expired_lets_nobody_in_whatever_is_kept",),
    ),
    Mutation(
        "act_for_others_by_oauthbearer",
        "Nobody acts for others.",
        MECHANISMS,
        'if header != "n,,":',
        "if False:",
        (f"{TEST_LOGIN}::test_what_is_no_message_of_oauthbearer",),
    ),
    Mutation(
        "keep_rights_of_kafka_clients_for_ever",
        "A right that was taken away ends when it is requested again.",
        RIGHTS,
        "self._request_ahead(session, key, lambda: self._fetch_grants(session, topic))",
        "pass",
        (f"{TEST_RIGHTS}::test_a_right_that_was_taken_away_ends_when_it_is_requested_again",),
    ),
    Mutation(
        "go_on_with_a_kafka_token_that_the_leader_refuses",
        "A token that counts no more ends its session.",
        RIGHTS,
        "session.ended_because = f",
        "_ = f",
        (f"{TEST_RIGHTS}::test_a_token_that_counts_no_more_ends_the_session_when_a_right_is_requested_again",),
    ),
    Mutation(
        "let_kafka_groups_be_used_by_a_right_elsewhere",
        "A group needs the right in all namespaces of its topics.",
        CONNECTIONS,
        "for namespace in namespaces:",
        "for namespace in namespaces[-1:]:",
        (f"{TEST_RIGHTS}::test_a_group_is_used_by_whoever_may_use_it_in_the_namespaces_of_its_topics",),
    ),
    Mutation(
        "keep_streams_of_kafka_connections_that_ended",
        "A connection that has ended uses no stream of the quota.",
        CONNECTIONS,
        "stream.close()",
        "pass",
        (f"{TEST_RIGHTS}::test_a_connection_has_one_stream_of_the_quota_for_each_right_to_a_topic",),
    ),
    Mutation(
        "write_to_kafka_topics_without_a_right",
        "Produce needs the right to the topic.",
        f"{KAFKA}/apis/produce.py",
        "denied = await admission.admit(name)",
        "denied = ErrorCode.none",
        (REFUSED,),
    ),
    Mutation(
        "read_kafka_topics_without_a_right",
        "Fetch needs the right to the topic.",
        f"{KAFKA}/apis/fetch.py",
        "session.set_denied(topic, await admission.admit(topic.name))",
        "session.set_denied(topic, ErrorCode.none)",
        (REFUSED, f"{TESTS}/test_fetch_session_rights.py"),
    ),
    Mutation(
        "list_all_topics_to_kafka_clients",
        "Metadata lists the topics that the client may see.",
        f"{KAFKA}/apis/metadata.py",
        "for it in found if it.topic.name in visible]",
        "for it in found]",
        (LISTED,),
    ),
    Mutation(
        "use_kafka_groups_without_a_right",
        "Members need the right to their group.",
        f"{KAFKA}/groups/group_access.py",
        "if denied.value:",
        "if False:",
        (REFUSED,),
    ),
    Mutation(
        "commit_offsets_of_kafka_topics_without_a_right",
        "An offset is shown to who may read the topic.",
        f"{KAFKA}/groups/group_offsets.py",
        "return {name: GroupError(it.value) for name, it in codes.items() if it is not ErrorCode.none}",
        "return {}",
        (f"{TEST_APIS}::test_offsets_need_a_right_to_the_topic_too",),
    ),
    Mutation(
        "take_kafka_logins_in_clear_text",
        "Nobody logs in in clear text.",
        f"{KAFKA}/security/clear_connections.py",
        "if api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):",
        "if False:",
        (f"{TESTS}/test_tls.py::test_nobody_logs_in_in_clear_text",),
    ),
    Mutation(
        "record_no_kafka_connections_in_clear_text",
        "Each connection in clear text is counted, so that one sees when all have moved.",
        f"{KAFKA}/security/clear_connections.py",
        "self._anonymous.record(connection.peer, CALL)",
        "pass",
        (
            f"{TESTS}/test_tls.py"
            "::test_a_permissive_listener_serves_both_at_one_port_and_tls_once_there_is_a_certificate",
        ),
    ),
    Mutation(
        "wait_for_ever_for_the_first_byte_of_kafka_clients",
        "Who says nothing is let go.",
        f"{KAFKA}/transport/either_server.py",
        "async with asyncio.timeout(FIRST_BYTE_SECONDS):",
        "async with asyncio.timeout(None):",
        (f"{TESTS}/test_tls.py::test_who_says_nothing_or_no_tls_after_all_is_let_go",),
    ),
    Mutation(
        "certify_brokers_as_the_leader",
        "No certificate of a broker has the name of another process of the release.",
        "core/smq_core/access/server_hosts.py",
        'if name == INTERNAL_DOMAIN or name.endswith(f".{INTERNAL_DOMAIN}"):',
        "if False:",
        ("tests/unit/core/access/test_server_hosts.py",),
    ),
)
