"""DataFrames over the files of a plan, all with the same columns.

Files are read with the columns and types that they have, and cast then: Spark's reader widens some numbers itself, but
not all that a topic's schema may widen.

Where a message is in the log is computed, not stored: a chunk's name is its first offset, and its folder the segment.
Spark drops these expressions, like any column, from a query that does not use them. They are SQL texts, because each
call of a function of Spark is a round trip to the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark_smq.spark_types import OFFSET, SEGMENT
from pyspark_smq.table.file_plan import UploadRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# Spark's metadata of the file that a row is from. No column of a topic has a name with such a character.
FILE = "`#file`"

# The name of the folder that a file is in.
_FOLDER = f"substring_index(substring_index({FILE}.file_path, '/', -2), '/', 1)"

# Of the first offset in a chunk's name.
OFFSET_DIGITS = 20

# A file that is gone or damaged ends the query, whatever the session says. It must not look like fewer messages.
_STRICT = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "mergeSchema": "false"}


def chunk_frame(
    spark: SparkSession, root: str, paths: Sequence[str], stored: StructType, schema: StructType
) -> DataFrame:
    """Whole chunks.

    ``stored`` has the columns of their version of the topic's schema, and ``schema`` those that the frame gets.
    """
    files = _with_file(_read(spark, root, paths, _needed(stored, schema)))
    first = f"cast(substring({FILE}.file_name, 1, {OFFSET_DIGITS}) AS bigint)"
    return files.selectExpr(*_columns(stored, schema, {SEGMENT: _FOLDER, OFFSET: f"{first} + {FILE}.row_index"}))


def compacted_frame(
    spark: SparkSession, root: str, paths: Sequence[str], stored: StructType, schema: StructType
) -> DataFrame:
    """Whole files of a compaction, which store each message's offset."""
    from pyspark.sql.types import LongType

    files = _with_file(_read(spark, root, paths, _needed(stored, schema).add(OFFSET, LongType())))
    return files.selectExpr(*_columns(stored, schema, {SEGMENT: _FOLDER, OFFSET: f"`{OFFSET}`"}))


def upload_frame(
    spark: SparkSession, root: str, uploads: Sequence[UploadRows], stored: StructType, schema: StructType
) -> DataFrame:
    """The rows of uploads that the log refers to; others of the same files are left out."""
    from pyspark.sql import functions as F

    references = spark.createDataFrame(
        [(it.path.rpartition("/")[2], it.first_row, it.rows, it.segment, it.first, it.appended) for it in uploads],
        "`#name` string, `#first_row` long, `#rows` long, `#segment` string, `#first` long, `#appended` long",
    )
    files = _with_file(_read(spark, root, list(dict.fromkeys(it.path for it in uploads)), _needed(stored, schema)))
    row = f"{FILE}.row_index"
    in_reference = F.expr(f"{FILE}.file_name = `#name` AND {row} >= `#first_row` AND {row} < `#first_row` + `#rows`")
    places = {
        SEGMENT: "`#segment`",
        OFFSET: f"`#first` + {row} - `#first_row`",
        "appended": "timestamp_micros(`#appended`)",
    }
    return files.join(F.broadcast(references), in_reference).selectExpr(*_columns(stored, schema, places))


def check_frame(spark: SparkSession, check: Callable[[], None], schema: StructType) -> DataFrame:
    """No rows. ``check`` is called in a task at each run of the frame, and ends the query by what it raises.

    Unlike a data source it needs no Python process to be planned, which takes most of the time of a small query.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            check()
        return iter(())

    return spark.range(1, numPartitions=1).mapInArrow(run, schema)


def union(frames: Iterable[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _read(spark: SparkSession, root: str, paths: Sequence[str], stored: StructType) -> DataFrame:
    return spark.read.schema(stored).options(**_STRICT).parquet(*(f"{root}/{path}" for path in paths))


def _needed(stored: StructType, schema: StructType) -> StructType:
    """The stored columns that are read."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    names = set(schema.fieldNames()) - {SEGMENT, OFFSET}
    # Spark counts rows without a column, but takes no empty schema.
    return StructType([it for it in stored if it.name in names] or [StructField("partition", IntegerType())])


def _with_file(files: DataFrame) -> DataFrame:
    """The frame with the column ``FILE``: a topic may have its own column ``_metadata``."""
    return files.select("*", files.metadataColumn("_metadata").alias("#file"))


def _columns(stored: StructType, schema: StructType, places: Mapping[str, str]) -> list[str]:
    """The frame's columns as SQL. One that is not stored is null, because it is newer than the file."""
    known = {field.name: field.dataType for field in stored}

    def column(name: str, type_: DataType) -> str:
        if name not in places and known.get(name) == type_:
            return f"`{name}`"
        found = places.get(name, f"`{name}`" if name in known else "NULL")
        return f"cast({found} AS {type_.simpleString()}) AS `{name}`"

    return [column(field.name, field.dataType) for field in schema]
