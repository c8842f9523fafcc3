"""Which Spark this package works with."""

from __future__ import annotations

import re

from pyspark_smq.errors import SparkNotSupported

# Arrow in stream sinks, and the check of the first batch's schema, are as in this version.
OLDEST = (4, 3)


def check_spark(version: str | None = None) -> None:
    """``version`` is that of PySpark here if it is not given. Raises SparkNotSupported."""
    if version is None:
        import pyspark

        version = pyspark.__version__
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise SparkNotSupported(
            f"this is Spark {version}, and the data source smq needs {wanted} or newer: install pyspark~={wanted}, and "
            "use a cluster of the same version"
        )
