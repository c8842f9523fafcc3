"""Broken rules of Kafka's groups whose loss would skip messages, read them twice, or leave a partition unread."""

from __future__ import annotations

from .mutation import Mutation

GROUP = "core/smq_core/kafka_groups/group.py"
TEST_GROUP = "tests/unit/core/kafka_groups/test_group.py"
OFFSETS = "core/smq_core/kafka_groups/offsets.py"
TEST_OFFSETS = "tests/unit/core/kafka_groups/test_offsets.py"
HOSTED = "broker/smq_broker/kafka/groups/hosted_group.py"
COORDINATOR = "broker/smq_broker/kafka/groups/coordinator.py"
TEST_COORDINATOR = "tests/unit/broker/kafka/test_group_coordinator.py"

MUTATIONS = (
    Mutation(
        "answer_kafka_joins_before_the_generation_is_stored",
        "No member learns of a generation before it is stored.",
        GROUP,
        "if self.state is not GroupState.PREPARING or self.has_to_store:",
        "if self.state is not GroupState.PREPARING:",
        (f"{TEST_GROUP}::test_no_member_learns_of_a_generation_that_is_not_stored",),
    ),
    Mutation(
        "take_kafka_commits_of_another_generation",
        "Who lost its partitions in a rebalance commits nothing.",
        GROUP,
        "return GroupError.NONE if generation == self.generation else GroupError.ILLEGAL_GENERATION",
        "return GroupError.NONE",
        (f"{TEST_GROUP}::test_requests_of_another_generation_are_refused",),
    ),
    Mutation(
        "take_kafka_commits_of_strangers_while_a_group_has_members",
        "Who is no member commits only while a group has no members.",
        GROUP,
        "return GroupError.UNKNOWN_MEMBER_ID if len(self.members) else GroupError.NONE",
        "return GroupError.NONE",
        (f"{TEST_GROUP}::test_programs_without_a_membership_commit_only_while_there_are_no_members",),
    ),
    Mutation(
        "keep_kafka_members_without_heartbeats",
        "The partitions of a member that sends no heartbeats go to the others.",
        GROUP,
        "if it.deadline is not None and it.deadline <= now]",
        "if False]",
        (f"{TEST_GROUP}::test_a_member_that_sends_no_heartbeats_is_removed_and_the_others_rebalance",),
    ),
    Mutation(
        "keep_kafka_members_that_do_not_join_again",
        "The partitions of a member that does not join again go to the others.",
        GROUP,
        "if member.join is None and member.instance_id is None:",
        "if False:",
        (f"{TEST_GROUP}::test_who_does_not_join_again_is_removed_after_the_rebalance_timeout",),
    ),
    Mutation(
        "fence_no_former_process_of_a_static_member",
        "A static member that begins anew fences its former process.",
        GROUP,
        "if known is not None and known != member_id:",
        "if False:",
        (f"{TEST_GROUP}::test_a_static_member_that_begins_anew_keeps_its_assignment_and_fences_its_former_process",),
    ),
    Mutation(
        "take_kafka_commits_before_members_know_their_assignment",
        "A member that does not know its new assignment commits nothing in the new generation.",
        GROUP,
        "return GroupError.REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING else GroupError.NONE",
        "return GroupError.NONE",
        (f"{TEST_GROUP}::test_commits_are_taken_while_members_join_and_not_before_they_know_their_assignment",),
    ),
    Mutation(
        "keep_the_offsets_of_a_former_topic",
        "A topic that was deleted and created anew begins without offsets.",
        OFFSETS,
        "if uid in topics or it.topic not in names}",
        "}",
        (f"{TEST_OFFSETS}::test_a_topic_that_was_created_anew_begins_without_offsets",),
    ),
    Mutation(
        "ack_kafka_commits_before_they_are_written",
        "A commit is acked after its write.",
        HOSTED,
        "        return await asyncio.shield(pending.written)",
        "        return GroupError.NONE",
        (f"{TEST_COORDINATOR}::test_clients_repeat_what_the_filer_does_not_take",),
    ),
    Mutation(
        "read_kafka_offsets_before_commits_in_flight",
        "A client that asks for offsets gets the commits that came before.",
        COORDINATOR,
        "            await hosted.written()\n            return",
        "            return",
        (f"{TEST_COORDINATOR}::test_a_commit_is_acked_after_its_write_and_joined_with_others",),
    ),
    Mutation(
        "stay_the_coordinator_of_a_kafka_group_that_another_has",
        "A former coordinator overwrites no commits of the new one.",
        HOSTED,
        "if found is None or found[0].session != self.session:",
        "if found is None:",
        (f"{TEST_COORDINATOR}::test_the_next_coordinator_continues_generations_and_offsets",),
    ),
    Mutation(
        "begin_a_kafka_group_with_generation_0_after_a_failover",
        "The generations of a group never go back.",
        HOSTED,
        "KafkaGroup(settings, stored.generation)",
        "KafkaGroup(settings)",
        (f"{TEST_COORDINATOR}::test_the_next_coordinator_continues_generations_and_offsets",),
    ),
    Mutation(
        "never_check_who_has_a_kafka_group",
        "A former coordinator whose members commit nothing ends, too.",
        COORDINATOR,
        "if was_owned and stored.session != hosted.session:",
        "if False:",
        (f"{TEST_COORDINATOR}::test_a_former_coordinator_notices_without_a_commit",),
    ),
)
