"""Broken rules of who gets in and who may do what: each of them would let somebody in."""

from __future__ import annotations

from ..mutation import Mutation

CALLS = "core/smq_core/access/broker_calls.py"
SERVER = "broker/smq_broker/streams/server.py"
ACTIONS = "broker/smq_broker/streams/actions.py"
CALLERS = "broker/smq_broker/access/secure_callers.py"
TEST_CALLS = "tests/unit/core/access/test_broker_calls.py"
TEST_CALLERS = "tests/unit/broker/access/test_secure_callers.py"
TEST_REQUESTS = "tests/unit/broker/access/test_requests_are_checked.py"
TEST_ENDS = "tests/unit/broker/access/test_streams_end.py"
TEST_PERMISSIVE = "tests/unit/broker/access/test_permissive.py"
TEST_LOGIN = "tests/unit/broker/access/test_login.py"
TEST_REFUSED = f"{TEST_REQUESTS}::test_a_caller_without_the_right_is_refused"

MUTATIONS = (
    Mutation(
        "admit_each_role",
        "A broker's calls are for the roles in their table.",
        CALLS,
        "    if peer.role in roles:\n",
        "    if peer.role in Role:\n",
        (f"{TEST_CALLS}::test_a_role_may_call_what_the_table_says", TEST_REFUSED),
    ),
    Mutation(
        "allow_what_no_table_names",
        "A call without a rule is allowed to nobody.",
        CALLS,
        "NOBODY = CallRule(frozenset())",
        "NOBODY = CallRule(frozenset(Role))",
        (f"{TEST_CALLS}::test_a_role_may_call_what_the_table_says",),
    ),
    Mutation(
        "admit_other_releases",
        "A certificate of another release is none.",
        CALLS,
        "    if peer.release != release:\n",
        "    if not peer.release:\n",
        (f"{TEST_CALLERS}::test_a_caller_without_a_certificate_of_this_release_is_nobody",),
    ),
    Mutation(
        "admit_expired_certificates",
        "A connection does not outlive its certificate.",
        CALLS,
        "    if peer.has_expired(now):\n",
        "    if not now:\n",
        (f"{TEST_CALLERS}::test_a_stream_ends_when_its_certificate_has_expired",),
    ),
    Mutation(
        "let_strangers_shake_hands",
        "A secure broker lets nobody in without a certificate of its release.",
        SERVER,
        "                verify_client=True,\n",
        "                verify_client=False,\n",
        (f"{TEST_REQUESTS}::test_a_server_with_a_certificate_lets_no_stranger_in",),
    ),
    Mutation(
        "dial_whoever_is_at_the_address",
        "A broker replicates to the incarnation that the layout names, whoever has its address.",
        "proto/smq_proto/flight.py",
        "        override_hostname=broker_server_name(incarnation),\n",
        "        disable_server_verification=True,\n",
        (f"{TEST_REQUESTS}::test_a_broker_dials_another_by_its_incarnation",),
    ),
    Mutation(
        "give_the_token_to_any_server",
        "A broker's token goes to a leader only, and to no other process of the release.",
        "proto/smq_proto/leader_channels.py",
        '("grpc.ssl_target_name_override", LEADER_SERVER_NAME)',
        '("grpc.ssl_target_name_override", "i-2.broker.smq.internal")',
        (f"{TEST_LOGIN}::test_the_token_goes_to_a_leader_of_this_release_only",),
    ),
    Mutation(
        "produce_in_any_role",
        "Producers' lanes are for clients and leaders.",
        SERVER,
        "            caller.admit(PRODUCERS)\n",
        "",
        (f"{TEST_REFUSED}[producers-Role.BROKER-PermissionDenied]",),
    ),
    Mutation(
        "produce_without_a_grant",
        "A lane of producers needs a grant on its topic.",
        SERVER,
        "            caller.require(hello.uid)\n",
        "",
        (f"{TEST_REFUSED}[producers-Role.CLIENT-GrantMissing]",),
    ),
    Mutation(
        "replicate_in_any_role",
        "Only brokers replicate.",
        SERVER,
        "            caller.admit(REPLICA)\n",
        "",
        (f"{TEST_REQUESTS}::test_only_the_primary_itself_replicates",),
    ),
    Mutation(
        "replicate_as_another_broker",
        "A broker replicates in its own name only.",
        SERVER,
        "            caller.require_incarnation(hello.replica.primary_incarnation)\n",
        "",
        (f"{TEST_REQUESTS}::test_only_the_primary_itself_replicates",),
    ),
    Mutation(
        "replicate_to_a_follower_as_anybody",
        "A segment is replicated by its primary only, also without security.",
        "broker/smq_broker/replication/follower.py",
        "        if hosted.is_primary or primary_incarnation != primary.incarnation:\n",
        "        if hosted.is_primary:\n",
        ("tests/unit/broker/replication/test_follower_lane.py::test_nobody_but_the_primary_replicates",),
    ),
    Mutation(
        "read_tails_in_any_role",
        "Tails are for clients and leaders.",
        SERVER,
        "            caller.admit(TAIL)\n",
        "",
        (f"{TEST_REFUSED}[tail-Role.BROKER-PermissionDenied]",),
    ),
    Mutation(
        "read_tails_without_a_grant",
        "A tail needs a grant on its topic.",
        SERVER,
        "            caller.require(request.uid)\n",
        "",
        (f"{TEST_REFUSED}[tail-Role.CLIENT-GrantMissing]",),
    ),
    Mutation(
        "act_in_any_role",
        "Each action is for the roles in the table.",
        SERVER,
        "            caller.admit(name)\n",
        "",
        (f"{TEST_REFUSED}[open-Role.CLIENT-PermissionDenied]", f"{TEST_REFUSED}[seal-Role.CLIENT-PermissionDenied]"),
    ),
    Mutation(
        "locate_without_a_grant",
        "Where a topic's segments are is for those who have a right on it.",
        ACTIONS,
        "        call.caller.require(found.topic.uid, found.topic.name)\n",
        "",
        (f"{TEST_REFUSED}[locate-Role.CLIENT-GrantMissing]",),
    ),
    Mutation(
        "claim_without_a_grant",
        "A producer's id is claimed by those who may produce.",
        ACTIONS,
        "        call.caller.require(request.uid, topic)\n        return self._claims",
        "        return self._claims",
        (f"{TEST_REFUSED}[claim-Role.CLIENT-GrantMissing]",),
    ),
    Mutation(
        "answer_outcomes_without_a_grant",
        "How a segment ended is for those who may produce to it.",
        ACTIONS,
        "        call.caller.require(request.uid, topic)\n        if self._registry",
        "        if self._registry",
        (f"{TEST_REFUSED}[outcome-Role.CLIENT-GrantMissing]",),
    ),
    Mutation(
        "show_each_segment_to_clients",
        "A client sees the segments of its own topics.",
        CALLERS,
        "for it in status.segments if self._holds(it.uid)]",
        "for it in status.segments]",
        (f"{TEST_CALLERS}::test_a_client_sees_the_segments_of_its_topics_only",),
    ),
    Mutation(
        "take_grants_for_another",
        "A grant counts for the identity that it names.",
        "core/smq_core/access/grants.py",
        "        if grant.identity != identity:\n",
        "        if not grant.identity:\n",
        (f"{TEST_CALLERS}::test_a_grant_of_another_is_refused",),
    ),
    Mutation(
        "let_producers_go_on_for_ever",
        "A lane of producers ends when its client may not go on.",
        "broker/smq_broker/producers/producer_lane.py",
        "        if time.monotonic() >= self._caller.check_at and not self._may_go_on():\n",
        "        if False and not self._may_go_on():\n",
        (f"{TEST_ENDS}::test_a_lane_of_producers_ends_after_its_acks",),
    ),
    Mutation(
        "append_after_the_denial",
        "Nothing is appended for a client that may not go on.",
        "broker/smq_broker/producers/producer_lane.py",
        "                session.close()\n        for session in waiting",
        "                pass\n        for session in waiting",
        (f"{TEST_ENDS}::test_a_lane_of_producers_ends_after_its_acks",),
    ),
    Mutation(
        "let_tails_go_on_for_ever",
        "A tail ends when its reader may not go on.",
        "broker/smq_broker/streams/tail.py",
        "        if now >= caller.check_at:\n            caller.recheck()\n",
        "",
        (f"{TEST_ENDS}::test_a_tail_ends_at_the_next_frame_or_heartbeat",),
    ),
    Mutation(
        "let_primaries_go_on_for_ever",
        "A lane of a primary ends when its certificate has expired.",
        "broker/smq_broker/replication/follower_lane.py",
        "        if now >= self._caller.check_at:\n            self._caller.recheck()\n",
        "",
        (f"{TEST_ENDS}::test_a_primary_whose_certificate_has_expired_connects_again",),
    ),
    Mutation(
        "serve_whoever_is_nobody",
        "Each call begins with who makes it.",
        CALLERS,
        "        made.check_identity()\n",
        "",
        (f"{TEST_CALLERS}::test_a_caller_without_a_certificate_of_this_release_is_nobody",),
    ),
    Mutation(
        "serve_anonymous_callers_with_certificates",
        "At a permissive broker a certificate has its rights, and only clear text is anonymous.",
        SERVER,
        "        other = copy.copy(self)\n",
        "        other = self\n",
        (f"{TEST_PERMISSIVE}::test_over_tls_the_rights_are_those_of_the_certificate",),
    ),
    Mutation(
        "fall_back_to_clear_text_in_mode_required",
        "Only a permissive broker calls its leader in clear text.",
        "broker/smq_broker/leader_client/leader_channels.py",
        "if not self._ca_file or (self._permissive and not speaks_tls(address)):",
        "if not self._ca_file or not speaks_tls(address):",
        (f"{TEST_PERMISSIVE}::test_a_leader_in_clear_text_gets_reports_and_no_token",),
    ),
)
