"""Broken rules of groups and of readers that go elsewhere: lag, positions that are set, seeks, callbacks."""

from __future__ import annotations

from ..mutation import Mutation

LAG = "core/smq_core/reading/group_lag.py"
APPEND_TIMES = "core/smq_core/reading/append_times.py"
TEST_LAG = "tests/unit/core/reading/test_group_lag.py"
RULES = "core/smq_core/reading/position_rules.py"
TEST_RULES = "tests/unit/core/reading/test_position_rules.py"
REACH = "operator/smq_operator/groups/segment_reach.py"
CONSUMER = "client/smq/consumer.py"
MEMBERSHIP = "client/smq/consuming/groups/group_membership.py"
TEST_MEMBERSHIP = "tests/unit/client/consuming/test_group_membership.py"
COORDINATOR = "operator/smq_operator/groups/group_coordinator.py"
IDLE = "operator/smq_operator/groups/idle_groups.py"
CHANGES = "operator/smq_operator/groups/group_changes.py"
LAGS = "operator/smq_operator/groups/group_lags.py"
TEST_CHANGES = "tests/unit/operator/groups/test_group_changes.py"
ASSIGNED_READS = "client/smq/consuming/groups/assigned_reads.py"
MEMBER_POSITIONS = "client/smq/consuming/groups/member_positions.py"
OPEN_FETCHERS = "client/smq/consuming/fetching/open_fetchers.py"
TEST_CONSUMER = "tests/unit/client/consuming/test_consumer.py"
TEST_CONSUMER_GROUPS = "tests/unit/client/consuming/test_consumer_groups.py"
GROUP_END = "client/smq/consuming/groups/group_end.py"
TEST_GROUP_END = "tests/unit/client/consuming/test_group_end.py"

MUTATIONS = (
    Mutation(
        "acknowledge_an_assignment_that_is_not_applied",
        "The program can only be done with the segments of an assignment that was taken in.",
        MEMBERSHIP,
        "            return self._applied_generation",
        "            return self._generation",
        (f"{TEST_MEMBERSHIP}::test_an_assignment_is_not_acknowledged_before_it_is_applied",),
    ),
    Mutation(
        "look_for_revocations_without_the_lock",
        "What heartbeats add is read with the consumer's lock.",
        CONSUMER,
        "        with self._changed:\n            if self._events.revocation_pending:",
        "        if True:\n            if self._events.revocation_pending:",
        (f"{TEST_CONSUMER_GROUPS}::test_a_revoked_segment_can_be_committed_before_another_member_gets_it",),
    ),
    Mutation(
        "read_what_this_member_has_returned_again",
        "What this member has returned counts as read at the end, committed or not.",
        GROUP_END,
        "for positions in (committed, own):",
        "for positions in (committed,):",
        (f"{TEST_GROUP_END}::test_a_living_segment_that_no_broker_reports_may_have_more",),
    ),
    Mutation(
        "give_up_a_commit_that_leaves_segments_out",
        "A commit goes on while each refusal names segments of others.",
        MEMBERSHIP,
        "attempts = attempts + 1 if len(uncommitted) == before else 0",
        "attempts += 1",
        (f"{TEST_MEMBERSHIP}::test_a_commit_leaves_out_any_number_of_others_segments",),
    ),
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
        "        generation=next_generation(kept.generation),\n",
        "        generation=kept.generation,\n",
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
    Mutation(
        "commit_over_a_reset",
        "What was read before an administrator set the positions is not committed.",
        "core/smq_core/reading/consumer_group.py",
        "        if epoch != self.epoch:\n",
        "        if epoch is None:\n",
        (f"{TEST_CHANGES}::test_a_member_that_was_away_cannot_commit_over_a_change",),
    ),
    Mutation(
        "keep_the_epoch_at_a_reset",
        "Positions that are set begin a new epoch.",
        CHANGES,
        "            epoch=uuid.uuid4().hex,\n",
        "            epoch=stored.epoch,\n",
        (f"{TEST_CHANGES}::test_a_member_that_was_away_cannot_commit_over_a_change",),
    ),
    Mutation(
        "remove_the_file_of_a_deleted_group",
        "A late PUT or DELETE changes no group that was deleted or has begun anew.",
        CHANGES,
        "            self.groups.idle.remove(managed.topic.uid, name)\n            log.info(",
        "            self.groups.idle.remove(managed.topic.uid, name)\n"
        "            path = files.paths.group(managed.name, managed.topic.uid, name)\n"
        "            await self.store.run(lambda store: store.delete(path))\n"
        "            log.info(",
        (
            f"{TEST_CHANGES}::test_a_late_put_of_a_groups_beginning_does_not_undo_its_deletion",
            f"{TEST_CHANGES}::test_a_late_deletion_does_not_remove_a_group_that_has_begun_anew",
            f"{TEST_CHANGES}::test_the_generation_of_a_deleted_group_continues_when_it_begins_anew",
        ),
    ),
    Mutation(
        "begin_a_deleted_group_with_its_first_generation",
        "The generation of a group never goes back, also when it was deleted.",
        COORDINATOR,
        "        generation = next_generation(kept.generation)\n",
        "        generation = next_generation(0 if new else kept.generation)\n",
        (f"{TEST_CHANGES}::test_the_generation_of_a_deleted_group_continues_when_it_begins_anew",),
    ),
    Mutation(
        "begin_a_deleted_group_in_its_former_epoch",
        "A group that was deleted begins in another epoch.",
        COORDINATOR,
        "        epoch = uuid.uuid4().hex if new else kept.epoch\n",
        "        epoch = kept.epoch\n",
        (f"{TEST_CHANGES}::test_a_member_of_a_group_that_was_deleted_twice_forgets_its_positions",),
    ),
    Mutation(
        "count_deleted_groups",
        "A deleted group is not shown, and retention does not wait for it.",
        IDLE,
        " if kept is None or not kept.deleted}",
        "}",
        (f"{TEST_CHANGES}::test_a_deleted_group_is_gone_and_begins_anew",),
    ),
    Mutation(
        "go_on_at_ones_own_position_after_a_reset",
        "A member forgets its positions when those of the group were set.",
        CONSUMER,
        "                self._assigned.reset(epoch)\n",
        "                self._member.epoch = epoch\n",
        (f"{TEST_CONSUMER_GROUPS}::test_a_member_forgets_its_positions_when_the_groups_were_set",),
    ),
    Mutation(
        "commit_over_a_reset_that_was_just_learned_of",
        "A commit names the epoch in which its messages were read.",
        MEMBERSHIP,
        "                epoch=epoch,\n",
        "                epoch=self._epoch,\n",
        (f"{TEST_MEMBERSHIP}::test_what_was_read_before_a_reset_is_not_committed_after_the_member_has_learned_of_it",),
    ),
    # ---- commits
    Mutation(
        "forget_a_refused_commit",
        "A commit that the leader refuses is made when the member has joined again.",
        MEMBERSHIP,
        "            assigned = self._join()\n",
        "            assigned = self._join()\n            return Committed({}, {})\n",
        (
            f"{TEST_MEMBERSHIP}::test_a_commit_of_a_member_that_the_leader_forgot_joins_again_and_is_made",
            f"{TEST_CONSUMER_GROUPS}::test_a_commit_that_the_leader_refused_is_made_after_the_member_has_joined_again",
        ),
    ),
    Mutation(
        "commit_what_was_not_returned",
        "A position beyond what the consumer has returned is refused.",
        MEMBER_POSITIONS,
        "            elif offset > self._returned_before_reset.get(segment, 0):\n",
        "            else:\n                found[segment] = offset\n            if offset < 0:\n",
        (f"{TEST_CONSUMER_GROUPS}::test_a_position_beyond_what_was_returned_is_refused",),
    ),
    Mutation(
        "accept_a_commit_beyond_the_end",
        "The leader refuses a position beyond what can have been read.",
        COORDINATOR,
        "        await self._reach.check_read(managed, positions)\n",
        "",
        (
            f"{TEST_CHANGES}::test_a_commit_beyond_the_end_is_refused_and_changes_nothing",
            f"{TEST_CHANGES}::test_a_commit_beyond_the_end_of_a_sealed_segment_shows_no_loss",
        ),
    ),
    Mutation(
        "refuse_commits_that_no_report_has_shown",
        "A position beyond the last report is checked with the brokers.",
        REACH,
        "        return enough | confirmed\n",
        "        return living | confirmed\n",
        (f"{TEST_CHANGES}::test_a_commit_is_checked_by_a_follower_and_accepted_if_nobody_can_say",),
    ),
    Mutation(
        "refuse_what_only_the_chain_has",
        "Nothing is refused before the chain's end was read.",
        REACH,
        "        stored = await self._chain_ends(managed, impossible)\n",
        "        stored = dict.fromkeys(impossible, 0)\n",
        (f"{TEST_CHANGES}::test_a_commit_of_a_stored_chunk_that_its_primary_does_not_know_of_is_accepted",),
    ),
    Mutation(
        "refuse_commits_that_no_chain_has_shown",
        "Nothing is refused while the chain cannot be read.",
        REACH,
        "            if name in stored or name not in impossible\n",
        "",
        (f"{TEST_CHANGES}::test_a_commit_is_accepted_if_the_chain_cannot_be_read",),
    ),
    Mutation(
        "refuse_commits_of_a_segment_that_is_being_sealed",
        "The primary of a segment that is being sealed proves nobody wrong.",
        REACH,
        " for segment in beyond if not segment.successors]",
        " for segment in beyond]",
        (f"{TEST_CHANGES}::test_a_commit_is_accepted_while_a_replica_seals_the_segment",),
    ),
    Mutation(
        "take_the_follower_that_is_ahead",
        "Of the followers of a silent primary, the one with the least says what was acked.",
        REACH,
        "min(upto, found.get(name, upto))",
        "max(upto, found.get(name, upto))",
        (f"{TEST_CHANGES}::test_an_unresponsive_primary_is_replaced_by_the_follower_with_the_least",),
    ),
    Mutation(
        "accept_any_position_of_a_segment_that_is_not_open_yet",
        "Of a segment that its replicas have not opened, nobody has read more than was reported.",
        REACH,
        "                    upto = known.get(name, 0)\n",
        "                    continue\n",
        (f"{TEST_CHANGES}::test_nobody_has_read_a_segment_that_its_replicas_have_not_opened",),
    ),
    Mutation(
        "begin_at_the_end_of_the_last_report",
        "A new group at the latest gets no message from before.",
        COORDINATOR,
        "reconciler.watermarks | await self._reach.poll(managed, layout.segments)",
        "reconciler.watermarks",
        (f"{TEST_CHANGES}::test_a_new_group_at_the_latest_gets_no_message_from_before",),
    ),
    # ---- segments that end
    Mutation(
        "wait_for_a_commit_and_say_nothing",
        "The program learns that the group waits for its commit.",
        CONSUMER,
        "                self._ended.add(segment, end, time.monotonic())\n",
        "",
        (f"{TEST_CONSUMER_GROUPS}::test_the_program_learns_which_commit_its_group_waits_for",),
    ),
    Mutation(
        "leave_the_end_of_a_segment_to_the_next_auto_commit",
        "With auto_commit the end of a segment is committed at once.",
        CONSUMER,
        "        elif ended or waited or",
        "        elif waited or",
        (f"{TEST_CONSUMER_GROUPS}::test_a_segment_that_has_ended_is_committed_at_once_with_auto_commit",),
    ),
    Mutation(
        "hide_which_commit_a_group_waits_for",
        "`smq group describe` says which commit the group waits for.",
        "core/smq_core/reading/consumer_group.py",
        "        known.last_heartbeat_at, known.ended = now, dict(ended or {})\n",
        "        known.last_heartbeat_at = now\n",
        (f"{TEST_CHANGES}::test_the_group_says_which_commit_its_successors_wait_for",),
    ),
    # ---- the end of a group
    Mutation(
        "end_a_group_at_the_end_of_ones_own_segments",
        "A group is at its end when every segment is read.",
        CONSUMER,
        "            if self._group_end is None or not at_end:\n",
        "            if True:\n",
        (f"{TEST_CONSUMER_GROUPS}::test_a_group_is_at_its_end_when_every_segment_is_read",),
    ),
    Mutation(
        "forget_the_end_while_the_program_polls",
        "A result of the search for the end counts once, however old it is.",
        GROUP_END,
        "counts = not found.is_used or time",
        "counts = time",
        (f"{TEST_GROUP_END}::test_a_result_counts_once_however_old_it_is",),
    ),
    Mutation(
        "search_the_end_only_if_it_is_not_known",
        "Each call of at_end starts the search whose result the next call gets.",
        CONSUMER,
        "            self._searching_end.due = True\n",
        "            self._searching_end.due = self._searching_end.due or not self._group_end._found\n",
        (f"{TEST_CONSUMER_GROUPS}::test_a_program_that_polls_for_long_sees_the_end",),
    ),
    Mutation(
        "take_the_end_of_files_for_that_of_a_segment",
        "A living segment that no broker reports may have messages that are in no file.",
        GROUP_END,
        "node.end is None and name in state.flushed and",
        "node.end is None and",
        (f"{TEST_GROUP_END}::test_a_living_segment_that_no_broker_reports_may_have_more",),
    ),
    Mutation(
        "search_the_end_of_one_topic_after_the_other",
        "The ends of all topics are searched at the same time, so that they are known at the same time.",
        "client/smq/topics_consumer.py",
        "        ends = [consumer.at_end() for consumer in self._consumers.values()]\n",
        "        ends = (consumer.at_end() for consumer in self._consumers.values())\n",
        (f"{TEST_GROUP_END}::test_the_end_of_every_topic_is_searched_at_once",),
    ),
    Mutation(
        "read_awaited_commits_without_the_lock",
        "A heartbeat reads which commits are awaited while no other thread changes them.",
        CONSUMER,
        "        with self._changed:\n            return self._ended.ends\n",
        "        return self._ended.ends\n",
        (f"{TEST_CONSUMER_GROUPS}::test_a_heartbeat_reads_awaited_commits_with_the_lock",),
    ),
    Mutation(
        "commit_after_close",
        "A commit after close is an error.",
        CONSUMER,
        "        if self._membership.has_left:",
        "        if False:",
        (f"{TEST_CONSUMER_GROUPS}::test_a_commit_after_close_is_an_error_and_does_not_join_again",),
    ),
    Mutation(
        "join_a_group_again_after_leaving_it",
        "A member that has left does not join again.",
        MEMBERSHIP,
        "            if self.has_left:",
        "            if False:",
        (f"{TEST_CONSUMER_GROUPS}::test_a_commit_after_close_is_an_error_and_does_not_join_again",),
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
