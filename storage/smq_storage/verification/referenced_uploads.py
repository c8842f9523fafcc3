"""The uploads that reference chunks name: their footers, each read once, and their rows on request."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from smq_core.errors import CorruptChunk, DataLost, ReferenceRejected
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.reference import Reference
from smq_storage.object_store.absence import SuspectedAbsences
from smq_storage.object_store.store import ObjectMissing, Store
from smq_storage.uploads.reference_rules import check_upload
from smq_storage.uploads.upload_format import PARTITION, UploadFooter
from smq_storage.uploads.uploaded_files import (
    ReferencedRows,
    StoredUpload,
    read_referenced_rows,
    read_upload_footer,
)
from smq_storage.verification.findings import FileProblem

_NOT_LISTED = (
    "is missing, as two reads say; no listing was made, because the leader lists no uploads: set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY to a key of the filer for that"
)


class ReferencedUploads:
    """``rows``: whether the rows are read, too. May raise StoreUnavailable.

    A missing upload is a problem only after ``absences`` were confirmed.
    """

    def __init__(self, store: Store, topic_uid: str, absences: SuspectedAbsences, *, rows: bool) -> None:
        self._store = store
        self._topic_uid = topic_uid
        self._absences = absences
        self._rows = rows
        self._known: dict[str, StoredUpload | FileProblem] = {}

    def problems(self, path: str, info: ChunkInfo, reference: Reference, schema: pa.Schema) -> Iterator[FileProblem]:
        """What is wrong with the upload that the chunk at ``path`` refers to. It should have these columns."""
        try:
            referenced = ReferencedRows.of_chunk(self._topic_uid, info)
        except CorruptChunk as error:
            yield FileProblem.of(error, path)
            return
        assert referenced is not None
        found = self._known.get(referenced.path) or self._read(referenced.path)
        self._known[referenced.path] = found
        if isinstance(found, FileProblem):
            yield FileProblem(found.path, f"{found.what}; {_needed_by(info)}")
        elif found.etag != reference.etag:
            yield FileProblem(
                referenced.path, f"was altered: its etag is {found.etag}, not {reference.etag}; {_needed_by(info)}"
            )
        else:
            yield from self._fitting(referenced, reference, found, schema)

    def _read(self, path: str) -> StoredUpload | FileProblem:
        try:
            return read_upload_footer(self._store, path)
        except ObjectMissing:
            self._absences.add(path)
            return FileProblem(path, "is missing" if self._store.lists_uploads else _NOT_LISTED)
        except CorruptChunk as error:
            return FileProblem.of(error, path)

    def _fitting(
        self, referenced: ReferencedRows, reference: Reference, found: StoredUpload, schema: pa.Schema
    ) -> Iterator[FileProblem]:
        try:
            check_upload(reference, found.parsed, found.size, self._topic_uid, schema)
            if self._rows:
                for first, table in read_referenced_rows(self._store, referenced):
                    row = first - referenced.first + referenced.first_row
                    _check_partitions(table, row, found.parsed.footer)
        except (CorruptChunk, DataLost) as error:
            yield FileProblem.of(error, referenced.path)
        except ReferenceRejected as error:
            yield FileProblem(referenced.path, f"does not fit its reference ({error.field}): {error.message}")


def _check_partitions(table: pa.Table, row: int, footer: UploadFooter) -> None:
    """Whether the rows from ``row`` on have the partitions that the footer says. Raises CorruptChunk."""
    partitions, counts = zip(*footer.partitions, strict=True)
    expected = np.repeat(np.array(partitions), np.array(counts))[row : row + table.num_rows]
    if not np.array_equal(table.column(PARTITION).to_numpy(), expected):
        raise CorruptChunk(
            f"the rows {row} to {row + table.num_rows - 1} have other partitions than the file's footer says"
        )


def _needed_by(info: ChunkInfo) -> str:
    return f"{info.segment} has the messages {info.first} to {info.end - 1} there"
