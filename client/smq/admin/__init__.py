"""The admin API: topics, segments, brokers and groups, and manual changes to them."""

from smq.admin.admin import Admin
from smq.admin.broker_infos import BrokerInfo, DecisionInfo, PinInfo, SegmentLoad, StoryEvent
from smq.admin.caller_infos import AccessCheck, AuthorityInfo, AuthorityRotation, CallerInfo
from smq.admin.filer_keys import FilerKeys
from smq.admin.group_infos import GroupInfo, GroupReset, GroupSegment
from smq.admin.kafka_group_infos import KafkaGroupInfo, KafkaGroupPartition
from smq.admin.topic_infos import (
    AlteredTopic,
    AppliedTopic,
    Condition,
    ProblemInfo,
    RecoveredTopic,
    SegmentInfo,
    TopicChange,
    TopicInfo,
    TopicSetting,
    TrimmedSegment,
    TrimmedTopic,
)

__all__ = [
    "AccessCheck",
    "Admin",
    "AlteredTopic",
    "AppliedTopic",
    "AuthorityInfo",
    "AuthorityRotation",
    "BrokerInfo",
    "CallerInfo",
    "Condition",
    "DecisionInfo",
    "FilerKeys",
    "GroupInfo",
    "GroupReset",
    "GroupSegment",
    "KafkaGroupInfo",
    "KafkaGroupPartition",
    "PinInfo",
    "ProblemInfo",
    "RecoveredTopic",
    "SegmentInfo",
    "SegmentLoad",
    "StoryEvent",
    "TopicChange",
    "TopicInfo",
    "TopicSetting",
    "TrimmedSegment",
    "TrimmedTopic",
]
