from smq_proto.v1 import data_pb2 as _data_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerReport(_message.Message):
    __slots__ = ("protocol", "broker", "incarnation", "address", "node", "zone", "status", "unresponsive", "leaving", "recovered", "last_leader", "last_answer")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    UNRESPONSIVE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    LAST_LEADER_FIELD_NUMBER: _ClassVar[int]
    LAST_ANSWER_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    broker: str
    incarnation: str
    address: str
    node: str
    zone: str
    status: _data_pb2.BrokerStatus
    unresponsive: _containers.RepeatedScalarFieldContainer[str]
    leaving: bool
    recovered: _containers.RepeatedScalarFieldContainer[str]
    last_leader: str
    last_answer: int
    def __init__(self, protocol: _Optional[int] = ..., broker: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., node: _Optional[str] = ..., zone: _Optional[str] = ..., status: _Optional[_Union[_data_pb2.BrokerStatus, _Mapping]] = ..., unresponsive: _Optional[_Iterable[str]] = ..., leaving: _Optional[bool] = ..., recovered: _Optional[_Iterable[str]] = ..., last_leader: _Optional[str] = ..., last_answer: _Optional[int] = ...) -> None: ...

class BrokerReportReply(_message.Message):
    __slots__ = ("may_leave", "assigned", "drain", "others_drain", "leader", "answer")
    MAY_LEAVE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    OTHERS_DRAIN_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    may_leave: bool
    assigned: _containers.RepeatedScalarFieldContainer[str]
    drain: bool
    others_drain: bool
    leader: str
    answer: int
    def __init__(self, may_leave: _Optional[bool] = ..., assigned: _Optional[_Iterable[str]] = ..., drain: _Optional[bool] = ..., others_drain: _Optional[bool] = ..., leader: _Optional[str] = ..., answer: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("segments", "removed")
    class Removed(_message.Message):
        __slots__ = ("numbers", "segments")
        NUMBERS_FIELD_NUMBER: _ClassVar[int]
        SEGMENTS_FIELD_NUMBER: _ClassVar[int]
        numbers: _containers.RepeatedCompositeFieldContainer[HistoryReply.Range]
        segments: _containers.RepeatedCompositeFieldContainer[_data_pb2.Segment]
        def __init__(self, numbers: _Optional[_Iterable[_Union[HistoryReply.Range, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[_data_pb2.Segment, _Mapping]]] = ...) -> None: ...
    class Range(_message.Message):
        __slots__ = ("start", "stop")
        START_FIELD_NUMBER: _ClassVar[int]
        STOP_FIELD_NUMBER: _ClassVar[int]
        start: int
        stop: int
        def __init__(self, start: _Optional[int] = ..., stop: _Optional[int] = ...) -> None: ...
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[_data_pb2.Segment]
    removed: HistoryReply.Removed
    def __init__(self, segments: _Optional[_Iterable[_Union[_data_pb2.Segment, _Mapping]]] = ..., removed: _Optional[_Union[HistoryReply.Removed, _Mapping]] = ...) -> None: ...

class ReportUnreachableRequest(_message.Message):
    __slots__ = ("incarnation", "error")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    error: str
    def __init__(self, incarnation: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class SignUploadsRequest(_message.Message):
    __slots__ = ("topic", "uid", "producer", "epoch", "attempt", "files")
    class File(_message.Message):
        __slots__ = ("size", "sha256")
        SIZE_FIELD_NUMBER: _ClassVar[int]
        SHA256_FIELD_NUMBER: _ClassVar[int]
        size: int
        sha256: bytes
        def __init__(self, size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    uid: str
    producer: str
    epoch: int
    attempt: int
    files: _containers.RepeatedCompositeFieldContainer[SignUploadsRequest.File]
    def __init__(self, topic: _Optional[str] = ..., uid: _Optional[str] = ..., producer: _Optional[str] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., files: _Optional[_Iterable[_Union[SignUploadsRequest.File, _Mapping]]] = ...) -> None: ...

class SignUploadsReply(_message.Message):
    __slots__ = ("uploads",)
    class Upload(_message.Message):
        __slots__ = ("name", "url", "headers")
        class HeadersEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        NAME_FIELD_NUMBER: _ClassVar[int]
        URL_FIELD_NUMBER: _ClassVar[int]
        HEADERS_FIELD_NUMBER: _ClassVar[int]
        name: str
        url: str
        headers: _containers.ScalarMap[str, str]
        def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    uploads: _containers.RepeatedCompositeFieldContainer[SignUploadsReply.Upload]
    def __init__(self, uploads: _Optional[_Iterable[_Union[SignUploadsReply.Upload, _Mapping]]] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "member", "start", "generation", "start_positions", "ended")
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
    start: str
    generation: int
    start_positions: _containers.ScalarMap[str, int]
    ended: _containers.ScalarMap[str, int]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., member: _Optional[str] = ..., start: _Optional[str] = ..., generation: _Optional[int] = ..., start_positions: _Optional[_Mapping[str, int]] = ..., ended: _Optional[_Mapping[str, int]] = ...) -> None: ...

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
    class Loss(_message.Message):
        __slots__ = ("segment", "start", "stop", "acknowledged", "at_least")
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        START_FIELD_NUMBER: _ClassVar[int]
        STOP_FIELD_NUMBER: _ClassVar[int]
        ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
        AT_LEAST_FIELD_NUMBER: _ClassVar[int]
        segment: str
        start: int
        stop: int
        acknowledged: bool
        at_least: bool
        def __init__(self, segment: _Optional[str] = ..., start: _Optional[int] = ..., stop: _Optional[int] = ..., acknowledged: _Optional[bool] = ..., at_least: _Optional[bool] = ...) -> None: ...
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LOST_WITH_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.ScalarMap[str, int]
    lost: _containers.RepeatedCompositeFieldContainer[GroupPositions.Loss]
    lost_with_replicas: _containers.RepeatedCompositeFieldContainer[GroupPositions.Loss]
    def __init__(self, positions: _Optional[_Mapping[str, int]] = ..., lost: _Optional[_Iterable[_Union[GroupPositions.Loss, _Mapping]]] = ..., lost_with_replicas: _Optional[_Iterable[_Union[GroupPositions.Loss, _Mapping]]] = ...) -> None: ...

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

class ClaimAppRequest(_message.Message):
    __slots__ = ("topic", "app", "owner", "one_off")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ONE_OFF_FIELD_NUMBER: _ClassVar[int]
    topic: str
    app: str
    owner: str
    one_off: bool
    def __init__(self, topic: _Optional[str] = ..., app: _Optional[str] = ..., owner: _Optional[str] = ..., one_off: _Optional[bool] = ...) -> None: ...

class AtomicPublishRequest(_message.Message):
    __slots__ = ("topic", "app", "owner", "version", "request", "files")
    class File(_message.Message):
        __slots__ = ("upload", "etag", "rows", "bytes", "timestamp_min", "timestamp_max", "schema_version")
        UPLOAD_FIELD_NUMBER: _ClassVar[int]
        ETAG_FIELD_NUMBER: _ClassVar[int]
        ROWS_FIELD_NUMBER: _ClassVar[int]
        BYTES_FIELD_NUMBER: _ClassVar[int]
        TIMESTAMP_MIN_FIELD_NUMBER: _ClassVar[int]
        TIMESTAMP_MAX_FIELD_NUMBER: _ClassVar[int]
        SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
        upload: str
        etag: str
        rows: int
        bytes: int
        timestamp_min: int
        timestamp_max: int
        schema_version: int
        def __init__(self, upload: _Optional[str] = ..., etag: _Optional[str] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., timestamp_min: _Optional[int] = ..., timestamp_max: _Optional[int] = ..., schema_version: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    app: str
    owner: str
    version: int
    request: str
    files: _containers.RepeatedCompositeFieldContainer[AtomicPublishRequest.File]
    def __init__(self, topic: _Optional[str] = ..., app: _Optional[str] = ..., owner: _Optional[str] = ..., version: _Optional[int] = ..., request: _Optional[str] = ..., files: _Optional[_Iterable[_Union[AtomicPublishRequest.File, _Mapping]]] = ...) -> None: ...

class AppReply(_message.Message):
    __slots__ = ("version", "complete", "problem", "already_published")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ALREADY_PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    version: int
    complete: bool
    problem: str
    already_published: bool
    def __init__(self, version: _Optional[int] = ..., complete: _Optional[bool] = ..., problem: _Optional[str] = ..., already_published: _Optional[bool] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GroupList(_message.Message):
    __slots__ = ("groups",)
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
    groups: _containers.RepeatedCompositeFieldContainer[GroupList.Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupList.Group, _Mapping]]] = ...) -> None: ...

class ListPinsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class PinList(_message.Message):
    __slots__ = ("pins",)
    class Pin(_message.Message):
        __slots__ = ("id", "owner", "age", "expires_in", "problem")
        ID_FIELD_NUMBER: _ClassVar[int]
        OWNER_FIELD_NUMBER: _ClassVar[int]
        AGE_FIELD_NUMBER: _ClassVar[int]
        EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
        PROBLEM_FIELD_NUMBER: _ClassVar[int]
        id: str
        owner: str
        age: int
        expires_in: int
        problem: str
        def __init__(self, id: _Optional[str] = ..., owner: _Optional[str] = ..., age: _Optional[int] = ..., expires_in: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...
    PINS_FIELD_NUMBER: _ClassVar[int]
    pins: _containers.RepeatedCompositeFieldContainer[PinList.Pin]
    def __init__(self, pins: _Optional[_Iterable[_Union[PinList.Pin, _Mapping]]] = ...) -> None: ...

class ApplyTopicRequest(_message.Message):
    __slots__ = ("manifest", "preview")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    manifest: str
    preview: bool
    def __init__(self, manifest: _Optional[str] = ..., preview: _Optional[bool] = ...) -> None: ...

class ApplyTopicReply(_message.Message):
    __slots__ = ("topic", "result", "before", "after", "changes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    result: str
    before: str
    after: str
    changes: _containers.RepeatedCompositeFieldContainer[TopicChange]
    def __init__(self, topic: _Optional[str] = ..., result: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[TopicChange, _Mapping]]] = ...) -> None: ...

class TopicChange(_message.Message):
    __slots__ = ("text", "risk")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    text: str
    risk: str
    def __init__(self, text: _Optional[str] = ..., risk: _Optional[str] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("topic", "columns", "schema_version", "preview", "settings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    columns: _containers.RepeatedCompositeFieldContainer[_data_pb2.Column]
    schema_version: int
    preview: bool
    settings: str
    def __init__(self, topic: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[_data_pb2.Column, _Mapping]]] = ..., schema_version: _Optional[int] = ..., preview: _Optional[bool] = ..., settings: _Optional[str] = ...) -> None: ...

class AlterTopicReply(_message.Message):
    __slots__ = ("schema", "changes")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    schema: _data_pb2.TopicSchema
    changes: _containers.RepeatedCompositeFieldContainer[TopicChange]
    def __init__(self, schema: _Optional[_Union[_data_pb2.TopicSchema, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[TopicChange, _Mapping]]] = ...) -> None: ...

class ExportTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ExportTopicReply(_message.Message):
    __slots__ = ("manifest", "settings")
    class Setting(_message.Message):
        __slots__ = ("field", "value", "is_default")
        FIELD_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
        field: str
        value: str
        is_default: bool
        def __init__(self, field: _Optional[str] = ..., value: _Optional[str] = ..., is_default: _Optional[bool] = ...) -> None: ...
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    manifest: str
    settings: _containers.RepeatedCompositeFieldContainer[ExportTopicReply.Setting]
    def __init__(self, manifest: _Optional[str] = ..., settings: _Optional[_Iterable[_Union[ExportTopicReply.Setting, _Mapping]]] = ...) -> None: ...

class RecoverTopicRequest(_message.Message):
    __slots__ = ("topic", "preview", "accept_loss")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    preview: bool
    accept_loss: bool
    def __init__(self, topic: _Optional[str] = ..., preview: _Optional[bool] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class TrimTopicRequest(_message.Message):
    __slots__ = ("topic", "before", "preview", "skip_unread")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    SKIP_UNREAD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    before: int
    preview: bool
    skip_unread: bool
    def __init__(self, topic: _Optional[str] = ..., before: _Optional[int] = ..., preview: _Optional[bool] = ..., skip_unread: _Optional[bool] = ...) -> None: ...

class TrimTopicReply(_message.Message):
    __slots__ = ("removed", "kept", "more")
    class Removed(_message.Message):
        __slots__ = ("segment", "messages", "bytes", "unread")
        class UnreadEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        BYTES_FIELD_NUMBER: _ClassVar[int]
        UNREAD_FIELD_NUMBER: _ClassVar[int]
        segment: str
        messages: int
        bytes: int
        unread: _containers.ScalarMap[str, int]
        def __init__(self, segment: _Optional[str] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., unread: _Optional[_Mapping[str, int]] = ...) -> None: ...
    class Kept(_message.Message):
        __slots__ = ("segment", "reason")
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        segment: str
        reason: str
        def __init__(self, segment: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    removed: _containers.RepeatedCompositeFieldContainer[TrimTopicReply.Removed]
    kept: _containers.RepeatedCompositeFieldContainer[TrimTopicReply.Kept]
    more: bool
    def __init__(self, removed: _Optional[_Iterable[_Union[TrimTopicReply.Removed, _Mapping]]] = ..., kept: _Optional[_Iterable[_Union[TrimTopicReply.Kept, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class RecoverTopicReply(_message.Message):
    __slots__ = ("found", "writes", "unknown")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedScalarFieldContainer[str]
    writes: _containers.RepeatedScalarFieldContainer[str]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, found: _Optional[_Iterable[str]] = ..., writes: _Optional[_Iterable[str]] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class PauseScalingRequest(_message.Message):
    __slots__ = ("topic", "paused")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    paused: bool
    def __init__(self, topic: _Optional[str] = ..., paused: _Optional[bool] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicList(_message.Message):
    __slots__ = ("topics", "problems")
    class Problem(_message.Message):
        __slots__ = ("where", "message")
        WHERE_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        where: str
        message: str
        def __init__(self, where: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
    class Topic(_message.Message):
        __slots__ = ("info", "layout", "messages_per_second", "bytes_per_second", "conditions", "sealed_segments", "paused", "ends", "messages")
        class EndsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: int
            def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
        INFO_FIELD_NUMBER: _ClassVar[int]
        LAYOUT_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
        BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
        CONDITIONS_FIELD_NUMBER: _ClassVar[int]
        SEALED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
        PAUSED_FIELD_NUMBER: _ClassVar[int]
        ENDS_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        info: _data_pb2.TopicInfo
        layout: _data_pb2.Layout
        messages_per_second: float
        bytes_per_second: float
        conditions: _containers.RepeatedCompositeFieldContainer[Condition]
        sealed_segments: int
        paused: bool
        ends: _containers.ScalarMap[str, int]
        messages: int
        def __init__(self, info: _Optional[_Union[_data_pb2.TopicInfo, _Mapping]] = ..., layout: _Optional[_Union[_data_pb2.Layout, _Mapping]] = ..., messages_per_second: _Optional[float] = ..., bytes_per_second: _Optional[float] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., sealed_segments: _Optional[int] = ..., paused: _Optional[bool] = ..., ends: _Optional[_Mapping[str, int]] = ..., messages: _Optional[int] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicList.Topic]
    problems: _containers.RepeatedCompositeFieldContainer[TopicList.Problem]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicList.Topic, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[TopicList.Problem, _Mapping]]] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("type", "status", "reason", "message")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: str
    reason: str
    message: str
    def __init__(self, type: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ListBrokersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerList(_message.Message):
    __slots__ = ("brokers",)
    class Broker(_message.Message):
        __slots__ = ("name", "incarnation", "address", "state", "status", "ended", "ended_at")
        NAME_FIELD_NUMBER: _ClassVar[int]
        INCARNATION_FIELD_NUMBER: _ClassVar[int]
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        ENDED_FIELD_NUMBER: _ClassVar[int]
        ENDED_AT_FIELD_NUMBER: _ClassVar[int]
        name: str
        incarnation: str
        address: str
        state: str
        status: _data_pb2.BrokerStatus
        ended: str
        ended_at: int
        def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., status: _Optional[_Union[_data_pb2.BrokerStatus, _Mapping]] = ..., ended: _Optional[str] = ..., ended_at: _Optional[int] = ...) -> None: ...
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerList.Broker]
    def __init__(self, brokers: _Optional[_Iterable[_Union[BrokerList.Broker, _Mapping]]] = ...) -> None: ...

class ListDecisionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DecisionList(_message.Message):
    __slots__ = ("decisions",)
    class Decision(_message.Message):
        __slots__ = ("at", "topic", "action", "segments", "reason")
        AT_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        ACTION_FIELD_NUMBER: _ClassVar[int]
        SEGMENTS_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        at: int
        topic: str
        action: str
        segments: _containers.RepeatedScalarFieldContainer[str]
        reason: str
        def __init__(self, at: _Optional[int] = ..., topic: _Optional[str] = ..., action: _Optional[str] = ..., segments: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[DecisionList.Decision]
    def __init__(self, decisions: _Optional[_Iterable[_Union[DecisionList.Decision, _Mapping]]] = ...) -> None: ...

class ChangeSegmentsRequest(_message.Message):
    __slots__ = ("topic", "action", "segments", "boundaries")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    action: str
    segments: _containers.RepeatedScalarFieldContainer[str]
    boundaries: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., action: _Optional[str] = ..., segments: _Optional[_Iterable[str]] = ..., boundaries: _Optional[_Iterable[int]] = ...) -> None: ...

class DrainBrokerRequest(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: str
    def __init__(self, broker: _Optional[str] = ...) -> None: ...

class UndrainBrokerRequest(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: str
    def __init__(self, broker: _Optional[str] = ...) -> None: ...

class AcceptLossRequest(_message.Message):
    __slots__ = ("topic", "segment")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    segment: str
    def __init__(self, topic: _Optional[str] = ..., segment: _Optional[str] = ...) -> None: ...
