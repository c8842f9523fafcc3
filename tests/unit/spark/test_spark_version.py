"""An older Spark is refused, with the version that is needed."""

from __future__ import annotations

import pytest

from pyspark_smq.errors import SparkNotSupported
from pyspark_smq.spark_version import check_spark


@pytest.mark.parametrize("version", ["4.3.0", "4.3.1-amzn-0", "4.10.0", "5.0.0"])
def test_newer_versions_are_taken(version: str) -> None:
    check_spark(version)


@pytest.mark.parametrize("version", ["3.5.4", "4.2.9", "dev"])
def test_older_versions_are_refused(version: str) -> None:
    with pytest.raises(SparkNotSupported, match=r"needs 4\.3 or newer"):
        check_spark(version)
