"""Topics as Spark DataFrames: the data source `smq` for batch and streaming, and `read` for old data.

Spark finds ``DefaultSource`` by itself in each environment that has this package, also where nobody uses it. So nothing
heavy is imported here.
"""

from pyspark_smq.data_source import SmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
