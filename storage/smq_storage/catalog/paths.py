"""Every path in the filer, relative to the store's root. Nothing else builds paths.

Each function raises InvalidRequest for a name that would not be one part of the path, wherever the name comes from.

::

    <namespace>/<topic>/_current.json
    <namespace>/<topic>/<topic uid>/
      _topic.json
      _layout.json
      _publishes.json
      _index/<8 digits>.json
      _file_lists/<segment>.<version, 8 digits>.json
      _groups/<group>.json
      _producers/<producer id>.json
      _pins/<pin id>.json
      _compacted/<segment>/<first offset, 20 digits>-<nonce>.parquet
      <segment>/<first offset, 20 digits>.parquet
    _uploads/<topic uid>/<name>.parquet
    _large_values/<topic uid>/<name>.value
    _deleted/<topic uid>.json
    _kafka_groups/<group>.json
    _kafka_names/<name>.json
    _format.json
    _clock.json
    _probe/...

Names of metadata begin with ``_``, and uploads lie outside the topic's folder. So a glob over a topic
(``<namespace>/<topic>/*/*/*.parquet``) reads its messages and nothing else.
"""

from __future__ import annotations

import hashlib
import re

from smq_core.errors import InvalidRequest
from smq_core.model.names import check_file_name, check_topic_name, is_file_name, shown

ROOT_FORMAT = "_format.json"
# Written only to learn the filer's time; its content says nothing.
CLOCK = "_clock.json"
UPLOADS = "_uploads"
# Not with the uploads, which are collected when no reference names them.
LARGE_VALUES = "_large_values"
DELETED = "_deleted"
# Groups of Kafka clients are of no topic: one may read several.
KAFKA_GROUPS = "_kafka_groups"
KAFKA_NAMES = "_kafka_names"
# Outside of the segment's folder, so that a glob over chunks does not find merged rows a second time.
COMPACTED = "_compacted"

_CHUNK = re.compile(r"(?:.*/)?(\d{20})\.parquet")
_FILE_LIST = re.compile(r"([^/]+)\.(\d{8})(?:-[^/.]+)?\.json")
_COMPACTED = re.compile(rf".*/{COMPACTED}/[^/]+/\d{{20}}-[^/]+\.parquet")
_UPLOAD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,191}\.parquet")
_LARGE_VALUE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,191}\.value")
_SEGMENT = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,127}")
_FOLDER_FOR_READERS = re.compile(rf"_index|_file_lists|(?:{COMPACTED}/)?{_SEGMENT.pattern}")
# What readers need in a topic's folder: no positions of groups, claims of producers, or pins.
_FOR_READERS = re.compile(
    r"_topic\.json|_layout\.json|_index/[0-9]{8}\.json|_file_lists/[A-Za-z0-9-][A-Za-z0-9._-]{0,191}\.json"
    rf"|{_SEGMENT.pattern}/[0-9]{{20}}\.parquet|{COMPACTED}/{_SEGMENT.pattern}/[0-9]{{20}}-[A-Za-z0-9_-]{{1,64}}\.parquet"
)
_DELETED_TOPIC = re.compile(rf"{DELETED}/([^/]+)\.json")


def current(topic: str) -> str:
    check_topic_name(topic)
    return f"{topic}/_current.json"


def topic_folder(topic: str, uid: str) -> str:
    check_topic_name(topic)
    return f"{topic}/{_uid(uid)}"


def topic_json(topic: str, uid: str) -> str:
    return f"{topic_folder(topic, uid)}/_topic.json"


def layout(topic: str, uid: str) -> str:
    return f"{topic_folder(topic, uid)}/_layout.json"


def publishes(topic: str, uid: str) -> str:
    return f"{topic_folder(topic, uid)}/_publishes.json"


def deleted_topic(uid: str) -> str:
    return f"{DELETED}/{_uid(uid)}.json"


def deleted_topic_uid(path: str) -> str | None:
    """The uid in the path of a record of a deleted topic, or None for any other path."""
    match = _DELETED_TOPIC.fullmatch(path)
    return match[1] if match else None


def index_folder(topic: str, uid: str) -> str:
    return f"{topic_folder(topic, uid)}/_index"


def index_page(topic: str, uid: str, page: int) -> str:
    return f"{topic_folder(topic, uid)}/_index/{page:08d}.json"


def segment_folder(topic: str, uid: str, segment: str) -> str:
    return f"{topic_folder(topic, uid)}/{_segment(segment)}"


def chunk(topic: str, uid: str, segment: str, first: int) -> str:
    return f"{segment_folder(topic, uid, segment)}/{first:020d}.parquet"


def compacted_folders(topic: str, uid: str) -> str:
    """The folder with a folder of compacted files for each segment."""
    return f"{topic_folder(topic, uid)}/{COMPACTED}"


def compacted_folder(topic: str, uid: str, segment: str) -> str:
    return f"{compacted_folders(topic, uid)}/{_segment(segment)}"


def compacted_file(topic: str, uid: str, segment: str, first: int, nonce: str) -> str:
    """The path of a new file with merged rows from ``first`` on. ``nonce`` makes it unique."""
    return f"{compacted_folder(topic, uid, segment)}/{first:020d}-{nonce}.parquet"


def is_compacted(path: str) -> bool:
    return _COMPACTED.fullmatch(path) is not None


def compacted_file_of_chunk(chunk_path: str, name: str) -> str:
    """The path of the compacted file of that name, which the chunk at this path names."""
    folder, segment, _ = chunk_path.rsplit("/", 2)
    return f"{folder}/{COMPACTED}/{segment}/{name}"


def file_lists_folder(topic: str, uid: str) -> str:
    return f"{topic_folder(topic, uid)}/_file_lists"


def file_list(topic: str, uid: str, name: str) -> str:
    """The path of the file list with this :func:`file_list_name`."""
    return f"{topic_folder(topic, uid)}/_file_lists/{name}"


def file_list_name(segment: str, version: int, nonce: str = "") -> str:
    """The name of a file list, as the index has it. ``nonce`` distinguishes writers of later versions."""
    return f"{segment}.{version:08d}{f'-{nonce}' if nonce else ''}.json"


def file_list_segment(path: str) -> str | None:
    """The segment in the path or the name of a file list, or None for any other path."""
    match = _FILE_LIST.fullmatch(path.rsplit("/", 1)[-1])
    return match[1] if match else None


def file_list_version(path: str) -> int | None:
    """The version in the path or the name of a file list, or None for any other path."""
    match = _FILE_LIST.fullmatch(path.rsplit("/", 1)[-1])
    return int(match[2]) if match else None


def uploads_folder(uid: str) -> str:
    return f"{UPLOADS}/{_uid(uid)}"


def upload_file_name(producer: str, epoch: int, attempt: int, nonce: str) -> str:
    """The file name of a new upload. ``nonce`` makes it unique. An id that cannot be a file name becomes its hash."""
    return f"{_in_file_name(producer)}-{epoch}-{attempt}-{nonce}.parquet"


def uploaded_file(uid: str, file_name: str) -> str:
    """The path of the upload of that file name. Raises InvalidRequest if the name would lead out of the folder."""
    if not _UPLOAD.fullmatch(file_name):
        raise InvalidRequest(
            f"an upload's name has up to 200 letters, digits, '.', '_', '-', no leading '.', and ends with .parquet, "
            f"not {shown(file_name)}"
        )
    return f"{uploads_folder(uid)}/{file_name}"


def large_value(uid: str, name: str) -> str:
    """The path of the object with a large value. Raises InvalidRequest if it is not the name of one."""
    if not _LARGE_VALUE.fullmatch(name):
        raise InvalidRequest(
            f"the name of a large value has up to 200 letters, digits, '.', '_', '-', no leading '.', and ends with "
            f".value, not {shown(name)}"
        )
    return f"{large_values_folder(uid)}/{name}"


def large_values_folder(uid: str) -> str:
    return f"{LARGE_VALUES}/{_uid(uid)}"


def large_value_name(producer: str, epoch: int, nonce: str) -> str:
    """The name of a new object with a large value, as ``upload_file_name``."""
    return f"{_in_file_name(producer)}-{epoch}-{nonce}.value"


def _in_file_name(producer: str) -> str:
    return producer if is_file_name(producer) else _hash(producer)


def is_upload(path: str) -> bool:
    return path.startswith(f"{UPLOADS}/")


def topic_uid_of_chunk(path: str) -> str:
    """The uid of the topic in a chunk's path."""
    return path.rsplit("/", 3)[-3]


def upload_name(path: str) -> str:
    """The name by which the log finds the upload or large value at this path: that below the folder of the topic."""
    return path.split("/", 2)[2]


def groups_folder(topic: str, uid: str) -> str:
    return f"{topic_folder(topic, uid)}/_groups"


def group(topic: str, uid: str, name: str) -> str:
    """Raises InvalidRequest if the name cannot be a file name."""
    check_file_name("a group's name", name)
    return f"{groups_folder(topic, uid)}/{name}.json"


def kafka_group(name: str) -> str:
    """The path of a group of Kafka clients. A name that cannot be a file name is replaced by its hash."""
    return f"{KAFKA_GROUPS}/{_or_hash(name)}.json"


def kafka_name(name: str) -> str:
    """The path of the topic that Kafka's clients call so. A name that cannot be a file name is replaced by its hash."""
    return f"{KAFKA_NAMES}/{_or_hash(name)}.json"


def group_name(path: str) -> str | None:
    """The group in the path of a file of positions, or None for any other path."""
    return _document_name(path)


def producer_claim(topic: str, uid: str, producer: str) -> str:
    """An id that cannot be a file name is replaced by its hash."""
    return f"{topic_folder(topic, uid)}/_producers/{_or_hash(producer)}.json"


def pins_folder(topic: str, uid: str) -> str:
    return f"{topic_folder(topic, uid)}/_pins"


def pin(topic: str, uid: str, pin_id: str) -> str:
    """Raises InvalidRequest if the id cannot be a file name."""
    check_file_name("a pin's id", pin_id)
    return f"{pins_folder(topic, uid)}/{pin_id}.json"


def pin_id(path: str) -> str | None:
    """The id in a pin's path, or None for a file that is no pin's."""
    return _document_name(path)


def first_offset(path: str) -> int | None:
    """The first offset in a chunk's path, or None for any other path."""
    match = _CHUNK.fullmatch(path)
    return int(match[1]) if match else None


def is_for_readers(topic: str, uid: str, path: str) -> bool:
    """Whether this is the path of a file of that topic which its readers need.

    Raises InvalidRequest for a topic or a uid that cannot be.
    """
    if path == current(topic):
        return True
    rules = {
        topic_folder(topic, uid): _FOR_READERS,
        uploads_folder(uid): _UPLOAD,
        large_values_folder(uid): _LARGE_VALUE,
    }
    return any(
        path.startswith(f"{folder}/") and names.fullmatch(path, len(folder) + 1) is not None
        for folder, names in rules.items()
    )


def is_folder_for_readers(topic: str, uid: str, path: str) -> bool:
    """Whether this is a folder of that topic whose files a reader may list: of a segment, the index, the file lists.

    Uploads may be listed by nobody, because some are not published yet. Raises as :func:`is_for_readers`.
    """
    folder = f"{topic_folder(topic, uid)}/"
    return path.startswith(folder) and _FOLDER_FOR_READERS.fullmatch(path, len(folder)) is not None


def _or_hash(name: str) -> str:
    return name if is_file_name(name) else f"={_hash(name)}"


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _uid(uid: str) -> str:
    check_file_name("a topic's uid", uid)
    return uid


def _segment(segment: str) -> str:
    check_file_name("a segment's name", segment)
    if segment.startswith("_"):
        raise InvalidRequest(f"a segment's name begins with no '_', as names of metadata do, not {shown(segment)}")
    return segment


def _document_name(path: str) -> str | None:
    """The name in the path of a JSON file, or None for any other path."""
    name, dot, suffix = path.rsplit("/", 1)[-1].rpartition(".")
    return name if dot and suffix == "json" and is_file_name(name) else None
