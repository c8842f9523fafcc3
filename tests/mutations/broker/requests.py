"""Broken rules of what brokers do on request, when anybody may send one."""

from __future__ import annotations

from ..mutation import Mutation

ACTIONS = "broker/smq_broker/streams/actions.py"
LAYOUTS = "broker/smq_broker/segments/stored_layouts.py"
CHECK_SEAL = "self._layouts.check_seal(hosted.topic.name, hosted.topic.uid, hosted.name)"
TEST_FOLLOWER = "tests/unit/broker/replication/test_shared_follower.py"
TEST_FLUSHER = "tests/unit/broker/segments/test_flusher.py"
TEST_RELAY = "tests/unit/broker/streams/test_relay_targets.py"
TEST_HEALTH = "tests/unit/broker/runtime/test_health_server.py"
LEADER_HTTP = "operator/smq_operator/runtime/http_server.py"
TEST_LEADER_HTTP = "tests/unit/operator/runtime/test_http_server.py"
TEST = "tests/unit/broker/segments/test_stored_layouts.py"

MUTATIONS = (
    Mutation(
        "open_what_no_layout_plans",
        "A segment is opened only if the stored layout has it.",
        ACTIONS,
        "            self._layouts.check_open(topic, segment)\n",
        "",
        (f"{TEST}::test_a_segment_without_a_stored_layout_is_not_opened",),
    ),
    Mutation(
        "open_with_other_replicas",
        "A segment is opened only with the replicas that the stored layout names.",
        LAYOUTS,
        "        segment.replicas,\n",
        "        stored.replicas,\n",
        (f"{TEST}::test_a_segment_that_the_layout_has_otherwise_is_not_opened",),
    ),
    Mutation(
        "seal_what_no_layout_plans",
        "A segment is sealed only if the stored layout plans it.",
        ACTIONS,
        f"            {CHECK_SEAL}\n            return hosted",
        "            return hosted",
        (f"{TEST}::test_a_seal_that_no_layout_plans_changes_nothing[False]",),
    ),
    Mutation(
        "flush_what_no_layout_seals",
        "A tail is written ahead only if the stored layout plans the seal.",
        ACTIONS,
        f"            {CHECK_SEAL}\n            self._sealer",
        "            self._sealer",
        (f"{TEST}::test_a_seal_that_no_layout_plans_changes_nothing[True]",),
    ),
    Mutation(
        "refuse_names_that_no_layout_has",
        "A stranger cannot forbid a broker to open a future segment.",
        ACTIONS,
        "        self._layouts.check_planned_seal(full_name(request.topic), request.uid, request.segment)\n",
        "",
        (f"{TEST}::test_a_seal_that_the_layout_read_does_not_plan_is_tried_again",),
    ),
    Mutation(
        "prove_by_an_old_layout_that_nothing_was_acked",
        "A broker that did not refuse a segment for good never answers that it does not host it.",
        ACTIONS,
        "        self._layouts.check_planned_seal(full_name(request.topic), request.uid, request.segment)\n",
        """        try:
            self._layouts.check_planned_seal(full_name(request.topic), request.uid, request.segment)
        except SmqError as error:
            raise NotHosted(error.message) from error
""",
        (f"{TEST}::test_a_seal_that_the_layout_read_does_not_plan_is_tried_again",),
    ),
    Mutation(
        "let_any_answer_prove_that_nothing_was_acked",
        "Only an answer that is certain proves that a replica acked nothing.",
        "core/smq_core/sealing/seal_coordinator.py",
        "attempt.acked_nothing or certain",
        "True",
        ("tests/unit/core/reconcile/test_sealing.py::test_an_answer_that_is_not_certain_proves_nothing",),
    ),
    Mutation(
        "take_an_older_layout_for_the_newest",
        "An older layout never replaces a newer one.",
        LAYOUTS,
        "layout.version < known.version",
        "False",
        (f"{TEST}::test_an_older_layout_does_not_replace_a_newer_one",),
    ),
    Mutation(
        "seal_what_a_former_layout_lacks",
        "A segment is absent only from a layout that was read for this request.",
        LAYOUTS,
        "if known is not None and _is_sealing(known, segment):",
        "if known is not None and (segment not in known or _is_sealing(known, segment)):",
        (f"{TEST}::test_a_segment_is_absent_only_from_a_layout_that_was_read_now",),
    ),
    Mutation(
        "read_layouts_alone",
        "Requests that come at once share the read of the layout.",
        LAYOUTS,
        "self._reads.read((topic, uid), lambda: self._read_alone(topic, uid))",
        "self._read_alone(topic, uid)",
        (f"{TEST}::test_requests_at_once_share_reads",),
    ),
    Mutation(
        "share_a_read_that_began_before",
        "Nobody gets a layout that is older than its request.",
        "broker/smq_broker/runtime/shared_reads.py",
        "shared = self._next.get(key)",
        "shared = self._next.get(key) or self._running.get(key)",
        ("tests/unit/broker/runtime/test_shared_reads.py::test_who_requests_during_a_read_gets_the_next_one",),
    ),
    Mutation(
        "end_all_links_when_rows_end_early",
        "Rows that end early are the error of one segment.",
        "broker/smq_broker/rows/ipc_messages.py",
        "OSError, EOFError, struct.error",
        "OSError, struct.error",
        (f"{TEST_FOLLOWER}::test_rows_that_end_early_end_one_link",),
    ),
    Mutation(
        "end_all_links_at_a_bug",
        "A bug at one segment ends its link and no other.",
        "broker/smq_broker/replication/shared_follower.py",
        "        except Exception as error:\n            if not",
        "        except SmqError as error:\n            if not",
        (f"{TEST_FOLLOWER}::test_a_bug_at_one_segment_ends_one_link",),
    ),
    Mutation(
        "read_batches_of_a_stream_without_columns",
        "No batch is read from a stream that has none, because Arrow would decompress it first.",
        "broker/smq_broker/replication/shared_follower.py",
        "if self._reader.schema.names:",
        "if False:",
        (f"{TEST_FOLLOWER}::test_a_stream_with_columns_is_refused_before_it_is_read",),
    ),
    Mutation(
        "keep_the_memory_of_refused_requests",
        "The memory that a refused request took is returned when the broker is idle.",
        "broker/smq_broker/streams/request_limit.py",
        "                self.refused_bytes += size\n",
        "                pass\n",
        (
            "tests/unit/broker/streams/test_request_limit.py"
            "::test_the_memory_of_refused_requests_is_returned_after_an_idle_period",
        ),
    ),
    Mutation(
        "read_compressed_rows",
        "Compressed rows are refused before they are read.",
        "broker/smq_broker/rows/ipc_messages.py",
        'if message.type == "record batch" and _is_compressed(message.metadata):',
        "if False:",
        (f"{TEST_FOLLOWER}::test_compressed_rows_are_refused_before_they_are_read",),
    ),
    Mutation(
        "relay_to_whatever_a_report_names",
        "The relay connects only to addresses where a broker answers with the incarnation that is listed there.",
        "broker/smq_broker/streams/relay_targets.py",
        'incarnation = self._read_incarnation(target) if incarnations else ""',
        'incarnation = next(iter(incarnations), "")',
        (f"{TEST_RELAY}::test_an_address_where_no_broker_answers_is_no_target",),
    ),
    Mutation(
        "relay_to_one_process_of_an_address",
        "A new broker at the address of a former one is a target of the relay.",
        "broker/smq_broker/streams/relay_targets.py",
        "found.setdefault(broker.address, set()).add(broker.incarnation)",
        "found[broker.address] = {broker.incarnation}",
        (f"{TEST_RELAY}::test_a_new_process_at_the_address_of_a_former_one_is_a_target",),
    ),
    Mutation(
        "report_a_failure_of_the_filer_for_ever",
        "Only open segments report that the filer takes no chunks.",
        "broker/smq_broker/leader_client/reports.py",
        "[it for it in hosted if it.machine.state is ReplicaState.OPEN]",
        "hosted",
        (f"{TEST_FLUSHER}::test_a_sealed_segment_reports_no_failure_of_the_filer",),
    ),
    Mutation(
        "count_a_wait_that_a_producer_gave_up",
        "A producer that gave up does not lengthen the wait of a later one.",
        "broker/smq_broker/segments/hosted_segment.py",
        "if self.refused_since is None or now - self._refused_last >= PRODUCER_RETRIES_WITHIN_SECONDS:",
        "if self.refused_since is None:",
        (f"{TEST_FLUSHER}::test_producers_that_wait_for_memory_stall_their_segment",),
    ),
    Mutation(
        "serve_any_number_of_http_requests",
        "The HTTP port serves few requests at once, and the newest ones.",
        "broker/smq_broker/runtime/health.py",
        "oldest.shutdown(socket.SHUT_RDWR)",
        "pass",
        (f"{TEST_HEALTH}::test_one_request_too_many_ends_the_oldest",),
    ),
    Mutation(
        "log_every_http_client_that_goes_away",
        "The end of an HTTP client is no failure.",
        "broker/smq_broker/runtime/health.py",
        "isinstance(sys.exception(), ConnectionError | TimeoutError)",
        "False",
        (f"{TEST_HEALTH}::test_a_client_that_goes_away_is_not_logged",),
    ),
    Mutation(
        "serve_web_pages_of_other_names",
        "The HTTP port refuses public names.",
        "broker/smq_broker/runtime/health.py",
        'if not is_cluster_host(self.headers.get("Host", "")):',
        "if False:",
        (f"{TEST_HEALTH}::test_a_public_name_is_refused",),
    ),
    Mutation(
        "be_ready_before_a_leader_answers",
        "A new broker is ready only after a leader has answered.",
        "broker/smq_broker/runtime/health.py",
        "if not self._ready and others_drain is None:",
        "if not self._ready and others_drain is None and now - self._began < MAX_DRAIN_WAIT_SECONDS:",
        ("tests/unit/broker/runtime/test_readiness.py::test_a_rolling_update_waits_until_a_leader_can_move_segments",),
    ),
    Mutation(
        "serve_the_page_under_other_names",
        "The leader's HTTP port refuses public names that nobody has chosen.",
        "operator/smq_operator/runtime/http_server.py",
        'if not is_cluster_host(request.headers.get("Host", ""), self._hosts):',
        "if False:",
        ("tests/unit/operator/runtime/test_http_server.py::test_a_public_name_is_refused_unless_it_was_chosen",),
    ),
    Mutation(
        "take_any_public_name_for_one_in_a_cluster",
        "A public name with a part named svc is a public name.",
        "core/smq_core/model/http_hosts.py",
        "host.endswith(_SUFFIXES) or host in others",
        'host.endswith(_SUFFIXES) or ".svc." in host or host in others',
        ("tests/unit/core/model/test_http_hosts.py::test_public_names_are_not[x.svc.evil.example]",),
    ),
    Mutation(
        "serve_any_number_of_connections_of_the_leader",
        "The leader's HTTP port serves few connections at once, and the newest ones.",
        LEADER_HTTP,
        "self._connections.pop(oldest).abort()",
        "pass",
        (f"{TEST_LEADER_HTTP}::test_one_connection_too_many_ends_the_oldest",),
    ),
    Mutation(
        "wait_for_http_requests_of_the_leader",
        "The leader disconnects a client that does not finish its request, or sends no other one.",
        LEADER_HTTP,
        "            keepalive_timeout=TIMEOUT_SECONDS,  # also for the first request\n",
        "",
        (f"{TEST_LEADER_HTTP}::test_a_client_that_sends_nothing_more_is_disconnected",),
    ),
    Mutation(
        "wait_for_http_clients_of_the_leader_to_read",
        "The leader disconnects a client that does not read its answer.",
        LEADER_HTTP,
        "async with asyncio.timeout(TIMEOUT_SECONDS):",
        "async with asyncio.timeout(None):",
        (f"{TEST_LEADER_HTTP}::test_a_client_that_does_not_read_its_answer_is_disconnected",),
    ),
    Mutation(
        "write_logs_of_brokers_that_others_may_read",
        "Other users cannot read what leader and brokers of a machine write.",
        "operator/smq_operator/local/run.py",
        "    make_files_private()\n",
        "",
        ("tests/integration/operator/test_control_api.py::test_nobody_else_may_read_the_files_of_leader_and_brokers",),
    ),
    Mutation(
        "write_the_log_of_smq_dev_that_others_may_read",
        "Other users cannot read what `smq dev` writes, whoever made the folder.",
        "client/smq/cli/commands/dev.py",
        "    make_files_private()\n",
        "",
        ("tests/integration/cli/test_dev_files.py::test_nobody_else_may_read_the_log_in_a_folder_that_was_there",),
    ),
    Mutation(
        "open_a_pipe_in_a_journal",
        "A journal file that is no regular file is not read.",
        "broker/smq_broker/journal/segment_files.py",
        "        if not stat.S_ISREG(status.st_mode):\n",
        "        if False:\n",
        ("tests/unit/broker/journal/test_journal.py::test_what_is_no_regular_file_is_not_read",),
    ),
    Mutation(
        "leave_an_old_folder_open_to_others",
        "Other users cannot read the folder of a local cluster, whichever version created it.",
        "client/smq/cli/dev/private_folder.py",
        "        folder.chmod(0o700)\n",
        "        pass\n",
        ("tests/unit/cli/test_dev.py::test_nobody_else_may_read_the_folder",),
    ),
    Mutation(
        "read_a_journal_file_of_any_size",
        "A journal's file that is too large is not read.",
        "broker/smq_broker/journal/segment_files.py",
        "if status.st_size > limit:",
        "if False:",
        ("tests/unit/broker/journal/test_journal.py::test_a_file_that_is_too_large_is_not_read",),
    ),
)
