from google.protobuf import empty_pb2 as _empty_pb2
from smq_proto.v1 import data_pb2 as _data_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
    __slots__ = ("manifest", "preview", "must_be_new")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    MUST_BE_NEW_FIELD_NUMBER: _ClassVar[int]
    manifest: str
    preview: bool
    must_be_new: bool
    def __init__(self, manifest: _Optional[str] = ..., preview: _Optional[bool] = ..., must_be_new: _Optional[bool] = ...) -> None: ...

class ApplyTopicReply(_message.Message):
    __slots__ = ("topic", "result", "before", "after", "changes")
    class Result(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ApplyTopicReply.Result]
        CREATED: _ClassVar[ApplyTopicReply.Result]
        CONFIGURED: _ClassVar[ApplyTopicReply.Result]
        UNCHANGED: _ClassVar[ApplyTopicReply.Result]
    UNSPECIFIED: ApplyTopicReply.Result
    CREATED: ApplyTopicReply.Result
    CONFIGURED: ApplyTopicReply.Result
    UNCHANGED: ApplyTopicReply.Result
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    result: ApplyTopicReply.Result
    before: str
    after: str
    changes: _containers.RepeatedCompositeFieldContainer[TopicChange]
    def __init__(self, topic: _Optional[str] = ..., result: _Optional[_Union[ApplyTopicReply.Result, str]] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[TopicChange, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("page_token",)
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_token: str
    def __init__(self, page_token: _Optional[str] = ...) -> None: ...

class TopicList(_message.Message):
    __slots__ = ("topics", "problems", "next_page_token")
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
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicList.Topic]
    problems: _containers.RepeatedCompositeFieldContainer[TopicList.Problem]
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicList.Topic, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[TopicList.Problem, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("page_token",)
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_token: str
    def __init__(self, page_token: _Optional[str] = ...) -> None: ...

class BrokerList(_message.Message):
    __slots__ = ("brokers", "next_page_token")
    class Broker(_message.Message):
        __slots__ = ("name", "incarnation", "address", "state", "status", "ended", "ended_at", "kafka_address")
        class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNSPECIFIED: _ClassVar[BrokerList.Broker.State]
            ALIVE: _ClassVar[BrokerList.Broker.State]
            SUSPECT: _ClassVar[BrokerList.Broker.State]
            ENDED: _ClassVar[BrokerList.Broker.State]
            RECOVERED: _ClassVar[BrokerList.Broker.State]
            GONE: _ClassVar[BrokerList.Broker.State]
            DRAINING: _ClassVar[BrokerList.Broker.State]
        UNSPECIFIED: BrokerList.Broker.State
        ALIVE: BrokerList.Broker.State
        SUSPECT: BrokerList.Broker.State
        ENDED: BrokerList.Broker.State
        RECOVERED: BrokerList.Broker.State
        GONE: BrokerList.Broker.State
        DRAINING: BrokerList.Broker.State
        NAME_FIELD_NUMBER: _ClassVar[int]
        INCARNATION_FIELD_NUMBER: _ClassVar[int]
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        ENDED_FIELD_NUMBER: _ClassVar[int]
        ENDED_AT_FIELD_NUMBER: _ClassVar[int]
        KAFKA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
        name: str
        incarnation: str
        address: str
        state: BrokerList.Broker.State
        status: _data_pb2.BrokerStatus
        ended: str
        ended_at: int
        kafka_address: str
        def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[_Union[BrokerList.Broker.State, str]] = ..., status: _Optional[_Union[_data_pb2.BrokerStatus, _Mapping]] = ..., ended: _Optional[str] = ..., ended_at: _Optional[int] = ..., kafka_address: _Optional[str] = ...) -> None: ...
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerList.Broker]
    next_page_token: str
    def __init__(self, brokers: _Optional[_Iterable[_Union[BrokerList.Broker, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListDecisionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DecisionList(_message.Message):
    __slots__ = ("decisions",)
    class Decision(_message.Message):
        __slots__ = ("at", "topic", "action", "segments", "reason")
        class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNSPECIFIED: _ClassVar[DecisionList.Decision.Action]
            CREATE: _ClassVar[DecisionList.Decision.Action]
            SPLIT: _ClassVar[DecisionList.Decision.Action]
            MERGE: _ClassVar[DecisionList.Decision.Action]
            FAILOVER: _ClassVar[DecisionList.Decision.Action]
            DRAIN: _ClassVar[DecisionList.Decision.Action]
            ROLL: _ClassVar[DecisionList.Decision.Action]
            REBALANCE: _ClassVar[DecisionList.Decision.Action]
            MANUAL: _ClassVar[DecisionList.Decision.Action]
            SCHEMA: _ClassVar[DecisionList.Decision.Action]
            ACCEPT_LOSS: _ClassVar[DecisionList.Decision.Action]
            RECORD_LOSS: _ClassVar[DecisionList.Decision.Action]
            RECOVER: _ClassVar[DecisionList.Decision.Action]
            REFUSED: _ClassVar[DecisionList.Decision.Action]
            TRIM: _ClassVar[DecisionList.Decision.Action]
            RETENTION: _ClassVar[DecisionList.Decision.Action]
            PAUSE_SCALING: _ClassVar[DecisionList.Decision.Action]
            RESUME_SCALING: _ClassVar[DecisionList.Decision.Action]
            SCALE_OUT: _ClassVar[DecisionList.Decision.Action]
            SCALE_IN: _ClassVar[DecisionList.Decision.Action]
            BROKER_ENDED: _ClassVar[DecisionList.Decision.Action]
        UNSPECIFIED: DecisionList.Decision.Action
        CREATE: DecisionList.Decision.Action
        SPLIT: DecisionList.Decision.Action
        MERGE: DecisionList.Decision.Action
        FAILOVER: DecisionList.Decision.Action
        DRAIN: DecisionList.Decision.Action
        ROLL: DecisionList.Decision.Action
        REBALANCE: DecisionList.Decision.Action
        MANUAL: DecisionList.Decision.Action
        SCHEMA: DecisionList.Decision.Action
        ACCEPT_LOSS: DecisionList.Decision.Action
        RECORD_LOSS: DecisionList.Decision.Action
        RECOVER: DecisionList.Decision.Action
        REFUSED: DecisionList.Decision.Action
        TRIM: DecisionList.Decision.Action
        RETENTION: DecisionList.Decision.Action
        PAUSE_SCALING: DecisionList.Decision.Action
        RESUME_SCALING: DecisionList.Decision.Action
        SCALE_OUT: DecisionList.Decision.Action
        SCALE_IN: DecisionList.Decision.Action
        BROKER_ENDED: DecisionList.Decision.Action
        AT_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        ACTION_FIELD_NUMBER: _ClassVar[int]
        SEGMENTS_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        at: int
        topic: str
        action: DecisionList.Decision.Action
        segments: _containers.RepeatedScalarFieldContainer[str]
        reason: str
        def __init__(self, at: _Optional[int] = ..., topic: _Optional[str] = ..., action: _Optional[_Union[DecisionList.Decision.Action, str]] = ..., segments: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[DecisionList.Decision]
    def __init__(self, decisions: _Optional[_Iterable[_Union[DecisionList.Decision, _Mapping]]] = ...) -> None: ...

class ReadStoryRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Story(_message.Message):
    __slots__ = ("events",)
    class Event(_message.Message):
        __slots__ = ("at", "last_at", "times", "kind", "segment", "detail")
        AT_FIELD_NUMBER: _ClassVar[int]
        LAST_AT_FIELD_NUMBER: _ClassVar[int]
        TIMES_FIELD_NUMBER: _ClassVar[int]
        KIND_FIELD_NUMBER: _ClassVar[int]
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        DETAIL_FIELD_NUMBER: _ClassVar[int]
        at: int
        last_at: int
        times: int
        kind: str
        segment: str
        detail: str
        def __init__(self, at: _Optional[int] = ..., last_at: _Optional[int] = ..., times: _Optional[int] = ..., kind: _Optional[str] = ..., segment: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Story.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Story.Event, _Mapping]]] = ...) -> None: ...

class ChangeSegmentsRequest(_message.Message):
    __slots__ = ("topic", "action", "segments", "boundaries")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ChangeSegmentsRequest.Action]
        SPLIT: _ClassVar[ChangeSegmentsRequest.Action]
        MERGE: _ClassVar[ChangeSegmentsRequest.Action]
        MOVE: _ClassVar[ChangeSegmentsRequest.Action]
        ROLL: _ClassVar[ChangeSegmentsRequest.Action]
    UNSPECIFIED: ChangeSegmentsRequest.Action
    SPLIT: ChangeSegmentsRequest.Action
    MERGE: ChangeSegmentsRequest.Action
    MOVE: ChangeSegmentsRequest.Action
    ROLL: ChangeSegmentsRequest.Action
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    action: ChangeSegmentsRequest.Action
    segments: _containers.RepeatedScalarFieldContainer[str]
    boundaries: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., action: _Optional[_Union[ChangeSegmentsRequest.Action, str]] = ..., segments: _Optional[_Iterable[str]] = ..., boundaries: _Optional[_Iterable[int]] = ...) -> None: ...

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
