"""File lists in the simulated store: the entries of simulated chunks, and the file list that a chain really has."""

from __future__ import annotations

from typing import NamedTuple

from smq_core.file_lists.file_list import FileEntry, FileList
from smq_core.model.chunk_info import ChunkInfo
from smq_storage.catalog import paths
from smq_storage.tables.file_lists import decode_file_list, encode_file_list
from support.sim.filer.chunk_chain import TOPIC, UID, StoredChunk, file_of


class StoredFile(NamedTuple):
    """What ``ChunkChain.stored`` returns, without a Parquet footer."""

    info: ChunkInfo
    path: str


def file_entry(chunk: StoredFile, key: str | None) -> FileEntry:
    """Stands in for ``smq_storage.tables.file_statistics.file_entry``."""
    return file_of(chunk.info)


def name_in_store(name: str) -> str:
    """The simulated store's name of the file list with this file name."""
    return f"doc/{paths.file_list(TOPIC, UID, name)}"


def encoded(file_list: FileList) -> bytes:
    return encode_file_list(file_list, paths.segment_folder(TOPIC, UID, file_list.segment))


def decoded(data: bytes, segment: str) -> FileList:
    """Raises CorruptDocument."""
    return decode_file_list(data, paths.segment_folder(TOPIC, UID, segment))


def file_list_of(segment: str, chain: list[StoredChunk]) -> FileList:
    """What the file list of this sealed chain must list."""
    return FileList(segment=segment, end=chain[-1].info.first, files=tuple(file_of(it.info) for it in chain[:-1]))
