"""The files of a topic for tools that read Parquet: made by :meth:`smq.Client.files`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, overload

from smq_core.errors import InvalidRequest
from smq_storage.catalog import paths
from smq_storage.chunks.python_times import time_of_micros
from smq_storage.tables.listed_files import CHUNK, COMPACTED, UPLOAD, ListedFile

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyarrow import fs

    from smq_core.model.entities import Micros
    from smq_storage.object_store.store import StoreSettings


DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file, or the part of one that belongs to a segment. Times are in UTC, None if they are not known."""

    url: str
    """``s3://bucket/path``"""
    segment: str
    kind: str
    """``chunk`` (a broker wrote it), ``compacted`` (small files merged), ``upload`` (published by reference)"""
    first_offset: int
    """of the first message. In a compacted file the rows are sorted by key, and have a column ``_offset``."""
    rows: int
    first_row: int
    """the first row of the file that belongs to the segment; only uploads have other rows than these"""
    bytes: int
    etag: str
    appended_min: datetime | None
    appended_max: datetime | None
    timestamp_min: datetime | None
    timestamp_max: datetime | None
    schema_version: int
    large_values: int
    """how many objects with values that were too large for a batch it refers to; their values are null in the file"""

    @classmethod
    def of(cls, listed: ListedFile, root: str) -> DataFile:
        """``root`` is the store's URL."""
        file = listed.file
        return cls(
            url=f"{root.rstrip('/')}/{file.path}",
            segment=listed.segment,
            kind=listed.kind,
            first_offset=file.first,
            rows=file.rows,
            first_row=file.first_row,
            bytes=file.bytes,
            etag=file.etag,
            appended_min=_time(file.appended_min),
            appended_max=_time(file.appended_max),
            timestamp_min=_time(file.timestamp_min),
            timestamp_max=_time(file.timestamp_max),
            schema_version=file.schema_version,
            large_values=len(file.large_values),
        )


class DataFiles(Sequence[DataFile]):
    """The files of a topic, in which each message is once. It is a list of :class:`DataFile` with some helpers.

    The files stay as long as retention keeps their segments, and an hour longer; those that a compaction merges stay
    for an hour after it.
    """

    def __init__(self, topic: str, uid: str, files: Sequence[DataFile], settings: StoreSettings) -> None:
        self.topic = topic
        self._uid = uid
        self._files = list(files)
        self._settings = settings

    @overload
    def __getitem__(self, index: int) -> DataFile: ...
    @overload
    def __getitem__(self, index: slice) -> list[DataFile]: ...
    def __getitem__(self, index: int | slice) -> DataFile | list[DataFile]:
        return self._files[index]

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[DataFile]:
        return iter(self._files)

    def __repr__(self) -> str:
        return f"<DataFiles of {self.topic}: {len(self)} files, {self.rows:,} messages>"

    @property
    def rows(self) -> int:
        """The number of messages."""
        return sum(file.rows for file in self._files)

    @property
    def urls(self) -> list[str]:
        """The URL of each file once. Uploads may have rows besides; see :attr:`DataFile.first_row`."""
        return list(dict.fromkeys(file.url for file in self._files))

    @property
    def endpoint(self) -> str | None:
        """The S3 endpoint of the files; None for that of AWS."""
        return self._settings.endpoint

    @property
    def region(self) -> str | None:
        """The S3 region of the files; None for the usual one."""
        return self._settings.region

    @property
    def signed(self) -> bool:
        """Whether this program has credentials for the files."""
        return self._settings.has_credentials

    @property
    def readable(self) -> bool:
        """Whether tools that this program gives the files to can read them, with its credentials or without any."""
        return not self._settings.lacks_credentials

    @property
    def folder(self) -> str:
        """The folder with the topic's files; ``<folder>/*/*.parquet`` are those that brokers wrote."""
        return f"{self._settings.url.rstrip('/')}/{paths.topic_folder(self.topic, self._uid)}"

    def folder_problems(self) -> list[str]:
        """Why a tool that reads all of :attr:`folder` gets other messages than the log has. Empty if it gets the same.

        It looks at the files listed here, so list them all.
        """
        found = []
        uploads = sum(file.kind == UPLOAD for file in self._files)
        if uploads:
            rows = sum(file.rows for file in self._files if file.kind == UPLOAD)
            found.append(
                f"{rows:,} messages were published by reference: they are in files outside of the folder, so a glob "
                "misses them"
            )
        if any(file.kind == COMPACTED for file in self._files):
            found.append(
                "segments were compacted: <folder>/*/*.parquet has their messages only until the small files are "
                "deleted, an hour after the compaction, and <folder>/**/*.parquet has them twice until then"
            )
        return found

    def dataset(self) -> ds.Dataset:
        """The files as a dataset of Arrow, which DuckDB, Polars and pandas read too; credentials are those of AWS_.

        Columns that a file does not have are null. Raises InvalidRequest if some file has rows of other segments that
        are not listed, which a dataset cannot leave out: use :func:`duckdb_query` or a consumer then.
        """
        import pyarrow as pa
        import pyarrow.dataset as ds

        self._check_whole_files()
        if not self._files:
            return ds.dataset(pa.table({}))
        filesystem = self.filesystem()

        def open_files(urls: Sequence[str]) -> ds.Dataset:
            return ds.dataset([url.removeprefix("s3://") for url in urls], filesystem=filesystem, format="parquet")

        # No file has the schema of all: uploads have no append time, compacted files have their offsets.
        newest = {max(self._files, key=lambda file: (file.kind == kind, file.schema_version)).url for kind in _KINDS}
        schemas = [open_files([url]).schema.remove_metadata() for url in sorted(newest)]
        return open_files(self.urls).replace_schema(pa.unify_schemas(schemas, promote_options="permissive"))

    def storage_options(self) -> dict[str, str]:
        """What ``polars.scan_parquet`` needs to read :attr:`urls`; credentials are those of AWS_."""
        options = {"aws_region": self._settings.region or DEFAULT_REGION}
        if self.endpoint:
            # A variable of the environment would replace the general endpoint, but not that of S3.
            options |= dict.fromkeys(("aws_endpoint_url", "aws_endpoint_url_s3"), self.endpoint)
            options["aws_virtual_hosted_style_request"] = "false"
        if self.endpoint and self.endpoint.startswith("http://"):
            options["aws_allow_http"] = "true"
        if not self.signed:
            options["aws_skip_signature"] = "true"
        return options

    def filesystem(self) -> fs.FileSystem:
        """A filesystem of Arrow with the files. Its paths are the URLs without ``s3://``."""
        from pyarrow import fs

        settings = self._settings
        scheme, _, host = (settings.endpoint or "").rpartition("://")
        return fs.S3FileSystem(
            access_key=settings.access_key,
            secret_key=settings.secret_key,
            session_token=settings.session_token,
            anonymous=not settings.has_credentials,
            region=settings.region or DEFAULT_REGION,
            scheme=scheme or "https",
            endpoint_override=host or None,
        )

    def _check_whole_files(self) -> None:
        for url, parts in self._parts().items():
            at = 0
            for part in sorted(parts, key=lambda file: file.first_row):
                if part.first_row != at:
                    raise InvalidRequest(
                        f"{url} was published by reference, and the rows from {at} to {part.first_row} are not among "
                        "these files, so it cannot be a dataset: read it by `smq files -o duckdb`, or with a consumer"
                    )
                at += part.rows

    def _parts(self) -> dict[str, list[DataFile]]:
        parts: dict[str, list[DataFile]] = {}
        for file in self._files:
            if file.kind == UPLOAD:
                parts.setdefault(file.url, []).append(file)
        return parts


_KINDS = (CHUNK, COMPACTED, UPLOAD)


def duckdb_query(files: Sequence[DataFile]) -> str:
    """A query for DuckDB that returns each message once, with ``_segment`` and ``_offset``. Needs at least one file.

    Raises InvalidRequest without a file.
    """
    if not files:
        raise InvalidRequest("there are no files yet: brokers write them after flush.interval")
    values = ",\n".join(
        f"  ({_quoted(f.url)}, {_quoted(f.segment)}, {f.first_offset}, {f.first_row}, {f.rows})" for f in files
    )
    urls = ",\n".join(f"  {_quoted(url)}" for url in dict.fromkeys(f.url for f in files))
    compacted = any(f.kind == COMPACTED for f in files)
    offset = "f.first_offset + m.file_row_number - f.first_row"
    offset = f"coalesce(m._offset, {offset})" if compacted else offset
    excluded = "_smq_file, file_row_number" + (", _offset" if compacted else "")
    return (
        f"WITH f(filename, _segment, first_offset, first_row, row_count) AS (VALUES\n{values}\n)\n"
        f"SELECT m.* EXCLUDE ({excluded}), f._segment, {offset} AS _offset\n"
        f"FROM read_parquet([\n{urls}\n], union_by_name=true, filename='_smq_file', file_row_number=true) m\n"
        "JOIN f ON m._smq_file = f.filename AND m.file_row_number >= f.first_row\n"
        "  AND m.file_row_number < f.first_row + f.row_count"
    )


def duckdb_settings(endpoint: str | None, signed: bool, region: str | None = None) -> str:
    """Statements that let DuckDB read ``s3://`` from this endpoint; credentials are those of AWS_."""
    provider = "PROVIDER credential_chain, " if signed else ""
    scheme, _, host = (endpoint or "").rpartition("://")
    where = f", ENDPOINT {_quoted(host)}, URL_STYLE 'path', USE_SSL {str(scheme == 'https').lower()}" if host else ""
    secret = f"TYPE s3, {provider}REGION {_quoted(region or DEFAULT_REGION)}{where}"
    return f"INSTALL httpfs; LOAD httpfs;\nCREATE OR REPLACE SECRET smq ({secret});"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _time(at: Micros | None) -> datetime | None:
    return None if at is None else time_of_micros(at)
