"""Broken rules of what reports, acks and other messages to the leader count for."""

from __future__ import annotations

from ..mutation import Mutation

CHECKS = "operator/smq_operator/api/report_checks.py"
SERVICE = "operator/smq_operator/api/brokers.py"
TEST = "tests/unit/operator/api/test_report_checks.py"
TEST_REGISTRY = "tests/unit/operator/brokers/test_registry.py"
TEST_LOAD = "tests/unit/core/scaling/test_topic_load.py"
TEST_CHANGES = "tests/unit/operator/api/test_topic_changes.py"

MUTATIONS = (
    Mutation(
        "count_a_first_rate_over_any_time",
        "Two reports that follow each other at once give no rate yet.",
        "core/smq_core/scaling/segment_load.py",
        "if not self.observed and elapsed < MIN_FIRST_INTERVAL:",
        "if False:",
        (
            f"{TEST_LOAD}::test_reports_close_to_each_other_give_no_first_rate",
            f"{TEST_LOAD}::test_a_burst_before_a_new_leader_s_second_report_moves_nothing",
        ),
    ),
    Mutation(
        "begin_the_first_rate_at_the_oldest_report",
        "The first rate counts nothing from before reports that arrived together.",
        "core/smq_core/scaling/segment_load.py",
        "            self._last = counters\n            return True\n        if elapsed == 0",
        "            return True\n        if elapsed == 0",
        (f"{TEST_LOAD}::test_reports_that_waited_for_the_leader_give_no_first_rate",),
    ),
    Mutation(
        "count_the_fall_of_a_load_as_another_topic",
        "The load by other topics is a broker's load without what the topic itself had in it.",
        "core/smq_core/scaling/rebalancing.py",
        "max(0.0, b.load - counted.get(name, 0.0))",
        "max(0.0, b.load - own.get(name, 0.0))",
        (f"{TEST_LOAD}::test_a_falling_load_does_not_move_the_only_segment",),
    ),
    Mutation(
        "end_a_broker_by_a_report_that_came_late",
        "Only a process that ran after the leader knew another one shows that the other has ended.",
        "operator/smq_operator/brokers/registry.py",
        "former.journal_holder is newest or former.registered_after < ran_at",
        "former.journal_holder is newest or former.registered_after <= ran_at",
        (f"{TEST_REGISTRY}::test_a_late_report_of_a_process_that_ended_does_not_end_the_newer_one",),
    ),
    Mutation(
        "believe_an_answer_of_another_leader",
        "The numbers of another leader's answers show nothing.",
        "operator/smq_operator/brokers/registry.py",
        "report.last_answer if report.last_leader == self.leader else 0",
        "report.last_answer",
        (f"{TEST_REGISTRY}::test_a_late_report_of_a_process_that_ended_does_not_end_the_newer_one",),
    ),
    Mutation(
        "answer_with_an_earlier_question",
        "A question about a segment's end is answered by what its broker says after that question.",
        "operator/smq_operator/groups/segment_reach.py",
        "        del self._questions[incarnation]\n        try:\n"
        '            body = await self._brokers.call(replica, "status", Empty(), timeout=STATUS_TIMEOUT_SECONDS)\n',
        "        try:\n"
        '            body = await self._brokers.call(replica, "status", Empty(), timeout=STATUS_TIMEOUT_SECONDS)\n'
        "            del self._questions[incarnation]\n",
        (
            "tests/unit/operator/groups/test_segment_reach.py::test_a_question_is_not_answered_by_one_that_was_sent_before_it",
        ),
    ),
    Mutation(
        "drop_the_reports_of_a_recovered_journal",
        "A process reports segments of former incarnations of its broker, because its journal may have more of them.",
        "operator/smq_operator/api/report_checks.py",
        "it.incarnation == report.incarnation or it.broker == report.broker for it",
        "it.incarnation == report.incarnation for it",
        ("tests/unit/operator/api/test_report_checks.py::test_a_process_reports_what_its_journal_has_of_a_former_one",),
    ),
    Mutation(
        "read_a_report_of_any_size",
        "A report that is too large is refused before it is read.",
        SERVICE,
        "        check_size(report)\n",
        "",
        (f"{TEST}::test_a_report_that_is_too_large_is_refused_before_it_is_read",),
    ),
    Mutation(
        "believe_a_report_of_another_sender",
        "A report in the name of another incarnation is refused.",
        CHECKS,
        "(sender.broker, sender.address) != given",
        "sender is None",
        (f"{TEST}::test_a_report_in_the_name_of_another_incarnation_is_refused",),
    ),
    Mutation(
        "believe_any_claim_of_a_journal",
        "A broker cannot claim the journal of another one.",
        CHECKS,
        "if replica is not None and replica.broker != report.broker:",
        "if False:",
        (f"{TEST}::test_the_journal_of_another_broker_cannot_be_claimed",),
    ),
    Mutation(
        "count_segments_of_others",
        "A report counts only for segments that no layout gives to others.",
        SERVICE,
        "        foreign = drop_foreign_segments(report, self.topics)\n",
        "        foreign = 0\n",
        (f"{TEST}::test_segments_of_other_brokers_do_not_count",),
    ),
    Mutation(
        "raise_a_loss_by_a_strangers_watermark",
        "Only the brokers that held a sealed segment can report that more was acked.",
        CHECKS,
        "bool(entry.brokers) and report.broker not in entry.brokers",
        "False",
        (f"{TEST}::test_only_brokers_that_held_a_sealed_segment_report_it",),
    ),
    Mutation(
        "remember_fakes",
        "An incarnation that is silent and that no layout names is forgotten.",
        "operator/smq_operator/brokers/registry.py",
        "            if incarnation not in named\n",
        "            if broker.terminated is not None\n            and incarnation not in named\n",
        (f"{TEST}::test_fakes_are_forgotten",),
    ),
    Mutation(
        "register_any_number_of_brokers",
        "The number of incarnations that no layout names is limited.",
        SERVICE,
        "in require_capacity(report, self.registry, self.assignments, now):\n",
        "in ():\n",
        (f"{TEST}::test_too_many_brokers_are_refused_until_some_are_gone",),
    ),
    Mutation(
        "keep_reports_of_any_size",
        "The last reports of brokers that the platform does not know have a size together.",
        CHECKS,
        "sum(it.status_bytes for it in others) + report.status.ByteSize() > MAX_REPORTED_BYTES",
        "report.status.ByteSize() > MAX_REPORTED_BYTES",
        (f"{TEST}::test_reports_of_strangers_have_a_size_together",),
    ),
    Mutation(
        "register_any_number_of_former_brokers",
        "The number of former incarnations that no layout names is limited.",
        "operator/smq_operator/brokers/registry.py",
        "            if incarnation not in named and capacity <= 0:\n",
        "            if False:\n",
        (f"{TEST}::test_former_incarnations_take_no_place_of_brokers_and_are_limited",),
    ),
    Mutation(
        "forget_brokers_of_layouts_that_were_not_read",
        "No broker is forgotten before all layouts were read.",
        "operator/smq_operator/reconcile/broker_assignments.py",
        "        if not self._topics.all_layouts_known:\n",
        "        if False:\n",
        (f"{TEST}::test_no_broker_is_forgotten_before_all_layouts_were_read",),
    ),
    Mutation(
        "convert_any_number_of_columns",
        "A change of a topic that is too large is refused before its columns are converted.",
        "operator/smq_operator/api/admin.py",
        "        check_request(request)\n",
        "",
        (f"{TEST_CHANGES}::test_a_request_that_is_too_large_is_refused_before_its_columns_are_read",),
    ),
    Mutation(
        "answer_a_change_of_a_rejected_spec_as_done",
        "A change is done when it is in force.",
        "operator/smq_operator/api/topic_changes.py",
        "    if adopted.rejection is not None:\n",
        "    if False:\n",
        (f"{TEST_CHANGES}::test_a_change_of_a_rejected_spec_is_not_answered_as_done",),
    ),
    Mutation(
        "plan_changes_on_the_loop",
        "The leader goes on while it checks a manifest of a request.",
        "operator/smq_operator/api/topic_changes.py",
        "await asyncio.to_thread(_planned, topic, before, present, columns, version, settings)",
        "_planned(topic, before, present, columns, version, settings)",
        (f"{TEST_CHANGES}::test_no_request_checks_or_writes_a_manifest_on_the_loop[AlterTopic]",),
    ),
    Mutation(
        "write_manifests_on_the_loop",
        "The leader goes on while it writes a manifest for a request.",
        "operator/smq_operator/api/admin.py",
        "await asyncio.to_thread(_exported_message, manifest_of(self.topics.topic(request.topic).desired))",
        "_exported_message(manifest_of(self.topics.topic(request.topic).desired))",
        (f"{TEST_CHANGES}::test_no_request_checks_or_writes_a_manifest_on_the_loop[ExportTopic]",),
    ),
    Mutation(
        "publish_references_at_the_first_ack",
        "References are published when all of them are durable.",
        "operator/smq_operator/publishing/reference_stream.py",
        "            while missing:\n",
        "            if missing:\n",
        ("tests/unit/operator/publishing/test_reference_stream.py::test_references_without_an_ack_are_not_published",),
    ),
)
