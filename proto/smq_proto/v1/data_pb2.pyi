from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_REPLICATED: _ClassVar[Durability]
    DURABILITY_STORED: _ClassVar[Durability]

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_PENDING: _ClassVar[Phase]
    PHASE_OPEN: _ClassVar[Phase]
    PHASE_SEALING: _ClassVar[Phase]
    PHASE_SEALED: _ClassVar[Phase]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_CREATE: _ClassVar[Reason]
    REASON_SPLIT: _ClassVar[Reason]
    REASON_MERGE: _ClassVar[Reason]
    REASON_FAILOVER: _ClassVar[Reason]
    REASON_DRAIN: _ClassVar[Reason]
    REASON_ROLL: _ClassVar[Reason]
    REASON_REBALANCE: _ClassVar[Reason]
    REASON_MANUAL: _ClassVar[Reason]
    REASON_SCHEMA: _ClassVar[Reason]

class Partitioner(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITIONER_UNSPECIFIED: _ClassVar[Partitioner]
    PARTITIONER_HASH: _ClassVar[Partitioner]
    PARTITIONER_KAFKA: _ClassVar[Partitioner]

class Lane(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LANE_UNSPECIFIED: _ClassVar[Lane]
    LANE_SMALL: _ClassVar[Lane]
    LANE_BULK: _ClassVar[Lane]

class Right(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RIGHT_UNSPECIFIED: _ClassVar[Right]
    RIGHT_PRODUCE: _ClassVar[Right]
    RIGHT_CONSUME: _ClassVar[Right]
    RIGHT_ADMINISTER: _ClassVar[Right]
DURABILITY_UNSPECIFIED: Durability
DURABILITY_REPLICATED: Durability
DURABILITY_STORED: Durability
PHASE_UNSPECIFIED: Phase
PHASE_PENDING: Phase
PHASE_OPEN: Phase
PHASE_SEALING: Phase
PHASE_SEALED: Phase
REASON_UNSPECIFIED: Reason
REASON_CREATE: Reason
REASON_SPLIT: Reason
REASON_MERGE: Reason
REASON_FAILOVER: Reason
REASON_DRAIN: Reason
REASON_ROLL: Reason
REASON_REBALANCE: Reason
REASON_MANUAL: Reason
REASON_SCHEMA: Reason
PARTITIONER_UNSPECIFIED: Partitioner
PARTITIONER_HASH: Partitioner
PARTITIONER_KAFKA: Partitioner
LANE_UNSPECIFIED: Lane
LANE_SMALL: Lane
LANE_BULK: Lane
RIGHT_UNSPECIFIED: Right
RIGHT_PRODUCE: Right
RIGHT_CONSUME: Right
RIGHT_ADMINISTER: Right

class Replica(_message.Message):
    __slots__ = ("broker", "incarnation", "address")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    broker: str
    incarnation: str
    address: str
    def __init__(self, broker: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Loss(_message.Message):
    __slots__ = ("start", "stop", "at_least")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    start: int
    stop: int
    at_least: bool
    def __init__(self, start: _Optional[int] = ..., stop: _Optional[int] = ..., at_least: _Optional[bool] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("name", "number", "start", "stop", "phase", "durability", "replicas", "predecessors", "successors", "opened_because", "sealed_because", "opened_at", "end", "sealed_at", "bytes", "lost", "schema_version", "file_list")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PREDECESSORS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    OPENED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    SEALED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SEALED_AT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    FILE_LIST_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    start: int
    stop: int
    phase: Phase
    durability: Durability
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    predecessors: _containers.RepeatedScalarFieldContainer[str]
    successors: _containers.RepeatedScalarFieldContainer[str]
    opened_because: Reason
    sealed_because: Reason
    opened_at: int
    end: int
    sealed_at: int
    bytes: int
    lost: Loss
    schema_version: int
    file_list: str
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., start: _Optional[int] = ..., stop: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ..., durability: _Optional[_Union[Durability, str]] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ..., predecessors: _Optional[_Iterable[str]] = ..., successors: _Optional[_Iterable[str]] = ..., opened_because: _Optional[_Union[Reason, str]] = ..., sealed_because: _Optional[_Union[Reason, str]] = ..., opened_at: _Optional[int] = ..., end: _Optional[int] = ..., sealed_at: _Optional[int] = ..., bytes: _Optional[int] = ..., lost: _Optional[_Union[Loss, _Mapping]] = ..., schema_version: _Optional[int] = ..., file_list: _Optional[str] = ...) -> None: ...

class TopicSchema(_message.Message):
    __slots__ = ("version", "columns", "dropped")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    version: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    dropped: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., dropped: _Optional[_Iterable[str]] = ...) -> None: ...

class Layout(_message.Message):
    __slots__ = ("topic", "uid", "partitions", "version", "segments", "schemas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    uid: str
    partitions: int
    version: int
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    schemas: _containers.RepeatedCompositeFieldContainer[TopicSchema]
    def __init__(self, topic: _Optional[str] = ..., uid: _Optional[str] = ..., partitions: _Optional[int] = ..., version: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., schemas: _Optional[_Iterable[_Union[TopicSchema, _Mapping]]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "type", "nullable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    nullable: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., nullable: _Optional[bool] = ...) -> None: ...

class TopicInfo(_message.Message):
    __slots__ = ("name", "uid", "partitions", "key", "schema", "durability", "flush_bytes", "flush_interval", "schema_version", "flush_max_interval", "partitioner", "kafka_name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    FLUSH_BYTES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MAX_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONER_FIELD_NUMBER: _ClassVar[int]
    KAFKA_NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: str
    partitions: int
    key: str
    schema: _containers.RepeatedCompositeFieldContainer[Column]
    durability: Durability
    flush_bytes: int
    flush_interval: int
    schema_version: int
    flush_max_interval: int
    partitioner: Partitioner
    kafka_name: str
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[str] = ..., partitions: _Optional[int] = ..., key: _Optional[str] = ..., schema: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., durability: _Optional[_Union[Durability, str]] = ..., flush_bytes: _Optional[int] = ..., flush_interval: _Optional[int] = ..., schema_version: _Optional[int] = ..., flush_max_interval: _Optional[int] = ..., partitioner: _Optional[_Union[Partitioner, str]] = ..., kafka_name: _Optional[str] = ...) -> None: ...

class PartitionRows(_message.Message):
    __slots__ = ("partitions", "rows")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partitions: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[int]] = ...) -> None: ...

class PartitionOffsets(_message.Message):
    __slots__ = ("first", "ends", "jumps")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    JUMPS_FIELD_NUMBER: _ClassVar[int]
    first: int
    ends: _containers.RepeatedScalarFieldContainer[int]
    jumps: PartitionRows
    def __init__(self, first: _Optional[int] = ..., ends: _Optional[_Iterable[int]] = ..., jumps: _Optional[_Union[PartitionRows, _Mapping]] = ...) -> None: ...

class KafkaProducer(_message.Message):
    __slots__ = ("producer_id", "partition", "epoch", "appended", "first_sequence", "records", "offsets")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    partition: int
    epoch: int
    appended: int
    first_sequence: int
    records: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, producer_id: _Optional[int] = ..., partition: _Optional[int] = ..., epoch: _Optional[int] = ..., appended: _Optional[int] = ..., first_sequence: _Optional[int] = ..., records: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class ProducerState(_message.Message):
    __slots__ = ("epoch", "last_sequence", "recent", "instance", "appended")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    last_sequence: int
    recent: _containers.RepeatedScalarFieldContainer[int]
    instance: str
    appended: int
    def __init__(self, epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., recent: _Optional[_Iterable[int]] = ..., instance: _Optional[str] = ..., appended: _Optional[int] = ...) -> None: ...

class InheritedProducers(_message.Message):
    __slots__ = ("producers",)
    class ProducersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ProducerState
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ProducerState, _Mapping]] = ...) -> None: ...
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    producers: _containers.MessageMap[str, ProducerState]
    def __init__(self, producers: _Optional[_Mapping[str, ProducerState]] = ...) -> None: ...

class SealOutcome(_message.Message):
    __slots__ = ("segment", "end", "producers", "lost", "successors", "forgotten_upto", "uninherited", "partitions")
    class ProducersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ProducerState
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ProducerState, _Mapping]] = ...) -> None: ...
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_UPTO_FIELD_NUMBER: _ClassVar[int]
    UNINHERITED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    segment: str
    end: int
    producers: _containers.MessageMap[str, ProducerState]
    lost: Loss
    successors: _containers.RepeatedCompositeFieldContainer[Segment]
    forgotten_upto: int
    uninherited: _containers.RepeatedScalarFieldContainer[str]
    partitions: PartitionOffsets
    def __init__(self, segment: _Optional[str] = ..., end: _Optional[int] = ..., producers: _Optional[_Mapping[str, ProducerState]] = ..., lost: _Optional[_Union[Loss, _Mapping]] = ..., successors: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., forgotten_upto: _Optional[int] = ..., uninherited: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Union[PartitionOffsets, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    details: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[str] = ...) -> None: ...

class PutOpen(_message.Message):
    __slots__ = ("protocol", "incarnation", "uid", "producers", "replica")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    incarnation: str
    uid: str
    producers: ProducersHello
    replica: ReplicaHello
    def __init__(self, protocol: _Optional[int] = ..., incarnation: _Optional[str] = ..., uid: _Optional[str] = ..., producers: _Optional[_Union[ProducersHello, _Mapping]] = ..., replica: _Optional[_Union[ReplicaHello, _Mapping]] = ...) -> None: ...

class ProducersHello(_message.Message):
    __slots__ = ("lane",)
    LANE_FIELD_NUMBER: _ClassVar[int]
    lane: Lane
    def __init__(self, lane: _Optional[_Union[Lane, str]] = ...) -> None: ...

class ProducerHello(_message.Message):
    __slots__ = ("producer", "epoch", "instance")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    producer: str
    epoch: int
    instance: str
    def __init__(self, producer: _Optional[str] = ..., epoch: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...

class ReplicaHello(_message.Message):
    __slots__ = ("primary_incarnation", "connection", "lane")
    PRIMARY_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    primary_incarnation: str
    connection: str
    lane: Lane
    def __init__(self, primary_incarnation: _Optional[str] = ..., connection: _Optional[str] = ..., lane: _Optional[_Union[Lane, str]] = ...) -> None: ...

class Reference(_message.Message):
    __slots__ = ("upload", "etag", "first_row", "rows", "bytes", "partition_min", "partition_max", "timestamp_min", "timestamp_max", "schema_version")
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_MIN_FIELD_NUMBER: _ClassVar[int]
    PARTITION_MAX_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MIN_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MAX_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    upload: str
    etag: str
    first_row: int
    rows: int
    bytes: int
    partition_min: int
    partition_max: int
    timestamp_min: int
    timestamp_max: int
    schema_version: int
    def __init__(self, upload: _Optional[str] = ..., etag: _Optional[str] = ..., first_row: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., partition_min: _Optional[int] = ..., partition_max: _Optional[int] = ..., timestamp_min: _Optional[int] = ..., timestamp_max: _Optional[int] = ..., schema_version: _Optional[int] = ...) -> None: ...

class ProducerReply(_message.Message):
    __slots__ = ("opened", "acks", "sealed", "error", "rejected")
    class Opened(_message.Message):
        __slots__ = ("last_sequence", "max_batch_bytes", "end", "forgotten_upto")
        LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        MAX_BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        FORGOTTEN_UPTO_FIELD_NUMBER: _ClassVar[int]
        last_sequence: int
        max_batch_bytes: int
        end: int
        forgotten_upto: int
        def __init__(self, last_sequence: _Optional[int] = ..., max_batch_bytes: _Optional[int] = ..., end: _Optional[int] = ..., forgotten_upto: _Optional[int] = ...) -> None: ...
    class Rejected(_message.Message):
        __slots__ = ("sequence", "error")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        error: Error
        def __init__(self, sequence: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...
    class Acks(_message.Message):
        __slots__ = ("first_sequence", "first_offsets")
        FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        FIRST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
        first_sequence: int
        first_offsets: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, first_sequence: _Optional[int] = ..., first_offsets: _Optional[_Iterable[int]] = ...) -> None: ...
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    opened: ProducerReply.Opened
    acks: ProducerReply.Acks
    sealed: SealOutcome
    error: Error
    rejected: ProducerReply.Rejected
    def __init__(self, opened: _Optional[_Union[ProducerReply.Opened, _Mapping]] = ..., acks: _Optional[_Union[ProducerReply.Acks, _Mapping]] = ..., sealed: _Optional[_Union[SealOutcome, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., rejected: _Optional[_Union[ProducerReply.Rejected, _Mapping]] = ...) -> None: ...

class SmallBatch(_message.Message):
    __slots__ = ("partitions", "timestamps", "keys", "values")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    timestamps: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, partitions: _Optional[_Iterable[int]] = ..., timestamps: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ProducerFrame(_message.Message):
    __slots__ = ("opens", "sub_batches", "closes", "small_batch")
    class Open(_message.Message):
        __slots__ = ("session", "segment", "producer")
        SESSION_FIELD_NUMBER: _ClassVar[int]
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        PRODUCER_FIELD_NUMBER: _ClassVar[int]
        session: int
        segment: str
        producer: ProducerHello
        def __init__(self, session: _Optional[int] = ..., segment: _Optional[str] = ..., producer: _Optional[_Union[ProducerHello, _Mapping]] = ...) -> None: ...
    class SubBatch(_message.Message):
        __slots__ = ("session", "sequence", "rows", "rejections", "large_values", "reference")
        SESSION_FIELD_NUMBER: _ClassVar[int]
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        ROWS_FIELD_NUMBER: _ClassVar[int]
        REJECTIONS_FIELD_NUMBER: _ClassVar[int]
        LARGE_VALUES_FIELD_NUMBER: _ClassVar[int]
        REFERENCE_FIELD_NUMBER: _ClassVar[int]
        session: int
        sequence: int
        rows: int
        rejections: int
        large_values: _containers.RepeatedScalarFieldContainer[str]
        reference: Reference
        def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., rows: _Optional[int] = ..., rejections: _Optional[int] = ..., large_values: _Optional[_Iterable[str]] = ..., reference: _Optional[_Union[Reference, _Mapping]] = ...) -> None: ...
    OPENS_FIELD_NUMBER: _ClassVar[int]
    SUB_BATCHES_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    SMALL_BATCH_FIELD_NUMBER: _ClassVar[int]
    opens: _containers.RepeatedCompositeFieldContainer[ProducerFrame.Open]
    sub_batches: _containers.RepeatedCompositeFieldContainer[ProducerFrame.SubBatch]
    closes: _containers.RepeatedScalarFieldContainer[int]
    small_batch: SmallBatch
    def __init__(self, opens: _Optional[_Iterable[_Union[ProducerFrame.Open, _Mapping]]] = ..., sub_batches: _Optional[_Iterable[_Union[ProducerFrame.SubBatch, _Mapping]]] = ..., closes: _Optional[_Iterable[int]] = ..., small_batch: _Optional[_Union[SmallBatch, _Mapping]] = ...) -> None: ...

class ProducerFrameReply(_message.Message):
    __slots__ = ("sessions", "error", "throttled")
    class Session(_message.Message):
        __slots__ = ("session", "reply")
        SESSION_FIELD_NUMBER: _ClassVar[int]
        REPLY_FIELD_NUMBER: _ClassVar[int]
        session: int
        reply: ProducerReply
        def __init__(self, session: _Optional[int] = ..., reply: _Optional[_Union[ProducerReply, _Mapping]] = ...) -> None: ...
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[ProducerFrameReply.Session]
    error: Error
    throttled: int
    def __init__(self, sessions: _Optional[_Iterable[_Union[ProducerFrameReply.Session, _Mapping]]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., throttled: _Optional[int] = ...) -> None: ...

class ReplicationBatch(_message.Message):
    __slots__ = ("base_offset", "entries", "watermark", "chain_end", "credit", "small_batch")
    class Entry(_message.Message):
        __slots__ = ("producer", "epoch", "sequence", "rows", "appended", "partition_min", "partition_max", "instance", "forgotten", "inherited", "reference", "large_values", "partition_rows", "partition_starts", "kafka_batch", "inherited_kafka_producers")
        class KafkaBatch(_message.Message):
            __slots__ = ("producer_id", "epoch", "sequence")
            PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
            EPOCH_FIELD_NUMBER: _ClassVar[int]
            SEQUENCE_FIELD_NUMBER: _ClassVar[int]
            producer_id: int
            epoch: int
            sequence: int
            def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...
        PRODUCER_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        ROWS_FIELD_NUMBER: _ClassVar[int]
        APPENDED_FIELD_NUMBER: _ClassVar[int]
        PARTITION_MIN_FIELD_NUMBER: _ClassVar[int]
        PARTITION_MAX_FIELD_NUMBER: _ClassVar[int]
        INSTANCE_FIELD_NUMBER: _ClassVar[int]
        FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
        INHERITED_FIELD_NUMBER: _ClassVar[int]
        REFERENCE_FIELD_NUMBER: _ClassVar[int]
        LARGE_VALUES_FIELD_NUMBER: _ClassVar[int]
        PARTITION_ROWS_FIELD_NUMBER: _ClassVar[int]
        PARTITION_STARTS_FIELD_NUMBER: _ClassVar[int]
        KAFKA_BATCH_FIELD_NUMBER: _ClassVar[int]
        INHERITED_KAFKA_PRODUCERS_FIELD_NUMBER: _ClassVar[int]
        producer: str
        epoch: int
        sequence: int
        rows: int
        appended: int
        partition_min: int
        partition_max: int
        instance: str
        forgotten: _containers.RepeatedScalarFieldContainer[str]
        inherited: InheritedProducers
        reference: Reference
        large_values: _containers.RepeatedScalarFieldContainer[str]
        partition_rows: PartitionRows
        partition_starts: PartitionOffsets
        kafka_batch: ReplicationBatch.Entry.KafkaBatch
        inherited_kafka_producers: _containers.RepeatedCompositeFieldContainer[KafkaProducer]
        def __init__(self, producer: _Optional[str] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., rows: _Optional[int] = ..., appended: _Optional[int] = ..., partition_min: _Optional[int] = ..., partition_max: _Optional[int] = ..., instance: _Optional[str] = ..., forgotten: _Optional[_Iterable[str]] = ..., inherited: _Optional[_Union[InheritedProducers, _Mapping]] = ..., reference: _Optional[_Union[Reference, _Mapping]] = ..., large_values: _Optional[_Iterable[str]] = ..., partition_rows: _Optional[_Union[PartitionRows, _Mapping]] = ..., partition_starts: _Optional[_Union[PartitionOffsets, _Mapping]] = ..., kafka_batch: _Optional[_Union[ReplicationBatch.Entry.KafkaBatch, _Mapping]] = ..., inherited_kafka_producers: _Optional[_Iterable[_Union[KafkaProducer, _Mapping]]] = ...) -> None: ...
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CHAIN_END_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    SMALL_BATCH_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    entries: _containers.RepeatedCompositeFieldContainer[ReplicationBatch.Entry]
    watermark: int
    chain_end: int
    credit: int
    small_batch: SmallBatch
    def __init__(self, base_offset: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[ReplicationBatch.Entry, _Mapping]]] = ..., watermark: _Optional[int] = ..., chain_end: _Optional[int] = ..., credit: _Optional[int] = ..., small_batch: _Optional[_Union[SmallBatch, _Mapping]] = ...) -> None: ...

class ReplicationReply(_message.Message):
    __slots__ = ("end", "credit", "error")
    END_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    end: int
    credit: int
    error: Error
    def __init__(self, end: _Optional[int] = ..., credit: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ReplicationFrame(_message.Message):
    __slots__ = ("parts", "number")
    class Part(_message.Message):
        __slots__ = ("session", "open", "header", "rows", "close")
        SESSION_FIELD_NUMBER: _ClassVar[int]
        OPEN_FIELD_NUMBER: _ClassVar[int]
        HEADER_FIELD_NUMBER: _ClassVar[int]
        ROWS_FIELD_NUMBER: _ClassVar[int]
        CLOSE_FIELD_NUMBER: _ClassVar[int]
        session: int
        open: ReplicationFrame.Open
        header: bytes
        rows: bytes
        close: bool
        def __init__(self, session: _Optional[int] = ..., open: _Optional[_Union[ReplicationFrame.Open, _Mapping]] = ..., header: _Optional[bytes] = ..., rows: _Optional[bytes] = ..., close: _Optional[bool] = ...) -> None: ...
    class Open(_message.Message):
        __slots__ = ("segment", "uid")
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        UID_FIELD_NUMBER: _ClassVar[int]
        segment: str
        uid: str
        def __init__(self, segment: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[ReplicationFrame.Part]
    number: int
    def __init__(self, parts: _Optional[_Iterable[_Union[ReplicationFrame.Part, _Mapping]]] = ..., number: _Optional[int] = ...) -> None: ...

class ReplicationFrameReply(_message.Message):
    __slots__ = ("parts", "error")
    class Part(_message.Message):
        __slots__ = ("session", "reply")
        SESSION_FIELD_NUMBER: _ClassVar[int]
        REPLY_FIELD_NUMBER: _ClassVar[int]
        session: int
        reply: ReplicationReply
        def __init__(self, session: _Optional[int] = ..., reply: _Optional[_Union[ReplicationReply, _Mapping]] = ...) -> None: ...
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[ReplicationFrameReply.Part]
    error: Error
    def __init__(self, parts: _Optional[_Iterable[_Union[ReplicationFrameReply.Part, _Mapping]]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class TailTicket(_message.Message):
    __slots__ = ("protocol", "segment", "incarnation", "from_offset", "uid", "readers")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    segment: str
    incarnation: str
    from_offset: int
    uid: str
    readers: int
    def __init__(self, protocol: _Optional[int] = ..., segment: _Optional[str] = ..., incarnation: _Optional[str] = ..., from_offset: _Optional[int] = ..., uid: _Optional[str] = ..., readers: _Optional[int] = ...) -> None: ...

class TailBatch(_message.Message):
    __slots__ = ("first_offset", "rows", "appended", "watermark", "sealed", "trimmed_to", "reference")
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_TO_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    first_offset: int
    rows: _containers.RepeatedScalarFieldContainer[int]
    appended: _containers.RepeatedScalarFieldContainer[int]
    watermark: int
    sealed: SealOutcome
    trimmed_to: int
    reference: Reference
    def __init__(self, first_offset: _Optional[int] = ..., rows: _Optional[_Iterable[int]] = ..., appended: _Optional[_Iterable[int]] = ..., watermark: _Optional[int] = ..., sealed: _Optional[_Union[SealOutcome, _Mapping]] = ..., trimmed_to: _Optional[int] = ..., reference: _Optional[_Union[Reference, _Mapping]] = ...) -> None: ...

class OpenSegment(_message.Message):
    __slots__ = ("protocol", "topic", "segment", "incarnation", "max_upload_age")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MAX_UPLOAD_AGE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    topic: TopicInfo
    segment: Segment
    incarnation: str
    max_upload_age: int
    def __init__(self, protocol: _Optional[int] = ..., topic: _Optional[_Union[TopicInfo, _Mapping]] = ..., segment: _Optional[_Union[Segment, _Mapping]] = ..., incarnation: _Optional[str] = ..., max_upload_age: _Optional[int] = ...) -> None: ...

class HostedSegmentsRequest(_message.Message):
    __slots__ = ("uid",)
    UID_FIELD_NUMBER: _ClassVar[int]
    uid: str
    def __init__(self, uid: _Optional[str] = ...) -> None: ...

class HostedSegments(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[OpenSegment]
    def __init__(self, segments: _Optional[_Iterable[_Union[OpenSegment, _Mapping]]] = ...) -> None: ...

class OpenedSegment(_message.Message):
    __slots__ = ("credit",)
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    credit: int
    def __init__(self, credit: _Optional[int] = ...) -> None: ...

class SealSegment(_message.Message):
    __slots__ = ("protocol", "topic", "uid", "segment", "incarnation", "reason", "successors", "only_flush", "accept_incomplete", "known_watermark")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    ONLY_FLUSH_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    topic: str
    uid: str
    segment: str
    incarnation: str
    reason: str
    successors: _containers.RepeatedCompositeFieldContainer[Segment]
    only_flush: bool
    accept_incomplete: bool
    known_watermark: int
    def __init__(self, protocol: _Optional[int] = ..., topic: _Optional[str] = ..., uid: _Optional[str] = ..., segment: _Optional[str] = ..., incarnation: _Optional[str] = ..., reason: _Optional[str] = ..., successors: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., only_flush: _Optional[bool] = ..., accept_incomplete: _Optional[bool] = ..., known_watermark: _Optional[int] = ...) -> None: ...

class OutcomeRequest(_message.Message):
    __slots__ = ("topic", "uid", "segment", "producer")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    uid: str
    segment: str
    producer: str
    def __init__(self, topic: _Optional[str] = ..., uid: _Optional[str] = ..., segment: _Optional[str] = ..., producer: _Optional[str] = ...) -> None: ...

class ClaimProducer(_message.Message):
    __slots__ = ("topic", "uid", "producer", "instance", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    uid: str
    producer: str
    instance: str
    epoch: int
    def __init__(self, topic: _Optional[str] = ..., uid: _Optional[str] = ..., producer: _Optional[str] = ..., instance: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ClaimedProducer(_message.Message):
    __slots__ = ("epoch", "identity")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    identity: str
    def __init__(self, epoch: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class LocateReply(_message.Message):
    __slots__ = ("topic", "layout", "store_url", "store_options", "losses")
    class StoreOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    STORE_URL_FIELD_NUMBER: _ClassVar[int]
    STORE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    topic: TopicInfo
    layout: Layout
    store_url: str
    store_options: _containers.ScalarMap[str, str]
    losses: int
    def __init__(self, topic: _Optional[_Union[TopicInfo, _Mapping]] = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., store_url: _Optional[str] = ..., store_options: _Optional[_Mapping[str, str]] = ..., losses: _Optional[int] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("bytes_per_second", "messages_per_second", "streams")
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    bytes_per_second: int
    messages_per_second: int
    streams: int
    def __init__(self, bytes_per_second: _Optional[int] = ..., messages_per_second: _Optional[int] = ..., streams: _Optional[int] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("release", "identity", "topic", "uid", "right", "expires_at", "quota")
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    release: str
    identity: str
    topic: str
    uid: str
    right: Right
    expires_at: int
    quota: Quota
    def __init__(self, release: _Optional[str] = ..., identity: _Optional[str] = ..., topic: _Optional[str] = ..., uid: _Optional[str] = ..., right: _Optional[_Union[Right, str]] = ..., expires_at: _Optional[int] = ..., quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class SignedGrant(_message.Message):
    __slots__ = ("grant", "signature")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    grant: bytes
    signature: bytes
    def __init__(self, grant: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class PresentGrants(_message.Message):
    __slots__ = ("grants",)
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[SignedGrant]
    def __init__(self, grants: _Optional[_Iterable[_Union[SignedGrant, _Mapping]]] = ...) -> None: ...

class BrokerStatus(_message.Message):
    __slots__ = ("broker", "incarnation", "draining", "tail_bytes", "memory_limit", "segments", "journal_problem", "filer_problem", "filer_failing_seconds")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FILER_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FILER_FAILING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    broker: str
    incarnation: str
    draining: bool
    tail_bytes: int
    memory_limit: int
    segments: _containers.RepeatedCompositeFieldContainer[SegmentReport]
    journal_problem: str
    filer_problem: str
    filer_failing_seconds: float
    def __init__(self, broker: _Optional[str] = ..., incarnation: _Optional[str] = ..., draining: _Optional[bool] = ..., tail_bytes: _Optional[int] = ..., memory_limit: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[SegmentReport, _Mapping]]] = ..., journal_problem: _Optional[str] = ..., filer_problem: _Optional[str] = ..., filer_failing_seconds: _Optional[float] = ...) -> None: ...

class SegmentReport(_message.Message):
    __slots__ = ("topic", "segment", "primary", "state", "end", "watermark", "chain_end", "tail_bytes", "messages", "bytes", "batches", "histogram", "uid", "unwritten_upload_age", "stalled_seconds")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[SegmentReport.State]
        WAITING: _ClassVar[SegmentReport.State]
        OPEN: _ClassVar[SegmentReport.State]
        FENCED: _ClassVar[SegmentReport.State]
        SEALED: _ClassVar[SegmentReport.State]
    UNSPECIFIED: SegmentReport.State
    WAITING: SegmentReport.State
    OPEN: SegmentReport.State
    FENCED: SegmentReport.State
    SEALED: SegmentReport.State
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CHAIN_END_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    UNWRITTEN_UPLOAD_AGE_FIELD_NUMBER: _ClassVar[int]
    STALLED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    segment: str
    primary: bool
    state: SegmentReport.State
    end: int
    watermark: int
    chain_end: int
    tail_bytes: int
    messages: int
    bytes: int
    batches: int
    histogram: _containers.RepeatedScalarFieldContainer[int]
    uid: str
    unwritten_upload_age: int
    stalled_seconds: float
    def __init__(self, topic: _Optional[str] = ..., segment: _Optional[str] = ..., primary: _Optional[bool] = ..., state: _Optional[_Union[SegmentReport.State, str]] = ..., end: _Optional[int] = ..., watermark: _Optional[int] = ..., chain_end: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., batches: _Optional[int] = ..., histogram: _Optional[_Iterable[int]] = ..., uid: _Optional[str] = ..., unwritten_upload_age: _Optional[int] = ..., stalled_seconds: _Optional[float] = ...) -> None: ...
