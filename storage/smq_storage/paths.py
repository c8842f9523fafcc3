"""Every path in the filer, relative to the store's root. Nothing else builds paths.

::

    <namespace>/<topic>/current.json
    <namespace>/<topic>/<topic uid>/
      topic.json
      layout.json
      index/<8 digits>.json
      <segment>/<first offset, 20 digits>.parquet
      _groups/<group>.json
      _uploads/<name>.parquet
    _deleted/<topic uid>.json
    _probe/...
"""

from __future__ import annotations

import re

from smq_core.errors import InvalidRequest

PROBE = "_probe"
RETIRED = "_deleted"

_GROUP = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_CHUNK = re.compile(r"(?:.*/)?(\d{20})\.parquet")
_RETIRED = re.compile(rf"{RETIRED}/([^/]+)\.json")


def current(topic: str) -> str:
    return f"{topic}/current.json"


def topic_folder(topic: str, uid: str) -> str:
    return f"{topic}/{uid}"


def topic_json(topic: str, uid: str) -> str:
    return f"{topic}/{uid}/topic.json"


def layout(topic: str, uid: str) -> str:
    return f"{topic}/{uid}/layout.json"


def retired(uid: str) -> str:
    return f"{RETIRED}/{uid}.json"


def retired_uid(path: str) -> str | None:
    """The uid in the path of a record of a deleted topic, or None when it is not one's."""
    match = _RETIRED.fullmatch(path)
    return match[1] if match else None


def index_folder(topic: str, uid: str) -> str:
    return f"{topic}/{uid}/index"


def index_page(topic: str, uid: str, page: int) -> str:
    return f"{topic}/{uid}/index/{page:08d}.json"


def segment_folder(topic: str, uid: str, segment: str) -> str:
    return f"{topic}/{uid}/{segment}"


def chunk(topic: str, uid: str, segment: str, first: int) -> str:
    return f"{topic}/{uid}/{segment}/{first:020d}.parquet"


def uploads_folder(topic: str, uid: str) -> str:
    return f"{topic}/{uid}/_uploads"


def upload(topic: str, uid: str, name: str) -> str:
    return f"{topic}/{uid}/_uploads/{name}.parquet"


def upload_name(path: str) -> str:
    """What a reference calls the upload at this path: the file's name below ``_uploads/``."""
    return path.partition("/_uploads/")[2]


def groups_folder(topic: str, uid: str) -> str:
    return f"{topic}/{uid}/_groups"


def group(topic: str, uid: str, name: str) -> str:
    """Raises InvalidRequest when the name does not fit in a file name."""
    if not _GROUP.fullmatch(name):
        raise InvalidRequest(
            f"a group's name has up to 128 letters, digits, '.', '_', '-' and no leading '.', not {name!r}"
        )
    return f"{topic}/{uid}/_groups/{name}.json"


def group_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".json")


def first_offset(path: str) -> int | None:
    """The first offset in a chunk's path, or None when it is not a chunk's."""
    match = _CHUNK.fullmatch(path)
    return int(match[1]) if match else None
