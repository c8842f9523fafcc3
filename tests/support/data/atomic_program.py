"""A program that publishes versions of an app: ``python atomic_program.py LEADER TOPIC APP FOLDER VERSION...``

Each version has the files ``FOLDER/<version>-*.parquet``. A test can kill it at any time, and start it again with the
same arguments.
"""

from __future__ import annotations

import sys
from pathlib import Path

import smq


def main(leader: str, topic: str, app: str, folder: str, *versions: str) -> None:
    with smq.connect(leader, timeout=60) as client:
        for version in versions:
            files = sorted(Path(folder).glob(f"{version}-*.parquet"))
            client.publish_atomically(topic, app=app, version=int(version), files=files, timeout=600)


if __name__ == "__main__":
    main(*sys.argv[1:])
