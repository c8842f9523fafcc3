"""Broken rules of security, each of which would let somebody in, or on."""

from __future__ import annotations

from ..mutation import Mutation

LEADER_CALLS = "core/smq_core/access/leader_calls.py"
POLICY = "core/smq_core/access/policy.py"
SECURITY = "operator/smq_operator/security"
INTERCEPTOR = "operator/smq_operator/api/access/interceptor.py"
AUTH = "operator/smq_operator/api/auth.py"
API_SERVER = "operator/smq_operator/api/server.py"
ANONYMOUS_ACCESS = f"{SECURITY}/access/anonymous_access.py"

ACCESS_CONTROL = f"{SECURITY}/access/access_control.py"
TEST_IDLE = "tests/unit/operator/security/test_idle_clients.py"
TEST_CALLS = "tests/unit/core/access/test_leader_calls.py"
TEST_POLICY = "tests/unit/core/access/test_policy.py"
TEST_ALLOWS = f"{TEST_POLICY}::test_a_rule_allows_what_it_names"
TEST_PERMISSIVE = "tests/unit/operator/api/access/test_permissive.py"
TEST_INTERCEPTOR = "tests/unit/operator/api/access/test_interceptor.py"
TEST_BROKERS_DO = f"{TEST_INTERCEPTOR}::test_a_broker_reports_about_itself_and_does_little_else"
TEST_STREAM = f"{TEST_INTERCEPTOR}::test_a_stream_ends_when_its_caller_loses_the_right"
TEST_TOKENS = "tests/unit/operator/security/identities/test_tokens.py"
TEST_SECRETS = "tests/integration/security/test_secrets.py"
TEST_AUTH = "tests/unit/operator/api/test_auth.py"
TEST_DIALER = "tests/unit/operator/brokers/test_dialer.py"
TEST_FOLDER = "tests/unit/operator/local/security/test_security_folder.py"
TEST_BROKERS = "tests/unit/operator/local/security/test_brokers.py"

MUTATIONS = (
    Mutation(
        "quote_the_token_that_nobody_has",
        "No exception, log or page has a token.",
        f"{SECURITY}/identities/tokens.py",
        '"this release does not know this token: it',
        'f"this release does not know {token}: it',
        (f"{TEST_SECRETS}::test_no_secret_is_shown_logged_or_stored",),
    ),
    Mutation(
        "quote_identities_of_a_damaged_file",
        "The log of a damaged file has none of its values, which may be tokens.",
        f"{SECURITY}/identities/tokens.py",
        'printable characters"\n        )\n    return StaticToken(',
        'printable characters: {identity}"\n        )\n    return StaticToken(',
        (f"{TEST_TOKENS}::test_a_file_that_cannot_be_meant_is_refused_without_its_values",),
    ),
    Mutation(
        "show_private_keys",
        "No object shows a secret.",
        "core/smq_core/access/certificates.py",
        "key: bytes = field(repr=False)",
        "key: bytes = field()",
        ("tests/unit/test_secrets_in_reprs.py",),
    ),
    Mutation(
        "leave_a_call_out_of_the_leaders_table",
        "Each call of the leader has its rights in the table.",
        LEADER_CALLS,
        '    "Admin.AcceptLoss": _ADMINISTER,\n',
        "",
        (f"{TEST_CALLS}::test_the_table_has_every_call_of_every_service_and_no_other",),
    ),
    Mutation(
        "let_everybody_delete_topics",
        "A call needs the right of its entry.",
        LEADER_CALLS,
        '"Admin.DeleteTopic": _verb("delete", audited=True),',
        '"Admin.DeleteTopic": _ANYBODY,',
        (f"{TEST_INTERCEPTOR}::test_a_caller_without_rights_gets_only_to_what_is_its_own",),
    ),
    Mutation(
        "let_one_right_do_for_several",
        "A group needs the right to the topic and the one to the group.",
        LEADER_CALLS,
        "all_of=((topic_right(Right.CONSUME, topic),), group_rights(topic, subject.group))",
        "all_of=((topic_right(Right.CONSUME, topic), *group_rights(topic, subject.group)),)",
        (f"{TEST_CALLS}::test_each_call_needs_these_rights",),
    ),
    Mutation(
        "allow_everything_in_a_namespace",
        "A rule is about the topics that it names.",
        POLICY,
        "return access.resource == TOPICS and _has(self.topics, access.name)",
        "return access.resource == TOPICS",
        (TEST_ALLOWS,),
    ),
    Mutation(
        "allow_a_rule_in_all_namespaces",
        "A rule is about the namespaces that it names.",
        POLICY,
        " or not _has(self.namespaces, access.namespace)",
        "",
        (TEST_ALLOWS,),
    ),
    Mutation(
        "apply_a_rule_to_everybody",
        "A rule is about the callers that it names.",
        POLICY,
        "any(rule.is_about(identity, groups) and rule.allows(access) for rule in self.rules)",
        "any(rule.allows(access) for rule in self.rules)",
        (f"{TEST_POLICY}::test_a_rule_is_about_identities_and_groups",),
    ),
    Mutation(
        "let_a_broker_report_about_another",
        "A report is about the broker whose token it has.",
        f"{SECURITY}/access/access_control.py",
        "elif not caller.proves(needs.incarnation):",
        "elif not caller.is_broker:",
        (TEST_BROKERS_DO,),
    ),
    Mutation(
        "let_brokers_call_everything",
        "The token of a broker opens few calls.",
        f"{SECURITY}/access/access_control.py",
        "if not needs.brokers_too:",
        "if False:",
        (TEST_BROKERS_DO,),
    ),
    Mutation(
        "accept_any_token_of_a_broker",
        "The token of a broker has a MAC by the leader's key.",
        f"{SECURITY}/identities/tokens.py",
        "if not hmac.compare_digest(mac.encode(), self._mac(incarnation).encode()):",
        "if not mac:",
        (f"{TEST_TOKENS}::test_each_leader_with_the_key_knows_the_token_of_a_broker",),
    ),
    Mutation(
        "accept_tokens_of_brokers_that_have_ended",
        "The token of a broker ends with it.",
        f"{SECURITY}/identities/tokens.py",
        "if self._has_ended(incarnation):",
        "if False:",
        (f"{TEST_TOKENS}::test_the_token_of_a_broker_ends_with_it",),
    ),
    Mutation(
        "accept_any_token",
        "A token is one of the file.",
        f"{SECURITY}/identities/tokens.py",
        "if hmac.compare_digest(entry.digest, digest):",
        "if digest:",
        (f"{TEST_TOKENS}::test_a_token_of_the_file_says_who_has_it",),
    ),
    Mutation(
        "run_handlers_before_the_right_is_checked",
        "A denied call changes nothing.",
        INTERCEPTOR,
        "subject, sees_all = await self._authorize(call, caller, request)",
        "sees_all = True",
        (f"{TEST_INTERCEPTOR}::test_a_right_opens_its_calls",),
    ),
    Mutation(
        "start_streams_without_a_check",
        "A stream needs its right from the beginning.",
        INTERCEPTOR,
        "            try:\n                await self._authorize(call, caller, request)\n",
        "            try:\n",
        (f"{TEST_INTERCEPTOR}::test_a_caller_without_rights_gets_only_to_what_is_its_own",),
    ),
    Mutation(
        "check_a_stream_once",
        "A stream ends when its caller has lost the right to it.",
        INTERCEPTOR,
        "                await check()\n",
        "",
        (TEST_STREAM,),
    ),
    Mutation(
        "check_only_the_rights_of_a_stream_again",
        "A stream ends when its caller's token has gone.",
        INTERCEPTOR,
        "caller = await self._access.authenticate(metadata, call)\n        except Unauthenticated as error:",
        "caller = Caller(identity='tokens', method='')\n        except Unauthenticated as error:",
        (TEST_STREAM,),
    ),
    Mutation(
        "show_all_topics_to_whoever_may_list_some",
        "A caller sees the topics of namespaces that it may list.",
        "operator/smq_operator/api/access/visible_topics.py",
        "for topic in listed.topics if allowed[_namespace(topic.info.name)].allowed]",
        "for topic in listed.topics]",
        (f"{TEST_INTERCEPTOR}::test_a_caller_sees_the_topics_of_namespaces_that_it_may_list",),
    ),
    Mutation(
        "deny_the_list_because_of_one_page",
        "A page may have no topic that its caller may see.",
        "operator/smq_operator/api/access/visible_topics.py",
        "[_namespace(name) for name in topics] + ",
        "",
        (f"{TEST_INTERCEPTOR}::test_a_page_may_have_no_topic_that_its_caller_may_see",),
    ),
    Mutation(
        "answer_with_all_brokers_at_once",
        "An answer has some megabytes at most.",
        "operator/smq_operator/api/pages.py",
        "if page and size >= PAGE_BYTES:",
        "if False:",
        ("tests/unit/operator/api/test_pages.py::test_a_page_ends_when_it_is_large",),
    ),
    Mutation(
        "issue_a_brokers_certificate_to_clients",
        "A caller logs in as what its token says.",
        AUTH,
        "caller.is_broker and not caller.proves(request.incarnation)",
        "False",
        (f"{TEST_AUTH}::test_nobody_logs_in_as_somebody_else",),
    ),
    Mutation(
        "grant_every_right",
        "A grant is a right that the caller has.",
        AUTH,
        "rights = [right for right, decision in decisions.items() if decision.allowed]",
        "rights = list(decisions)",
        (
            f"{TEST_AUTH}::test_grants_are_the_rights_that_the_caller_has",
            f"{TEST_AUTH}::test_who_has_no_right_gets_no_grant_and_does_not_learn_which_topics_there_are",
        ),
    ),
    Mutation(
        "let_certificates_outlive_the_token",
        "Nothing that a caller gets outlives its token.",
        AUTH,
        "return min(at, caller.expires_at) if caller.expires_at else at",
        "return at",
        (f"{TEST_AUTH}::test_nothing_outlives_the_token",),
    ),
    Mutation(
        "take_any_broker_of_the_release_for_the_one_that_is_called",
        "The leader verifies the incarnation that it calls.",
        "proto/smq_proto/flight.py",
        "override_hostname=broker_server_name(incarnation),",
        "override_hostname=broker_server_name('i1'),",
        (f"{TEST_DIALER}::test_a_broker_and_the_leader_know_each_other",),
    ),
    Mutation(
        "keep_connections_with_former_certificates",
        "The leader connects again when its certificate was renewed.",
        "operator/smq_operator/brokers/calls.py",
        " or connection.certificate is not certificate:",
        ":",
        (f"{TEST_DIALER}::test_a_connection_is_replaced_when_the_certificate_is",),
    ),
    Mutation(
        "let_everybody_read_the_keys",
        "Files of keys and tokens are their user's alone.",
        "operator/smq_operator/local/security/private_files.py",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)",
        (TEST_FOLDER,),
    ),
    Mutation(
        "keep_tokens_of_brokers_that_have_ended",
        "The file of a broker's token goes with its process.",
        "operator/smq_operator/local/broker_processes.py",
        "self._credentials.revoke(record.incarnation)",
        "pass",
        (f"{TEST_BROKERS}::test_each_incarnation_has_a_token_while_it_lives",),
    ),
    Mutation(
        "adopt_open_brokers_into_a_secure_release",
        "A broker speaks as its leader does.",
        "operator/smq_operator/local/broker_processes.py",
        "if record.security is not self._security:",
        "if False:",
        (f"{TEST_BROKERS}::test_a_leader_adopts_brokers_that_can_report_to_it",),
    ),
    Mutation(
        "serve_clear_text_in_mode_required",
        "Only a permissive leader serves callers in clear text.",
        API_SERVER,
        "    if not permissive:\n",
        "    if False:\n",
        (f"{TEST_PERMISSIVE}::test_a_required_leader_serves_no_clear_text",),
    ),
    Mutation(
        "serve_anonymous_callers_over_tls",
        "Over TLS nobody is anonymous.",
        API_SERVER,
        "known = partial(AccessInterceptor, security.access, topics)",
        "known = partial(AccessInterceptor, AnonymousAccess(security.access), topics)",
        (f"{TEST_PERMISSIVE}::test_over_tls_nobody_is_anonymous",),
    ),
    Mutation(
        "take_the_owner_of_a_bad_token_for_nobody",
        "A token that nobody knows is refused in clear text, too.",
        ANONYMOUS_ACCESS,
        "return await super().authenticate(metadata, call) if has_token(metadata) else ANONYMOUS",
        "return ANONYMOUS",
        (f"{TEST_PERMISSIVE}::test_a_token_that_nobody_knows_is_refused_in_clear_text_too",),
    ),
    Mutation(
        "give_a_token_the_rights_of_nobody",
        "A caller with a token has its rights in clear text, and no others.",
        ANONYMOUS_ACCESS,
        "        if caller is not ANONYMOUS:\n",
        "        if False:\n",
        (f"{TEST_PERMISSIVE}::test_a_token_has_its_rights_and_no_others_in_clear_text",),
    ),
    Mutation(
        "pass_tls_on_to_the_server_for_clear_text",
        "A connection with TLS goes to the server that checks certificates, or nowhere.",
        "storage/smq_storage/process/shared_port.py",
        "port = self.tls if first[0] == TLS_HANDSHAKE else self.clear",
        "port = self.tls if first[0] == TLS_HANDSHAKE and self.tls else self.clear",
        ("tests/unit/storage/test_shared_port.py::test_tls_is_never_taken_for_clear_text",),
    ),
    Mutation(
        "call_brokers_in_clear_text_in_mode_required",
        "Only a permissive leader connects in clear text.",
        "operator/smq_operator/brokers/dialer.py",
        "None if self._permissive and not speaks_tls(replica.address) else",
        "None if not speaks_tls(replica.address) else",
        (f"{TEST_DIALER}::test_a_required_leader_connects_in_clear_text_to_nobody",),
    ),
    Mutation(
        "log_in_by_an_older_review",
        "A login has the token reviewed within a minute.",
        ACCESS_CONTROL,
        "self.tokens if entry is None or entry.is_audited else self.idle.tokens",
        "self.idle.tokens",
        (f"{TEST_IDLE}::test_a_deleted_account_is_out_in_sixteen_minutes",),
    ),
    Mutation(
        "keep_a_token_that_was_refused",
        "A refused review ends what an older one allowed.",
        f"{SECURITY}/expiring_cache.py",
        "            self._known.pop(key, None)\n            raise\n",
        "            raise\n",
        (f"{TEST_IDLE}::test_a_refused_login_ends_the_rest_at_once",),
    ),
    Mutation(
        "allow_each_call_by_an_older_answer",
        "Only what idle clients repeat is allowed by an older answer.",
        ACCESS_CONTROL,
        "repeated=entry.is_repeated",
        "repeated=True",
        (f"{TEST_IDLE}::test_a_right_that_is_taken_back_is_gone_in_minutes",),
    ),
    Mutation(
        "count_the_life_of_a_grant_from_its_signature",
        "A removed right is out of brokers after five minutes.",
        AUTH,
        "now + GRANT_SECONDS - oldest_seconds",
        "now + GRANT_SECONDS",
        (f"{TEST_AUTH}::test_a_grant_ends_five_minutes_after_its_right_was_reviewed",),
    ),
    Mutation(
        "review_each_call_of_idle_clients",
        "Idle clients have little reviewed.",
        "core/smq_core/access/leader_calls.py",
        '"Topics.Watch": replace(_FIND, is_repeated=True)',
        '"Topics.Watch": _FIND',
        (f"{TEST_IDLE}::test_idle_clients_have_little_reviewed",),
    ),
    Mutation(
        "show_the_page_of_a_secure_release_to_the_network",
        "The page knows no callers, so a secure release serves it at loopback addresses only.",
        "operator/smq_operator/dashboard/pages.py",
        "if self._at_loopback_only and not is_loopback(own):",
        "if False:",
        ("tests/unit/operator/dashboard/test_pages.py",),
    ),
    Mutation(
        "leave_the_page_of_a_secure_release_open",
        "The page knows no callers, so a secure release serves it at loopback addresses only.",
        "operator/smq_operator/runtime/settings.py",
        "return self.security is SecurityMode.REQUIRED and not self.public_hosts",
        "return False",
        ("tests/unit/operator/runtime/test_settings.py",),
    ),
)
