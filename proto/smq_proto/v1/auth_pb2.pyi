from google.protobuf import empty_pb2 as _empty_pb2
from smq_proto.v1 import data_pb2 as _data_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoginRequest(_message.Message):
    __slots__ = ("incarnation", "hosts")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, incarnation: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class LoginReply(_message.Message):
    __slots__ = ("certificate_chain", "private_key", "roots", "issued_at", "expires_at", "release", "identity", "grant_keys", "authorities")
    CERTIFICATE_CHAIN_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_KEY_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    GRANT_KEYS_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    certificate_chain: bytes
    private_key: bytes
    roots: bytes
    issued_at: int
    expires_at: int
    release: str
    identity: str
    grant_keys: _containers.RepeatedScalarFieldContainer[bytes]
    authorities: str
    def __init__(self, certificate_chain: _Optional[bytes] = ..., private_key: _Optional[bytes] = ..., roots: _Optional[bytes] = ..., issued_at: _Optional[int] = ..., expires_at: _Optional[int] = ..., release: _Optional[str] = ..., identity: _Optional[str] = ..., grant_keys: _Optional[_Iterable[bytes]] = ..., authorities: _Optional[str] = ...) -> None: ...

class GetGrantsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetGrantsReply(_message.Message):
    __slots__ = ("grants", "expires_at")
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[_data_pb2.SignedGrant]
    expires_at: int
    def __init__(self, grants: _Optional[_Iterable[_Union[_data_pb2.SignedGrant, _Mapping]]] = ..., expires_at: _Optional[int] = ...) -> None: ...

class WhoAmIReply(_message.Message):
    __slots__ = ("identity", "groups", "method", "expires_at")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    identity: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    method: str
    expires_at: int
    def __init__(self, identity: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., method: _Optional[str] = ..., expires_at: _Optional[int] = ...) -> None: ...

class CheckAccessRequest(_message.Message):
    __slots__ = ("verb", "topic", "group")
    VERB_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    verb: str
    topic: str
    group: str
    def __init__(self, verb: _Optional[str] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class CheckAccessReply(_message.Message):
    __slots__ = ("allowed", "reason")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    reason: str
    def __init__(self, allowed: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class ListAuthoritiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RotateAuthorityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AuthorityList(_message.Message):
    __slots__ = ("authorities", "waits_for")
    class Authority(_message.Message):
        __slots__ = ("id", "phase", "since", "expires_at")
        ID_FIELD_NUMBER: _ClassVar[int]
        PHASE_FIELD_NUMBER: _ClassVar[int]
        SINCE_FIELD_NUMBER: _ClassVar[int]
        EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
        id: str
        phase: str
        since: int
        expires_at: int
        def __init__(self, id: _Optional[str] = ..., phase: _Optional[str] = ..., since: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    authorities: _containers.RepeatedCompositeFieldContainer[AuthorityList.Authority]
    waits_for: str
    def __init__(self, authorities: _Optional[_Iterable[_Union[AuthorityList.Authority, _Mapping]]] = ..., waits_for: _Optional[str] = ...) -> None: ...
