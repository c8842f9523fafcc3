"""Topics as Spark DataFrames: the data source `smq` for batch and streaming, and `read` for old data.

Spark finds ``DefaultSource`` by itself in each environment that has this package, also where nobody uses it. So nothing
heavy is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark_smq.data_source import SmqDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark_smq.sink.arrangement import by_segment
    from pyspark_smq.table.read import read, release

__all__ = ["DefaultSource", "by_segment", "read", "release"]
_MODULES = {"by_segment": "sink.arrangement", "read": "table.read", "release": "table.read"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'pyspark_smq' has no attribute {name!r}")
    return getattr(import_module(f"pyspark_smq.{_MODULES[name]}"), name)
