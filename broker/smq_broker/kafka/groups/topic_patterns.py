"""Subscriptions by a pattern, in the syntax of RE2, which Kafka's brokers have too.

RE2 takes time in proportion to the name, whatever the pattern is. Python's expressions may take years for a pattern
that a client has chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

from smq_broker.kafka.groups.coordinator import GroupFailure
from smq_core.kafka_groups.group_errors import GroupError

MAX_PATTERN_CHARACTERS = 4096
# What RE2 may use for one pattern.
MAX_PATTERN_BYTES = 1 << 20


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole. Raises GroupFailure if the pattern is no valid one."""
    import re2  # few groups have patterns

    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise GroupFailure(
            GroupError.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has {len(pattern)} characters, {MAX_PATTERN_CHARACTERS} are allowed",
        )
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_PATTERN_BYTES, False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise GroupFailure(
            GroupError.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex is no valid expression of RE2: {error.args[0]!r}",
        ) from None
    return frozenset(name for name in names if compiled.fullmatch(name))
