from google.protobuf import empty_pb2 as _empty_pb2
from smq_proto.v1 import data_pb2 as _data_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "member", "start", "generation", "start_positions", "ended")
    class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[JoinGroupRequest.Start]
        EARLIEST: _ClassVar[JoinGroupRequest.Start]
        LATEST: _ClassVar[JoinGroupRequest.Start]
        POSITIONS: _ClassVar[JoinGroupRequest.Start]
    UNSPECIFIED: JoinGroupRequest.Start
    EARLIEST: JoinGroupRequest.Start
    LATEST: JoinGroupRequest.Start
    POSITIONS: JoinGroupRequest.Start
    class StartPositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class EndedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    member: str
    start: JoinGroupRequest.Start
    generation: int
    start_positions: _containers.ScalarMap[str, int]
    ended: _containers.ScalarMap[str, int]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., member: _Optional[str] = ..., start: _Optional[_Union[JoinGroupRequest.Start, str]] = ..., generation: _Optional[int] = ..., start_positions: _Optional[_Mapping[str, int]] = ..., ended: _Optional[_Mapping[str, int]] = ...) -> None: ...

class GroupAssignment(_message.Message):
    __slots__ = ("member", "generation", "positions", "heartbeat_ms", "epoch")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    member: str
    generation: int
    positions: _containers.ScalarMap[str, int]
    heartbeat_ms: int
    epoch: str
    def __init__(self, member: _Optional[str] = ..., generation: _Optional[int] = ..., positions: _Optional[_Mapping[str, int]] = ..., heartbeat_ms: _Optional[int] = ..., epoch: _Optional[str] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "member")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    member: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., member: _Optional[str] = ...) -> None: ...

class CommitPositionsRequest(_message.Message):
    __slots__ = ("topic", "group", "member", "generation", "positions", "known_losses", "epoch")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class KnownLossesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_LOSSES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    member: str
    generation: int
    positions: _containers.ScalarMap[str, int]
    known_losses: _containers.ScalarMap[str, int]
    epoch: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., positions: _Optional[_Mapping[str, int]] = ..., known_losses: _Optional[_Mapping[str, int]] = ..., epoch: _Optional[str] = ...) -> None: ...

class GetPositionsRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class GroupPositions(_message.Message):
    __slots__ = ("positions", "lost", "lost_with_replicas")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class SegmentLoss(_message.Message):
        __slots__ = ("segment", "loss", "acknowledged")
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        LOSS_FIELD_NUMBER: _ClassVar[int]
        ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
        segment: str
        loss: _data_pb2.Loss
        acknowledged: bool
        def __init__(self, segment: _Optional[str] = ..., loss: _Optional[_Union[_data_pb2.Loss, _Mapping]] = ..., acknowledged: _Optional[bool] = ...) -> None: ...
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LOST_WITH_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.ScalarMap[str, int]
    lost: _containers.RepeatedCompositeFieldContainer[GroupPositions.SegmentLoss]
    lost_with_replicas: _containers.RepeatedCompositeFieldContainer[GroupPositions.SegmentLoss]
    def __init__(self, positions: _Optional[_Mapping[str, int]] = ..., lost: _Optional[_Iterable[_Union[GroupPositions.SegmentLoss, _Mapping]]] = ..., lost_with_replicas: _Optional[_Iterable[_Union[GroupPositions.SegmentLoss, _Mapping]]] = ...) -> None: ...

class SetPositionsRequest(_message.Message):
    __slots__ = ("topic", "group", "positions", "create", "dry_run")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    positions: _containers.ScalarMap[str, int]
    create: bool
    dry_run: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., positions: _Optional[_Mapping[str, int]] = ..., create: _Optional[bool] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SetPositionsReply(_message.Message):
    __slots__ = ("before", "positions", "generation")
    class BeforeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    before: _containers.ScalarMap[str, int]
    positions: _containers.ScalarMap[str, int]
    generation: int
    def __init__(self, before: _Optional[_Mapping[str, int]] = ..., positions: _Optional[_Mapping[str, int]] = ..., generation: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("topic", "page_token", "kafka_group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KAFKA_GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_token: str
    kafka_group: str
    def __init__(self, topic: _Optional[str] = ..., page_token: _Optional[str] = ..., kafka_group: _Optional[str] = ...) -> None: ...

class GroupList(_message.Message):
    __slots__ = ("groups", "next_page_token", "kafka_groups")
    class KafkaGroup(_message.Message):
        __slots__ = ("name", "unreadable", "lag", "committed_at", "last_active_at", "partitions")
        NAME_FIELD_NUMBER: _ClassVar[int]
        UNREADABLE_FIELD_NUMBER: _ClassVar[int]
        LAG_FIELD_NUMBER: _ClassVar[int]
        COMMITTED_AT_FIELD_NUMBER: _ClassVar[int]
        LAST_ACTIVE_AT_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        name: str
        unreadable: bool
        lag: int
        committed_at: int
        last_active_at: int
        partitions: _containers.RepeatedCompositeFieldContainer[GroupList.KafkaPartition]
        def __init__(self, name: _Optional[str] = ..., unreadable: _Optional[bool] = ..., lag: _Optional[int] = ..., committed_at: _Optional[int] = ..., last_active_at: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[GroupList.KafkaPartition, _Mapping]]] = ...) -> None: ...
    class KafkaPartition(_message.Message):
        __slots__ = ("partition", "committed", "end")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        COMMITTED_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        partition: int
        committed: int
        end: int
        def __init__(self, partition: _Optional[int] = ..., committed: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
    class Group(_message.Message):
        __slots__ = ("name", "generation", "members", "positions", "unreadable", "lag", "lag_seconds", "segments", "committed_at", "last_active_at")
        class PositionsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        NAME_FIELD_NUMBER: _ClassVar[int]
        GENERATION_FIELD_NUMBER: _ClassVar[int]
        MEMBERS_FIELD_NUMBER: _ClassVar[int]
        POSITIONS_FIELD_NUMBER: _ClassVar[int]
        UNREADABLE_FIELD_NUMBER: _ClassVar[int]
        LAG_FIELD_NUMBER: _ClassVar[int]
        LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
        SEGMENTS_FIELD_NUMBER: _ClassVar[int]
        COMMITTED_AT_FIELD_NUMBER: _ClassVar[int]
        LAST_ACTIVE_AT_FIELD_NUMBER: _ClassVar[int]
        name: str
        generation: int
        members: _containers.RepeatedScalarFieldContainer[str]
        positions: _containers.ScalarMap[str, int]
        unreadable: bool
        lag: int
        lag_seconds: float
        segments: _containers.RepeatedCompositeFieldContainer[GroupList.SegmentLag]
        committed_at: int
        last_active_at: int
        def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., members: _Optional[_Iterable[str]] = ..., positions: _Optional[_Mapping[str, int]] = ..., unreadable: _Optional[bool] = ..., lag: _Optional[int] = ..., lag_seconds: _Optional[float] = ..., segments: _Optional[_Iterable[_Union[GroupList.SegmentLag, _Mapping]]] = ..., committed_at: _Optional[int] = ..., last_active_at: _Optional[int] = ...) -> None: ...
    class SegmentLag(_message.Message):
        __slots__ = ("segment", "position", "end", "member", "waits_for_commit")
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        POSITION_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        MEMBER_FIELD_NUMBER: _ClassVar[int]
        WAITS_FOR_COMMIT_FIELD_NUMBER: _ClassVar[int]
        segment: str
        position: int
        end: int
        member: str
        waits_for_commit: bool
        def __init__(self, segment: _Optional[str] = ..., position: _Optional[int] = ..., end: _Optional[int] = ..., member: _Optional[str] = ..., waits_for_commit: _Optional[bool] = ...) -> None: ...
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KAFKA_GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupList.Group]
    next_page_token: str
    kafka_groups: _containers.RepeatedCompositeFieldContainer[GroupList.KafkaGroup]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupList.Group, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., kafka_groups: _Optional[_Iterable[_Union[GroupList.KafkaGroup, _Mapping]]] = ...) -> None: ...
