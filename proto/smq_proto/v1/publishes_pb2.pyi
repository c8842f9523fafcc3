from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
