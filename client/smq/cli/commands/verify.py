"""`smq topic verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from smq.cli.connection.filer_watch import FilerWatch
from smq.cli.connection.session import FilerEndpoint, FilerRegion, FilerUrl, command, filer_client, out
from smq.cli.output import formatting


@command
def verify(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic: name, or namespace/name.")],
    rows: Annotated[bool, typer.Option("--rows", help="Read all messages, not only the files' footers.")] = False,
    filer_url: FilerUrl = None,
    filer_endpoint: FilerEndpoint = None,
    filer_region: FilerRegion = None,
) -> None:
    """Check the files of a topic: index, file lists, chunk chains, and uploads published by reference.

    Prints a line for each problem, with the file's name, and ends with exit code 1 if there is any. It needs no broker,
    and with --filer-url no leader. The topic may be written to meanwhile.
    """
    with filer_client(filer_url, filer_endpoint, filer_region) as connected, FilerWatch(connected, topic):
        checked = connected.topic_files(topic, rows=rows)
        found = 0
        for problem in checked.problems():
            found += 1
            out.print(str(problem))
    what = f"{formatting.plural(checked.segments, 'segment')}, {formatting.plural(checked.files, 'file')}"
    out.print(f"{formatting.plural(found, 'problem')} in {what}, {formatting.plural(checked.messages, 'message')}")
    if found:
        raise typer.Exit(1)
