"""Broken rules of the proxy for Kafka clients."""

from __future__ import annotations

from ..mutation import Mutation

FOLDER = "broker/smq_broker/kafka/proxy"
TESTS = "tests/unit/broker/kafka/proxy"
LOGINS = f"{TESTS}/test_upstreams.py"
PROXY, ROUTES = f"{TESTS}/test_kafka_proxy.py", f"{TESTS}/test_routes_and_splits.py"
FETCH = "broker/smq_broker/kafka/apis/fetch.py"
TEST_FETCH = "tests/unit/broker/kafka/test_fetch.py"

MUTATIONS = (
    Mutation(
        "wait_on_while_the_next_fetch_comes",
        "A Fetch waits no longer when the next one of its connection has come.",
        "broker/smq_broker/kafka/protocol/messages.py",
        "        self.fetch_wait.end()\n",
        "",
        (
            f"{TEST_FETCH}::test_the_next_fetch_of_a_connection_ends_the_wait_of_the_one_before",
            f"{PROXY}::test_a_fetch_waits_at_all_brokers_at_once_and_ends_with_the_first_messages",
        ),
    ),
    Mutation(
        "let_brokers_wait_that_have_nothing",
        "The first messages end the wait of all brokers.",
        f"{FOLDER}/apis/fetch_api.py",
        "                it.end_wait()\n",
        "                pass\n",
        (f"{PROXY}::test_a_fetch_waits_at_all_brokers_at_once_and_ends_with_the_first_messages",),
    ),
    Mutation(
        "send_more_than_the_client_wants",
        "A Fetch response has no more records than the client wants, but for the first ones.",
        f"{FOLDER}/apis/fetch_api.py",
        "            if size and used and used + size > max_bytes:",
        "            if False:",
        (f"{ROUTES}::test_records_that_do_not_fit_are_fetched_later_but_for_the_first",),
    ),
    Mutation(
        "produce_out_of_order",
        "Produce requests of a connection reach a broker in their order.",
        f"{FOLDER}/apis/partition_apis.py",
        "async with context.connection.produce_turn:",
        "async with asyncio.Lock():",
        (f"{PROXY}::test_a_request_that_has_to_look_for_a_leader_is_not_overtaken",),
    ),
    Mutation(
        "keep_a_leader_that_refuses",
        "A broker that does not lead a partition is forgotten.",
        f"{FOLDER}/apis/partition_apis.py",
        "        client.routes.forget_leader(topic, partition, node)",
        "        pass",
        (f"{PROXY}::test_a_partition_that_moves_has_an_error_once",),
    ),
    Mutation(
        "keep_a_coordinator_that_refuses",
        "A broker that does not coordinate a group is forgotten.",
        f"{FOLDER}/apis/group_apis.py",
        "            client.routes.forget_coordinator(group, node)\n        return EncodedBody",
        "            pass\n        return EncodedBody",
        (f"{PROXY}::test_the_coordinator_of_a_group_gets_what_is_about_it",),
    ),
    Mutation(
        "forget_what_was_learned_meanwhile",
        "A late refusal forgets only the broker that refused.",
        f"{FOLDER}/brokers/routes.py",
        "        if node is not None and leaders.get(partition) == node:\n            del leaders[partition]",
        "        leaders.pop(partition, None)",
        (f"{ROUTES}::test_a_late_rejection_does_not_forget_what_was_learned_meanwhile",),
    ),
    Mutation(
        "wait_for_a_broker_for_ever",
        "A broker that does not answer costs an error, and no client hangs.",
        f"{FOLDER}/brokers/client_upstreams.py",
        "        async with asyncio.timeout(wait_seconds + ANSWER_SECONDS):",
        "        async with asyncio.timeout(None):",
        (f"{PROXY}::test_a_broker_that_hangs_may_have_written_what_it_got",),
    ),
    Mutation(
        "say_that_nothing_was_written",
        "A batch that was sent may have been written, though no broker says so.",
        f"{FOLDER}/apis/partition_apis.py",
        "ErrorCode.request_timed_out if lost.was_sent else ErrorCode.not_leader_or_follower",
        "ErrorCode.not_leader_or_follower",
        (f"{PROXY}::test_a_broker_that_hangs_may_have_written_what_it_got",),
    ),
    Mutation(
        "repeat_what_changes_something",
        "What may change something is sent once.",
        f"{FOLDER}/apis/cluster_apis.py",
        "            _, body = await client.request(\n                None, api_key,",
        "            _, body = await client.request_any(\n                api_key,",
        (f"{PROXY}::test_what_changes_something_is_sent_once",),
    ),
    Mutation(
        "name_the_brokers",
        "Clients learn no address but that of the proxy.",
        f"{FOLDER}/apis/cluster_view.py",
        '        changes = {"brokers": (replaced(first, host=host, port=port, **own),)}',
        '        changes = {"brokers": response.brokers}',
        (f"{ROUTES}::test_clients_see_one_node_that_leads_all_partitions_with_a_leader",),
    ),
    Mutation(
        "keep_connections_of_clients_that_left",
        "A client that leaves takes its connections to brokers with it.",
        f"{FOLDER}/brokers/clients.py",
        "            found.close()",
        "            pass",
        (f"{PROXY}::test_a_client_that_leaves_takes_its_connections_to_brokers_with_it",),
    ),
    Mutation(
        "keep_the_former_token",
        "A client that logs in again is logged in again at its brokers.",
        f"{FOLDER}/brokers/client_upstreams.py",
        "                if session is not None and session.token != upstream.token:",
        "                if False:",
        (f"{LOGINS}::test_a_client_that_logs_in_again_does_so_at_its_brokers",),
    ),
    Mutation(
        "keep_a_session_that_a_broker_refuses",
        "A token that a broker refuses ends the session of the client.",
        f"{FOLDER}/brokers/dialer.py",
        "        session.ended_because =",
        "        refused =",
        (f"{LOGINS}::test_a_token_that_a_broker_refuses_ends_the_session",),
    ),
    Mutation(
        "send_to_a_broker_that_takes_nothing",
        "Batches without acks wait for a broker that takes nothing.",
        f"{FOLDER}/brokers/upstream.py",
        "        self._writable.clear()",
        "        pass",
        (f"{LOGINS}::test_a_broker_that_takes_nothing_is_noticed",),
    ),
    Mutation(
        "answer_for_another_broker",
        "A broker whose answers are none is left.",
        f"{FOLDER}/brokers/upstream.py",
        "        if not INT32.size <= size <= MAX_RESPONSE_BYTES:",
        "        if False:",
        (f"{PROXY}::test_a_broker_that_answers_with_anything_else_is_left",),
    ),
)
