"""Broken rules of the leader's page: what it shows, and that its history is bounded."""

from __future__ import annotations

from ..mutation import Mutation

HISTORY = "operator/smq_operator/dashboard/history.py"
OVERVIEW = "operator/smq_operator/dashboard/overview.py"
TEST_HISTORY = "tests/unit/operator/dashboard/test_history.py"
TEST_OVERVIEW = "tests/unit/operator/dashboard/test_overview.py"

MUTATIONS = (
    Mutation(
        "keep_rounds_for_ever",
        "The oldest rounds are dropped beyond each limit.",
        HISTORY,
        "            oldest = self._rounds.popleft()\n",
        "            oldest = self._rounds[0]\n            break\n",
        (f"{TEST_HISTORY}::test_the_oldest_rounds_go_beyond_any_limit",),
    ),
    Mutation(
        "show_segments_that_wait",
        "Open and sealing segments cover the ring; pending ones are not shown in it.",
        HISTORY,
        "if s.phase in (Phase.OPEN, Phase.SEALING)",
        "if s.phase is not Phase.SEALED",
        (f"{TEST_HISTORY}::test_a_segment_is_shown_until_it_is_sealed_and_its_successors_from_then_on",),
    ),
    Mutation(
        "hide_a_hot_range_among_many",
        "Ranges that are shown as one have the highest load among them.",
        HISTORY,
        "bytes(max(level for",
        "bytes(min(level for",
        (f"{TEST_HISTORY}::test_of_many_ranges_neighbours_are_shown_as_one_with_the_highest_load",),
    ),
    Mutation(
        "continue_the_picture_of_another_topic",
        "Another topic than the one asked for is shown from the beginning.",
        OVERVIEW,
        "since if chosen == topic else 0",
        "since",
        (f"{TEST_OVERVIEW}::test_the_chosen_topic_comes_with_its_segments_and_its_history",),
    ),
    Mutation(
        "show_no_issues",
        "A condition that is not as it should be is shown with its message.",
        OVERVIEW,
        "ConditionStatus.TRUE if c.type in GOOD_IF_TRUE else ConditionStatus.FALSE",
        "c.status",
        (f"{TEST_OVERVIEW}::test_a_topic_that_needs_attention_says_why",),
    ),
)
