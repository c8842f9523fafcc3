"""Reads a topic's Parquet files in the filer, and writes down what is in them as a reader does.

``chunk_reader.py ENDPOINT ROOT FOLDER``; ROOT is the topic's folder of one uid, ``bucket/…/topic/uid``. It shares no
code with the product. It relies only on the format. A segment is a folder of Parquet files named by their first offset,
a segment's number is the end of its name, and a successor's number is higher than its predecessors'.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.fs as pafs
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.client_logs.records import LogWriter, log_path

NAME = "chunks"


def write_log(filer: pafs.FileSystem, root: str, folder: Path) -> None:
    """The chain of each segment must be whole; where it is not, the log has an error."""
    log = LogWriter(log_path(folder, NAME, 1))
    names = [f.path for f in filer.get_file_info(pafs.FileSelector(root, recursive=True)) if f.is_file]
    chunks = [n for n in names if n.endswith(".parquet") and "/_" not in n.removeprefix(root)]
    at: dict[str, int] = defaultdict(int)
    sealed: set[str] = set()
    for path in sorted(chunks, key=position):
        segment, first = path.split("/")[-2], position(path)[2]
        file = pq.ParquetFile(filer.open_input_file(path))
        metadata = json.loads(file.metadata.metadata[b"smq"])
        values = file.read(columns=["value"]).column("value").to_pylist()
        if first != at[segment]:
            log.error(f"{path}: begins at {first}, the chain before it ends at {at[segment]}")
        if segment in sealed:
            log.error(f"{path}: comes after the seal")
        if metadata.get("sealed"):
            sealed.add(segment)
        log.got(segment, first, map(bytes.decode, values))
        log.flush()
        at[segment] = first + len(values)
    log.close()


def position(path: str) -> tuple[int, str, int]:
    """Where a chunk comes in the order of the log: by its segment's number, then by its first offset."""
    segment, name = path.split("/")[-2:]
    return int(segment.rpartition("-")[2]), segment, int(name.removesuffix(".parquet"))


def main(endpoint: str, root: str, folder: Path) -> None:
    scheme, _, host = endpoint.partition("://")
    filer = pafs.S3FileSystem(endpoint_override=host, scheme=scheme, anonymous=True, region="us-east-1")
    write_log(filer, root, folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
