"""The files of one segment's journal: ``segment.json``, and the records in files named by their first offset.

``segment.json`` has all that is needed to host the segment again. A segment whose journal had an error has
``segment.broken.json`` in its place: a rename needs no space on a full disk.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from urllib.parse import quote, unquote

import xxhash
from google.protobuf import json_format
from pydantic import BaseModel, ValidationError

from smq_proto.v1 import data_pb2 as pb

DEFINITION = "segment.json"
BROKEN_DEFINITION = "segment.broken.json"
PRIVATE_FOLDER = 0o700
# The modes of all that is in a journal: other users of the machine must not read messages.
PRIVATE_FILE = 0o600
# No file of records is larger: one takes 16 MiB, and a last record.
MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
# The suffix of folders whose files are being deleted.
REMOVED = ".removed"

_RECORDS = re.compile(r"(\d{20})\.log")


class _Document(BaseModel):
    """``checksum`` is the xxh3_64 of ``opened``, a JSON text."""

    checksum: str
    opened: str


def segment_folder(incarnation_folder: Path, uid: str, segment: str) -> Path:
    return incarnation_folder / folder_name(uid) / folder_name(segment)


def folder_name(name: str) -> str:
    """A name as one path component."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def name_of(folder: Path) -> str:
    """The name that ``folder_name`` made into this folder's."""
    return unquote(folder.name)


def records_file(folder: Path, first: int) -> Path:
    return folder / f"{first:020d}.log"


def first_offset(path: Path) -> int | None:
    """The offset in the name of a file of records; None for other files."""
    match = _RECORDS.fullmatch(path.name)
    return int(match[1]) if match else None


def write_definition(folder: Path, opened: pb.OpenSegment) -> None:
    """Writes ``segment.json``, which appears whole or not at all. Raises OSError."""
    text = json_format.MessageToJson(opened, indent=None, preserving_proto_field_name=True)
    document = _Document(checksum=_checksum(text), opened=text)
    unfinished = folder / f"{DEFINITION}.tmp"
    unfinished.write_text(document.model_dump_json(indent=1))
    unfinished.rename(folder / DEFINITION)


def read_definition(path: Path) -> pb.OpenSegment | None:
    """What ``write_definition`` wrote; None if the file is damaged. Raises OSError."""
    try:
        document = _Document.model_validate_json(read_regular(path, MAX_DOCUMENT_BYTES))
        if document.checksum != _checksum(document.opened):
            return None
        return json_format.Parse(document.opened, pb.OpenSegment())
    except (ValidationError, json_format.ParseError):
        return None


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a file. Raises OSError, also if it is no regular file, whose read may never end, or too large."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, at most {limit} are read", str(path))
        return file.read(min(limit, status.st_size + 1))  # reserves what it may read


def mark_broken(folder: Path) -> bool:
    """Lets no recovery take these files for complete. False if somebody deleted them. Raises OSError."""
    try:
        (folder / DEFINITION).rename(folder / BROKEN_DEFINITION)
    except FileNotFoundError:
        return False
    return True


def _checksum(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())
