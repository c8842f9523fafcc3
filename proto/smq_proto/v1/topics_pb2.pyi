from google.protobuf import empty_pb2 as _empty_pb2
from smq_proto.v1 import data_pb2 as _data_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("topic", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_token: _Optional[str] = ...) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("segments", "removed", "next_page_token")
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
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[_data_pb2.Segment]
    removed: HistoryReply.Removed
    next_page_token: str
    def __init__(self, segments: _Optional[_Iterable[_Union[_data_pb2.Segment, _Mapping]]] = ..., removed: _Optional[_Union[HistoryReply.Removed, _Mapping]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

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
        __slots__ = ("size", "sha256", "large_value")
        SIZE_FIELD_NUMBER: _ClassVar[int]
        SHA256_FIELD_NUMBER: _ClassVar[int]
        LARGE_VALUE_FIELD_NUMBER: _ClassVar[int]
        size: int
        sha256: bytes
        large_value: str
        def __init__(self, size: _Optional[int] = ..., sha256: _Optional[bytes] = ..., large_value: _Optional[str] = ...) -> None: ...
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

class SignReadsRequest(_message.Message):
    __slots__ = ("topic", "uid", "paths")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    uid: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., uid: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class SignReadsReply(_message.Message):
    __slots__ = ("urls", "lifetime_seconds")
    URLS_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    urls: _containers.RepeatedScalarFieldContainer[str]
    lifetime_seconds: int
    def __init__(self, urls: _Optional[_Iterable[str]] = ..., lifetime_seconds: _Optional[int] = ...) -> None: ...

class GetFilerKeysRequest(_message.Message):
    __slots__ = ("topic", "lifetime_seconds")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lifetime_seconds: int
    def __init__(self, topic: _Optional[str] = ..., lifetime_seconds: _Optional[int] = ...) -> None: ...

class FilerKeys(_message.Message):
    __slots__ = ("access_key", "secret_key", "session_token", "expires_at", "store_url", "store_options")
    class StoreOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_KEY_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    STORE_URL_FIELD_NUMBER: _ClassVar[int]
    STORE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    access_key: str
    secret_key: str
    session_token: str
    expires_at: int
    store_url: str
    store_options: _containers.ScalarMap[str, str]
    def __init__(self, access_key: _Optional[str] = ..., secret_key: _Optional[str] = ..., session_token: _Optional[str] = ..., expires_at: _Optional[int] = ..., store_url: _Optional[str] = ..., store_options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ListFilesRequest(_message.Message):
    __slots__ = ("topic", "uid", "folder", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    uid: str
    folder: str
    after: str
    def __init__(self, topic: _Optional[str] = ..., uid: _Optional[str] = ..., folder: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class ListFilesReply(_message.Message):
    __slots__ = ("files",)
    class File(_message.Message):
        __slots__ = ("path", "size", "modified")
        PATH_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        MODIFIED_FIELD_NUMBER: _ClassVar[int]
        path: str
        size: int
        modified: int
        def __init__(self, path: _Optional[str] = ..., size: _Optional[int] = ..., modified: _Optional[int] = ...) -> None: ...
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[ListFilesReply.File]
    def __init__(self, files: _Optional[_Iterable[_Union[ListFilesReply.File, _Mapping]]] = ...) -> None: ...
