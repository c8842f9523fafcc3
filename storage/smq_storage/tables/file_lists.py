"""``_file_lists/<segment>.<version>.json``: the file lists.

The files are stored by column, which takes a third of the bytes of a list of objects. A path is relative to
the segment's folder, or to the store's root if it begins with ``/``. Few files name objects with large values, so these
names are stored by the file's index.

A file list counts only once the index names it (``sealed_index.name_file_list``). Until then nobody reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

from smq_core.errors import CorruptDocument
from smq_core.file_lists.file_list import FileEntry, FileList
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import ReadBackResult, RetryPolicy, WriteConflict, create
from smq_storage.object_store.json_codec import from_json, to_json
from smq_storage.object_store.store import ObjectMissing, Store

DEFAULT_RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class _Columns:
    """The fields of FileEntry but ``large_values``, each as a list with one value for each file."""

    path: tuple[str, ...]
    first: tuple[int, ...]
    rows: tuple[int, ...]
    bytes: tuple[int, ...]
    etag: tuple[str, ...]
    timestamp_min: tuple[int | None, ...]
    timestamp_max: tuple[int | None, ...]
    appended_min: tuple[int | None, ...]
    appended_max: tuple[int | None, ...]
    key_min: tuple[int | str | None, ...]
    key_max: tuple[int | str | None, ...]
    schema_version: tuple[int, ...]
    first_row: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredFileList:
    segment: str
    end: int
    files: _Columns
    version: int = 0
    nonce: str = ""
    large_values: dict[int, tuple[str, ...]] = field(default_factory=dict)


_COLUMNS = [f.name for f in fields(_Columns)]


def write_file_list(
    store: Store, topic: str, uid: str, file_list: FileList, retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
) -> str:
    """Creates the file list and returns its file name. It can be repeated, by any writer of the same files.

    Raises CorruptDocument if the object of that name lists other files or cannot be decoded, StoreUnavailable, and
    StoreStateUnknown if it may or may not have been written.
    """
    name = paths.file_list_name(file_list.segment, file_list.version, file_list.nonce)
    path = paths.file_list(topic, uid, name)
    folder = paths.segment_folder(topic, uid, file_list.segment)

    def read_back(store: Store, path: str) -> ReadBackResult[FileList]:
        found = store.get(path)
        return ReadBackResult(decode_file_list(found.data, folder, path), found.etag)

    def lists_the_same_files(found: FileList) -> bool:
        return _identities(found) == _identities(file_list)

    data = encode_file_list(file_list, folder)
    outcome = create(store, path, data, read_back=read_back, is_mine=lists_the_same_files, retry_policy=retry_policy)
    if isinstance(outcome, WriteConflict):
        raise CorruptDocument(
            f"{path} lists other files than the segment has: delete it unless the index names it", path=path
        )
    return name


def read_file_list(store: Store, topic: str, uid: str, name: str) -> FileList | None:
    """The file list of that file name, or None if there is none. Raises CorruptDocument, StoreUnavailable."""
    path = paths.file_list(topic, uid, name)
    segment = paths.file_list_segment(name)
    if segment is None:
        raise CorruptDocument(f"{path} is not the name of a file list", path=path)
    try:
        data = store.get(path).data
    except ObjectMissing:
        return None
    file_list = decode_file_list(data, paths.segment_folder(topic, uid, segment), path)
    if file_list.segment != segment:
        raise CorruptDocument(f"{path} is the file list of {file_list.segment}", path=path)
    return file_list


def find_file_list(store: Store, topic: str, uid: str, name: str) -> FileList | None:
    """The file list of that file name, or None if the name is empty or the file cannot be read: then walk the chain.

    Raises StoreUnavailable.
    """
    try:
        return read_file_list(store, topic, uid, name) if name else None
    except CorruptDocument:
        return None


def encode_file_list(file_list: FileList, folder: str) -> bytes:
    """The file list as JSON. ``folder`` is the segment's folder."""
    columns = {name: tuple(map(attrgetter(name), file_list.files)) for name in _COLUMNS}
    columns["path"] = tuple(_relative(path, folder) for path in columns["path"])
    large_values = {number: file.large_values for number, file in enumerate(file_list.files) if file.large_values}
    return to_json(
        _StoredFileList(
            segment=file_list.segment,
            end=file_list.end,
            files=_Columns(**columns),
            version=file_list.version,
            nonce=file_list.nonce,
            large_values=large_values,
        )
    )


def decode_file_list(data: bytes | memoryview, folder: str, path: str = "") -> FileList:
    """The reverse of :func:`encode_file_list`; ``path`` is for errors. Raises CorruptDocument."""
    try:
        stored = from_json(_StoredFileList, data)
        columns = {name: getattr(stored.files, name) for name in _COLUMNS}
        columns["path"] = [_absolute(relative, folder) for relative in columns["path"]]
        files = [FileEntry(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]
        if any(number not in range(len(files)) for number in stored.large_values):
            raise ValueError(f"it names large values of other files than its {len(files)}")
        for number, names in stored.large_values.items():
            files[number] = replace(files[number], large_values=names)
        return FileList(
            segment=stored.segment, end=stored.end, files=tuple(files), version=stored.version, nonce=stored.nonce
        )
    except ValueError as error:
        raise CorruptDocument(f"{path or 'the file list'} cannot be understood: {error}", path=path) from None


def _identities(file_list: FileList) -> tuple[object, ...]:
    """What two file lists of the same files have in common, also if only one writer knew all statistics."""
    return (
        file_list.segment,
        file_list.end,
        *((it.path, it.first, it.rows, it.bytes, it.first_row, it.large_values) for it in file_list.files),
    )


def _relative(path: str, folder: str) -> str:
    return path[len(folder) + 1 :] if path.startswith(f"{folder}/") else f"/{path}"


def _absolute(path: str, folder: str) -> str:
    return path[1:] if path.startswith("/") else f"{folder}/{path}"
