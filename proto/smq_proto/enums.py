"""The closed sets of the wire: enums there, and readable words in the model, files, resources and the command line."""

from __future__ import annotations

from typing import Any

from smq_core.access.rights import Right
from smq_core.errors import InvalidRequest
from smq_core.model.decision import DecisionAction
from smq_core.model.group_start import GroupStart
from smq_core.model.segment_action import SegmentAction
from smq_proto.v1 import admin_pb2, data_pb2, groups_pb2

_SEPARATORS = str.maketrans(" -", "__")


class WireEnum:
    """``kind`` has a value for each word: the prefix and the word in capitals, with ``_`` between its parts."""

    def __init__(self, kind: Any, prefix: str, *words: str) -> None:
        self.kind, self.words = kind, words
        self._values: dict[str, int] = {
            word: kind.Value(prefix + word.upper().translate(_SEPARATORS)) for word in words
        }
        self._words = {value: word for word, value in self._values.items()}

    def value(self, word: str) -> Any:
        """The enum's value. Raises InvalidRequest for a word that is not in the set."""
        if word not in self._values:
            raise InvalidRequest(f"{word!r} is none of {', '.join(self.words)}")
        return self._values[word]

    def word(self, value: int) -> str:
        """Raises InvalidRequest for a value that is missing, or that this version does not know."""
        if value not in self._words:
            what = f"the unknown value {value}" if value else "no value"
            raise InvalidRequest(
                f"a field of the type {self.kind.DESCRIPTOR.full_name} has {what}; known here are "
                f"{', '.join(self.words)}. If the other side is newer, upgrade this one"
            )
        return self._words[value]

    def shown(self, value: int) -> str:
        """The word for people: empty if there is no value, and ``unknown`` for one that this version does not know."""
        return self._words.get(value, "unknown" if value else "")


DURABILITY = WireEnum(data_pb2.Durability, "DURABILITY_", "Replicated", "Stored")
PARTITIONER = WireEnum(data_pb2.Partitioner, "PARTITIONER_", "Hash", "Kafka")
PHASE = WireEnum(data_pb2.Phase, "PHASE_", "pending", "open", "sealing", "sealed")
REASON = WireEnum(
    data_pb2.Reason,
    "REASON_",
    *("Create", "Split", "Merge", "Failover", "Drain", "Roll", "Rebalance", "Manual", "Schema"),
)
REPLICA_STATE = WireEnum(data_pb2.SegmentReport.State, "", "waiting", "open", "fenced", "sealed")
BROKER_STATE = WireEnum(
    admin_pb2.BrokerList.Broker.State, "", "alive", "suspect", "ended", "recovered", "gone", "draining"
)
APPLY_RESULT = WireEnum(admin_pb2.ApplyTopicReply.Result, "", "created", "configured", "unchanged")
DECISION_ACTION = WireEnum(admin_pb2.DecisionList.Decision.Action, "", *DecisionAction)
RIGHT = WireEnum(data_pb2.Right, "RIGHT_", *(right.value for right in Right))
SEGMENT_ACTION = WireEnum(admin_pb2.ChangeSegmentsRequest.Action, "", *SegmentAction)
GROUP_START = WireEnum(groups_pb2.JoinGroupRequest.Start, "", *GroupStart, "positions")
