"""One Spark for all tests of a process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from support.spark.java import HOW_TO_GET_IT, find_java
from tools.spark_jars import find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark(folder: Path, master: str = "local[2]", **settings: str) -> SparkSession:
    """A session that leaves nothing outside ``folder``. Underscores in names of settings are dots."""
    from pyspark.sql import SparkSession

    assert find_java() is not None, HOW_TO_GET_IT
    # Without it Spark takes the first python3, and finds no data source there.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    chosen = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **({"spark.jars": ",".join(map(str, jars))} if (jars := find()) else {}),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
