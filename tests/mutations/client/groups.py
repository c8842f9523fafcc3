"""Broken rules of groups and of readers that go elsewhere: lag, positions that are set, seeks, callbacks."""

from __future__ import annotations

from ..mutation import Mutation

LAG = "core/smq_core/reading/group_lag.py"
APPEND_TIMES = "core/smq_core/reading/append_times.py"
TEST_LAG = "tests/unit/core/reading/test_group_lag.py"
RULES = "core/smq_core/reading/position_rules.py"
TEST_RULES = "tests/unit/core/reading/test_position_rules.py"
COORDINATOR = "operator/smq_operator/api/group_coordinator.py"
IDLE = "operator/smq_operator/api/idle_groups.py"
CHANGES = "operator/smq_operator/api/group_changes.py"
LAGS = "operator/smq_operator/api/group_lags.py"
TEST_CHANGES = "tests/unit/operator/api/test_group_changes.py"
ASSIGNED_READS = "client/smq/consuming/groups/assigned_reads.py"
MEMBER_POSITIONS = "client/smq/consuming/groups/member_positions.py"
OPEN_FETCHERS = "client/smq/consuming/fetching/open_fetchers.py"
TEST_CONSUMER = "tests/unit/client/consuming/test_consumer.py"
TEST_CONSUMER_GROUPS = "tests/unit/client/consuming/test_consumer_groups.py"

MUTATIONS = (
    # ---- lag
    Mutation(
        "count_what_a_group_has_read_as_lag",
        "A segment counts as read if the group has a position in a successor.",
        LAG,
        "            if name in read or name in positions:\n",
        "            if name in read:\n",
        (f"{TEST_LAG}::test_what_is_readable_and_not_committed_counts",),
    ),
    Mutation(
        "take_a_rest_for_old_messages",
        "A message that is appended after a long rest is not as old as the rest.",
        APPEND_TIMES,
        "            self.times[-1] = max(now, self.times[-1])\n            return\n",
        "            return\n",
        (f"{TEST_LAG}::test_a_message_after_a_long_rest_is_not_as_old_as_the_rest",),
    ),
    Mutation(
        "show_every_group_in_metrics",
        "The number of groups of a topic in metrics is bounded.",
        LAGS,
        "recent[:MAX_REPORTED_GROUPS]",
        "recent",
        (f"{TEST_CHANGES}::test_the_metrics_have_a_bounded_number_of_groups_of_a_topic",),
    ),
    Mutation(
        "know_loaded_groups_only",
        "The metrics have groups that no member has called this leader for.",
        LAGS,
        "                    await self._groups.idle.scan_if_due(managed.topic)\n",
        "                    pass\n",
        (f"{TEST_CHANGES}::test_the_metrics_have_groups_that_no_member_has_called_this_leader_for",),
    ),
    # ---- changes by administrators
    Mutation(
        "show_the_generation_of_the_file",
        "The generation that is shown never goes back.",
        IDLE,
        "                    next_generation(kept.generation),\n",
        "                    kept.generation,\n",
        (f"{TEST_CHANGES}::test_the_generation_that_is_shown_never_goes_back",),
    ),
    Mutation(
        "set_positions_while_members_read",
        "Positions are set only while the group has no members.",
        COORDINATOR,
        "                if it.group.members:\n                    members",
        "                if it.group.members is None:\n                    members",
        (f"{TEST_CHANGES}::test_nothing_is_set_or_deleted_while_members_read",),
    ),
    Mutation(
        "set_positions_before_members_have_called",
        "A new leader changes no group whose members may not have called it yet.",
        COORDINATOR,
        "            if it is None and left > 0:\n",
        "            if it is None and left > MEMBER_TIMEOUT:\n",
        (f"{TEST_CHANGES}::test_a_new_leader_changes_no_group_whose_members_it_may_not_know_yet",),
    ),
    Mutation(
        "change_something_in_a_dry_run",
        "A dry run changes nothing.",
        CHANGES,
        "            if dry_run:\n",
        "            if dry_run and not create and not found:\n",
        (f"{TEST_CHANGES}::test_a_dry_run_checks_everything_and_changes_nothing",),
    ),
    # ---- positions
    Mutation(
        "accept_offsets_beyond_the_end",
        "A position beyond the end of a segment is refused.",
        RULES,
        "if offset < 0 or (end is not None and offset > end):",
        "if offset < 0:",
        (f"{TEST_RULES}::test_positions_that_cannot_be_are_refused_with_what_can",),
    ),
    Mutation(
        "accept_positions_that_contradict_each_other",
        "A reader enters a segment only after it has read what comes before.",
        RULES,
        "if before in known and (end is None or known[before] < end):",
        "if before in known and end is None:",
        (f"{TEST_RULES}::test_positions_that_cannot_be_are_refused_with_what_can",),
    ),
    Mutation(
        "read_neighbours_again_after_a_seek",
        "A segment that was read stays read, although a seek removes the position that said so.",
        "core/smq_core/reading/segment_dag.py",
        "                self.positions[name] = end\n        later",
        "                pass\n        later",
        (
            "tests/unit/core/reading/test_seek.py"
            "::test_a_neighbour_that_was_read_stays_read_although_what_implied_it_is_read_again",
        ),
    ),
    # ---- members
    Mutation(
        "undo_a_seek_at_the_next_heartbeat",
        "A member that has gone back is not moved on by the positions that the group has committed.",
        MEMBER_POSITIONS,
        "return position > max(own, known)",
        "return position > own",
        (f"{TEST_CONSUMER_GROUPS}::test_a_member_that_goes_back_is_not_moved_on_by_its_next_heartbeat",),
    ),
    Mutation(
        "give_a_segment_up_before_the_program_knows",
        "A revoked segment can be committed in on_revoked, before another member gets it.",
        ASSIGNED_READS,
        "        if self._events.revocation_pending:\n            return True\n",
        "",
        (f"{TEST_CONSUMER_GROUPS}::test_a_revoked_segment_can_be_committed_before_another_member_gets_it",),
    ),
    Mutation(
        "forget_a_pause_at_a_seek",
        "A seek does not end a pause.",
        OPEN_FETCHERS,
        "        if plan.segment in self.paused:\n            self._buffer.pause(self._fetchers[plan.segment])\n",
        "",
        (f"{TEST_CONSUMER}::test_nothing_of_a_paused_segment_is_returned_until_it_is_resumed",),
    ),
)
