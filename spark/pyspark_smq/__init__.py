"""Topics as Spark DataFrames: the data source `smq` for batch and streaming, and `read` for old data.

Spark finds ``DefaultSource`` by itself in each environment that has this package, also where nobody uses it. So nothing
heavy is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_smq.data_source import SmqDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark_smq.table.read import read, release

__all__ = ["DefaultSource", "read", "release"]


def __getattr__(name: str) -> Any:
    if name not in ("read", "release"):
        raise AttributeError(f"module 'pyspark_smq' has no attribute {name!r}")
    from pyspark_smq.table import read as module

    return getattr(module, name)
