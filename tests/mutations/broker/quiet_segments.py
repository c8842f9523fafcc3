"""Broken rules of the flush interval that stretches: what is written when, and what is looked for meanwhile."""

from __future__ import annotations

from ..mutation import Mutation

INTERVAL = "core/smq_core/replica/flush_interval.py"
REPLICA = "core/smq_core/replica/segment_replica.py"
FLUSHER = "broker/smq_broker/segments/flusher.py"
TEST_INTERVAL = "tests/unit/core/replica/test_flush_interval.py"
TEST_QUIET = "tests/unit/broker/segments/test_quiet_segments.py"

MUTATIONS = (
    Mutation(
        "wait_longer_than_the_longest_interval",
        "A message waits for the longest interval at most.",
        INTERVAL,
        "    return max(interval, max_interval)\n",
        "    return max(interval, 2 * max_interval)\n",
        (f"{TEST_INTERVAL}::test_no_message_waits_longer_than_the_longest_interval",),
    ),
    Mutation(
        "wait_less_than_the_interval",
        "A longest interval below the interval shortens nothing.",
        INTERVAL,
        "    return max(interval, max_interval)\n",
        "    return max_interval\n",
        (f"{TEST_INTERVAL}::test_a_longest_interval_below_the_interval_shortens_nothing",),
    ),
    Mutation(
        "let_large_tails_wait",
        "A tail that is worth its request does not wait longer than the interval.",
        INTERVAL,
        " or tail_bytes >= WORTHWHILE_BYTES",
        "",
        (f"{TEST_INTERVAL}::test_the_interval_stretches_with_the_rate",),
    ),
    Mutation(
        "never_look_while_the_tail_waits",
        "A primary whose tail waits looks for a seal in each interval.",
        FLUSHER,
        "schedule.check_chain_end = machine.chain_check_due(now) or schedule.check_chain_end",
        "schedule.check_chain_end = False",
        (f"{TEST_QUIET}::test_a_seal_by_others_is_noticed_within_the_interval",),
    ),
    Mutation(
        "look_at_each_poll",
        "It looks once in each interval.",
        REPLICA,
        "        self._chain_checked = now\n",
        "",
        (f"{TEST_QUIET}::test_a_waiting_tail_costs_one_read_in_each_interval",),
    ),
    Mutation(
        "ignore_what_is_found",
        "An object where the next chunk will be fences the primary.",
        FLUSHER,
        "        if found is not None and is_open:\n",
        "        if False:\n",
        (f"{TEST_QUIET}::test_a_seal_by_others_is_noticed_within_the_interval",),
    ),
    Mutation(
        "write_while_the_chain_is_read",
        "No chunk is written while the chain's end is read, because the read would find it.",
        FLUSHER,
        "            schedule.queued = check_chain_end  #",
        "            schedule.queued = False  #",
        (f"{TEST_QUIET}::test_no_chunk_is_written_while_the_chain_is_read",),
    ),
    Mutation(
        "accept_a_longest_interval_below_the_interval",
        "A manifest's longest interval is at least its interval.",
        "storage/smq_storage/topic_manifests/fields.py",
        "longest is not None and longest < interval",
        "False",
        ("tests/unit/storage/test_manifest_parser.py::test_a_wrong_field_of_the_spec_is_named_with_what_to_write",),
    ),
    Mutation(
        "send_brokers_no_longest_interval",
        "Brokers learn the longest interval with the topic.",
        "proto/smq_proto/wire.py",
        "        flush_max_interval=spec.flush_max_interval or 0,\n",
        "",
        ("tests/unit/proto/test_wire.py::test_a_longest_flush_interval_goes_over_the_wire",),
    ),
)
