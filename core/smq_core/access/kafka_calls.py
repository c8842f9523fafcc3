"""What a Kafka client needs for each API of a secure release. Nobody may use an API that is not in the table.

A test compares the table with the APIs that a broker has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from smq_core.access.rights import Right


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCall:
    """``rights``: the client needs one of them on each topic of the request, ``verb`` if it is one on the resource.

    ``uses_group``: it needs the right to use each group of the request. ``before_login``: anybody may use it.
    """

    rights: tuple[Right, ...] = ()
    verb: str = ""
    uses_group: bool = False
    before_login: bool = False


_BEFORE_LOGIN = KafkaCall(before_login=True)
# It is about no topic and no group, or shows where one is.
_ANYBODY = KafkaCall()
_PRODUCE, _CONSUME = KafkaCall(rights=(Right.PRODUCE,)), KafkaCall(rights=(Right.CONSUME,))
_SEE = KafkaCall(rights=tuple(Right))
_GROUP = KafkaCall(uses_group=True)
_OFFSETS = KafkaCall(rights=(Right.CONSUME,), uses_group=True)

# By Kafka's number of the API.
KAFKA_CALLS: Mapping[int, KafkaCall] = MappingProxyType(
    {
        0: _PRODUCE,
        1: _CONSUME,  # Fetch
        2: _CONSUME,  # ListOffsets
        3: _SEE,  # Metadata
        8: _OFFSETS,  # OffsetCommit
        9: _OFFSETS,  # OffsetFetch
        10: _ANYBODY,  # FindCoordinator
        11: _GROUP,  # JoinGroup
        12: _GROUP,  # Heartbeat
        13: _GROUP,  # LeaveGroup
        14: _GROUP,  # SyncGroup
        15: _GROUP,  # DescribeGroups
        16: _GROUP,  # ListGroups
        17: _BEFORE_LOGIN,  # SaslHandshake
        18: _BEFORE_LOGIN,  # ApiVersions
        19: KafkaCall(verb="create"),  # CreateTopics
        20: KafkaCall(verb="delete"),  # DeleteTopics
        21: KafkaCall(rights=(Right.ADMINISTER,)),  # DeleteRecords
        22: _ANYBODY,  # InitProducerId: the ids are random, and what is written with one needs its right
        23: _CONSUME,  # OffsetForLeaderEpoch
        29: _ANYBODY,  # DescribeAcls: there are none
        30: _ANYBODY,  # CreateAcls
        31: _ANYBODY,  # DeleteAcls
        32: _SEE,  # DescribeConfigs
        33: KafkaCall(verb="update"),  # AlterConfigs
        36: _BEFORE_LOGIN,  # SaslAuthenticate
        37: KafkaCall(verb="update"),  # CreatePartitions
        42: _GROUP,  # DeleteGroups
        44: KafkaCall(verb="update"),  # IncrementalAlterConfigs
        47: _OFFSETS,  # OffsetDelete
        60: _ANYBODY,  # DescribeCluster
        68: _GROUP,  # ConsumerGroupHeartbeat
        69: _GROUP,  # ConsumerGroupDescribe
        75: _SEE,  # DescribeTopicPartitions
    }
)
