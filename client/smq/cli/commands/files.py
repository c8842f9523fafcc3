"""`smq files`: the Parquet files of a topic, for tools that read such files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.connection.filer_watch import FilerWatch
from smq.cli.connection.session import (
    FilerEndpoint,
    FilerRegion,
    FilerUrl,
    TopicName,
    command,
    filer_client,
    print_note,
)
from smq.cli.output import formatting
from smq.cli.output.rendering import ListCommand, print_json, print_table
from smq_core.errors import InvalidRequest
from smq_core.model.units import format_size, parse_duration

if TYPE_CHECKING:
    from smq import DataFiles


class FilesOutput(StrEnum):
    """How files are printed."""

    TABLE = "table"
    PATHS = "paths"
    JSON = "json"
    DUCKDB = "duckdb"
    FOLDER = "folder"


app = typer.Typer(add_completion=False)


@app.command(cls=ListCommand)
@command
def files(
    topic: TopicName,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="AGE|TIME",
            help="Only files with messages since then, such as 1h or 2026-05-01T12:00Z; they have older ones, too.",
        ),
    ] = None,
    output: Annotated[
        FilesOutput,
        typer.Option(
            "-o", "--output", help="paths: a URL a line; duckdb: a query for DuckDB; folder: the folder for a glob."
        ),
    ] = FilesOutput.TABLE,
    filer_url: FilerUrl = None,
    filer_endpoint: FilerEndpoint = None,
    filer_region: FilerRegion = None,
) -> None:
    """List the files in which each message of a topic is once. What only brokers hold is in no file yet.

    With --filer-url it needs no leader. docs/files.md has an example for each tool.
    """
    start = None if since is None else parse_since(since, datetime.now(UTC))
    with filer_client(filer_url, filer_endpoint, filer_region) as connected, FilerWatch(connected, topic):
        found = connected.files(topic, since=start)
    if found and not found.readable:
        print_note(
            "the filer takes signed requests only: to read these files set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, such as those of `smq auth filer-keys`, or read the messages with `smq consume`"
        )
    match output:
        case FilesOutput.JSON:
            print_json(list(found))
        case FilesOutput.PATHS:
            print("".join(f"{url}\n" for url in found.urls), end="")
            _note_partial(found)
        case FilesOutput.DUCKDB:
            from smq.data_files import duckdb_query, duckdb_settings

            print(f"{duckdb_settings(found.endpoint, found.signed, found.region)}\n{duckdb_query(found)};")
        case FilesOutput.FOLDER:
            print(found.folder)
            for problem in found.folder_problems():
                print_note(f"warning: {problem}")
        case FilesOutput.TABLE:
            _print_files(found)


def parse_since(text: str, now: datetime) -> datetime:
    """A time, or an age before ``now``. Raises InvalidRequest."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return now - timedelta(microseconds=parse_duration(text.removeprefix("-")))
    except ValueError:
        raise InvalidRequest(
            f"--since takes an age such as 1h, or a time such as 2026-05-01T12:00:00Z, not {text!r}"
        ) from None


def _print_files(found: DataFiles) -> None:
    print_table(
        ["SEGMENT", "OFFSETS", "ROWS", "SIZE", "APPENDED", "KIND", "FILE"],
        [
            (
                file.segment,
                f"{file.first_offset}-{file.first_offset + file.rows}",
                str(file.rows),
                format_size(file.bytes),
                _span(file.appended_min, file.appended_max),
                file.kind,
                file.url,
            )
            for file in found
        ],
        right=["ROWS", "SIZE"],
    )
    print_note(f"{formatting.plural(found.rows, 'message')} in {formatting.plural(len(found.urls), 'file')}")


def _span(first: datetime | None, last: datetime | None) -> str:
    if first is None or last is None:
        return "–"
    text = f"{first:%Y-%m-%dT%H:%M:%SZ}"
    return text if f"{last:%Y-%m-%dT%H:%M:%SZ}" == text else f"{text}..{last:%Y-%m-%dT%H:%M:%SZ}"


def _note_partial(found: DataFiles) -> None:
    if any(file.large_values for file in found):
        print_note("some values are in objects of their own and null in the files; a consumer gets them")
    uploads = sum(file.kind == "upload" for file in found)
    if uploads:
        print_note(
            f"{formatting.plural(uploads, 'file')} of uploads may have rows besides those of the log; -o json has "
            "`first_row` and `rows`, and -o duckdb reads just these"
        )
