"""Broken rules of quotas: each of them would let an identity take more than it may, or slow down others."""

from __future__ import annotations

from ..mutation import Mutation

QUOTAS = "core/smq_core/access/quotas.py"
GRANTS = "core/smq_core/access/grants.py"
LANE = "broker/smq_broker/producers/producer_lane.py"
TAIL = "broker/smq_broker/streams/tail.py"
TEST = "tests/unit/broker/access/test_quotas.py"
TEST_CORE = "tests/unit/core/access/test_quotas.py"
TEST_PROPERTY = "tests/property/test_quotas.py"

MUTATIONS = (
    Mutation(
        "write_above_the_quota",
        "A lane is not read while the quota of its client is used up.",
        LANE,
        "        if self._quota.pause_seconds() > 0 and not",
        "        if False and not",
        (f"{TEST}::test_a_lane_is_not_read_while_its_quota_is_used_up_and_others_go_on",),
    ),
    Mutation(
        "count_nothing_that_is_written",
        "What a lane takes counts.",
        LANE,
        "        if self._quota.is_limited:\n",
        "        if False:\n",
        (f"{TEST}::test_a_lane_is_not_read_while_its_quota_is_used_up_and_others_go_on",),
    ),
    Mutation(
        "count_references_as_nothing",
        "A reference counts for the rows of its file.",
        LANE,
        "sum(it.reference.bytes for it in sub_batches) + ",
        "",
        (f"{TEST}::test_a_reference_counts_for_the_bytes_of_its_file",),
    ),
    Mutation(
        "read_above_the_quota",
        "A tail pauses while the quota of its reader is used up.",
        TAIL,
        "        if (pause := quota.pause_seconds()) > 0:\n",
        "        if (pause := 0.0) > 0:\n",
        (f"{TEST}::test_a_tail_pauses_before_its_next_batch_and_others_go_on",),
    ),
    Mutation(
        "count_nothing_that_is_read",
        "What a tail sends counts.",
        TAIL,
        "        if quota.is_limited:\n",
        "        if False:\n",
        (f"{TEST}::test_a_tail_pauses_before_its_next_batch_and_others_go_on",),
    ),
    Mutation(
        "use_the_quota_of_another",
        "An identity uses its own quota.",
        GRANTS,
        "        return self._presented[identity][uid, right].meter\n",
        "        return next(iter(self._presented.values()))[uid, right].meter\n",
        (f"{TEST}::test_a_lane_is_not_read_while_its_quota_is_used_up_and_others_go_on",),
    ),
    Mutation(
        "grant_the_quota_of_others",
        "The own entry of an identity counts, and that of all others only without one.",
        "operator/smq_operator/api/auth.py",
        "quota=quota_of(managed.topic.spec.quotas, caller.identity, right),",
        'quota=quota_of(managed.topic.spec.quotas, "*", right),',
        ("tests/unit/operator/api/test_auth.py::test_a_grant_has_the_quota_of_its_caller",),
    ),
    Mutation(
        "keep_a_quota_that_changed",
        "The quota of the newest grant counts, also for streams that run.",
        GRANTS,
        "            known.meter.quota = grant.quota\n",
        "",
        (
            f"{TEST}::test_a_lane_is_not_read_while_its_quota_is_used_up_and_others_go_on",
            f"{TEST}::test_a_stream_to_which_the_leader_gives_a_quota_later_waits",
        ),
    ),
    Mutation(
        "bring_a_former_quota_back",
        "An older grant that is presented again changes nothing.",
        GRANTS,
        "        elif grant.expires_at >= known.expires_at:",
        "        else:",
        (f"{TEST}::test_a_stream_to_which_the_leader_gives_a_quota_later_waits",),
    ),
    Mutation(
        "begin_anew_with_each_stream",
        "Whoever connects again waits for what it has used before.",
        QUOTAS,
        "        self.streams += 1\n        return self._bytes.used, self._messages.used\n",
        "        self.streams += 1\n        return 0.0, 0.0\n",
        (f"{TEST_CORE}::test_a_new_stream_waits_for_what_others_have_used",),
    ),
    Mutation(
        "save_up_idle_time",
        "An idle time allows one burst, however long it was.",
        QUOTAS,
        "        self._pay(rate, now)  # first, because an idle time pays for no more than a burst\n",
        "",
        (f"{TEST_PROPERTY}::test_an_idle_time_allows_one_burst",),
    ),
    Mutation(
        "open_any_number_of_streams",
        "Streams above the quota are refused.",
        QUOTAS,
        "        if limit is not None and self.streams >= limit:\n",
        "        if limit is not None and self.streams >= limit + 1:\n",
        (f"{TEST}::test_streams_above_the_quota_are_refused_until_one_ends",),
    ),
    Mutation(
        "slow_down_a_reader_with_the_quota_of_writing",
        "The quota of a right is that of no other one.",
        QUOTAS,
        "    return entry.produce if right is Right.PRODUCE else entry.consume\n",
        "    return entry.produce\n",
        (f"{TEST_CORE}::test_an_own_entry_counts_as_a_whole",),
    ),
    Mutation(
        "end_a_producer_that_is_refused_once",
        "A quota of streams ends a producer only when it refuses for long.",
        "core/smq_core/producing/segment_sender.py",
        "now - self._refused_since >= QUOTA_TIMEOUT_SECONDS",
        "now >= self._refused_since",
        (
            "tests/unit/core/producing/test_producer_machine.py::test_a_quota_that_refuses_sessions_for_long_ends_the_producer",
        ),
    ),
    Mutation(
        "wait_in_the_threads_of_others",
        "While a quota is used up, only the lane's own thread writes, which may block.",
        "client/smq/producing/lanes/lane.py",
        "not self._unacked and not self._is_throttled\n",
        "not self._unacked\n",
        (
            "tests/unit/client/producing/test_lane_denials.py::test_only_the_thread_of_a_lane_waits_while_a_quota_is_used_up",
        ),
    ),
    Mutation(
        "hide_that_quotas_are_ignored",
        "A topic with quotas in an open release says that they limit nobody.",
        "operator/smq_operator/leader.py",
        "        is_open=security is None,\n",
        "        is_open=False,\n",
        ("tests/unit/operator/status/test_health.py::test_quotas_are_an_issue_of_an_open_release",),
    ),
)
