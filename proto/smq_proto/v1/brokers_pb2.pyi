from smq_proto.v1 import data_pb2 as _data_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerReport(_message.Message):
    __slots__ = ("protocol", "broker", "incarnation", "address", "node", "zone", "status", "unresponsive", "leaving", "recovered", "last_leader", "last_answer", "authorities", "kafka_address")
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
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    KAFKA_ADDRESS_FIELD_NUMBER: _ClassVar[int]
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
    authorities: str
    kafka_address: str
    def __init__(self, protocol: _Optional[int] = ..., broker: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., node: _Optional[str] = ..., zone: _Optional[str] = ..., status: _Optional[_Union[_data_pb2.BrokerStatus, _Mapping]] = ..., unresponsive: _Optional[_Iterable[str]] = ..., leaving: _Optional[bool] = ..., recovered: _Optional[_Iterable[str]] = ..., last_leader: _Optional[str] = ..., last_answer: _Optional[int] = ..., authorities: _Optional[str] = ..., kafka_address: _Optional[str] = ...) -> None: ...

class BrokerReportReply(_message.Message):
    __slots__ = ("may_leave", "assigned", "drain", "others_drain", "leader", "answer", "authorities", "kafka_listeners")
    MAY_LEAVE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    OTHERS_DRAIN_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    KAFKA_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    may_leave: bool
    assigned: _containers.RepeatedScalarFieldContainer[str]
    drain: bool
    others_drain: bool
    leader: str
    answer: int
    authorities: str
    kafka_listeners: _containers.RepeatedCompositeFieldContainer[KafkaListener]
    def __init__(self, may_leave: _Optional[bool] = ..., assigned: _Optional[_Iterable[str]] = ..., drain: _Optional[bool] = ..., others_drain: _Optional[bool] = ..., leader: _Optional[str] = ..., answer: _Optional[int] = ..., authorities: _Optional[str] = ..., kafka_listeners: _Optional[_Iterable[_Union[KafkaListener, _Mapping]]] = ...) -> None: ...

class KafkaListener(_message.Message):
    __slots__ = ("incarnation", "address")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    address: str
    def __init__(self, incarnation: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...
