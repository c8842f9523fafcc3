"""`smq topic compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from smq.cli.connection.filer_watch import FilerWatch
from smq.cli.connection.session import FilerEndpoint, FilerRegion, FilerUrl, command, filer_client, out
from smq.cli.output import formatting
from smq_core.model.units import parse_size


@command
def compact(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic: name, or namespace/name.")],
    target: Annotated[
        str, typer.Option("--target", metavar="SIZE", help="About how large the merged files become.")
    ] = "32Mi",
    filer_url: FilerUrl = None,
    filer_endpoint: FilerEndpoint = None,
    filer_region: FilerRegion = None,
) -> None:
    """Merge the small files of sealed segments into files that are sorted by key.

    Old data is then read with fewer requests. The topic may be read and written meanwhile. It runs in this process; for
    many gigabytes use the Spark job pyspark_smq.jobs.compact. It can be interrupted and repeated.
    """
    segments = files = new = 0
    with filer_client(filer_url, filer_endpoint, filer_region) as connected, FilerWatch(connected, topic):
        for done in connected.compact(topic, target_bytes=parse_size(target)):
            if done.switched:
                segments, files, new = segments + 1, files + done.merged_files, new + done.new_files
                out.print(f"{done.segment}: {done.merged_files} files became {done.new_files}")
            else:
                out.print(f"{done.segment}: skipped, because it was changed or removed meanwhile")
    out.print(f"{formatting.plural(segments, 'segment')} compacted: {files} files became {new}")
