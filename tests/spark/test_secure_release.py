"""Spark in a secure release: programs with a token or a client certificate, and what plans show of their secrets.

That with the token has no keys of the filer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from cryptography.x509.oid import NameOID
from pyspark.errors import PySparkException

import pyspark_smq
from support.processes.guarded_release import guarded_release, know_keys
from support.processes.secure_cluster import SecureCluster
from support.secret_search import SecretSearch
from support.spark.topics import wait_for_files
from support.user_authority import UserAuthority
from support.waiting import HANG_GUARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]
TOPIC = "t"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecureCluster, UserAuthority]]:
    with guarded_release(tmp_path_factory.mktemp("release")) as (cluster, company):
        cluster.create(TOPIC)
        yield cluster, company


@pytest.fixture(params=["token", "certificate"])
def files(
    request: pytest.FixtureRequest, release: tuple[SecureCluster, UserAuthority], tmp_path: Path
) -> dict[str, Path]:
    """What a program knows itself by, as options. It may publish and read."""
    cluster, company = release
    identity = "app" if request.param == "token" else "cert:alice"
    cluster.allow(identity, {"topics": [TOPIC], "verbs": ["produce", "consume"]})
    if request.param == "token":
        return {"tokenFile": cluster.token_file(identity)}
    certificate, key = company.client_files(tmp_path, (NameOID.COMMON_NAME, "alice"))
    return {"certFile": certificate, "keyFile": key}


@pytest.mark.slow
def test_a_program_writes_and_reads_and_its_plans_show_no_secret(
    spark: SparkSession, release: tuple[SecureCluster, UserAuthority], files: dict[str, Path], tmp_path: Path
) -> None:
    cluster, _ = release
    search = known_secrets(cluster, files)
    store = cluster.store
    options = {
        **{"leader": cluster.address, "topic": TOPIC, "caFile": str(cluster.ca_file)},
        **{name: str(path) for name, path in files.items()},
    }
    if "certFile" in files:
        options |= {"filerAccessKey": store.access_key or "", "filerSecretKey": store.secret_key or ""}
    wanted = {f"{next(iter(files))}-{number}" for number in range(10)}
    rows = spark.createDataFrame([(it.encode(),) for it in sorted(wanted)], "value binary")
    rows.write.format("smq").mode("append").options(**options).save()
    frame = spark.read.format("smq").options(**options).load()
    assert wanted <= values(frame)
    query = (
        spark.readStream.format("smq")
        .options(**options, startingPosition="earliest")
        .load()
        .select("value")
        .writeStream.format("smq")
        .options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    again = spark.read.format("smq").options(**options).load()
    assert again.count() >= 2 * len(wanted), "the stream has written them again"
    look_at_plans(search, spark, frame)
    given = ", ".join(f"{name} '{value}'" for name, value in options.items())
    (view,) = spark.sql(f"EXPLAIN EXTENDED CREATE TEMPORARY VIEW v USING smq OPTIONS ({given})").collect()
    assert cluster.address in view.plan, "options are shown"
    search.see("explain of a view", view.plan)
    search.see("the plan of the stream", query._jsq.explainInternal(True))
    search.see("the stream", str(query.lastProgress))
    for wrong in (options | {"topic": "other"}, options | dict.fromkeys(files, "/no/such/file")):
        with pytest.raises(PySparkException) as refused:
            spark.read.format("smq").options(**wrong).load()
        search.see("an exception", str(refused.value))
    assert not search.found()


@pytest.mark.slow
def test_a_program_without_keys_reads_a_table(
    spark: SparkSession, release: tuple[SecureCluster, UserAuthority], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, _ = release
    cluster.create("table", flush={"interval": "100ms"})
    cluster.allow("reader", {"topics": ["table"], "verbs": ["produce", "consume"]})
    token_file = cluster.token_file("reader")
    with cluster.connect_as("reader") as client, client.producer("table") as producer:
        producer.write(pa.table({"value": [b"%d" % n for n in range(100)]}), by_reference=True).result(HANG_GUARD)
        producer.write(pa.table({"value": [b"%d" % n for n in range(100, 200)]})).result(HANG_GUARD)
    with cluster.connect() as administrator:
        wait_for_files(administrator, "table", 200)
    frame = pyspark_smq.read(
        spark, "table", leader=cluster.address, ca_file=str(cluster.ca_file), token_file=str(token_file)
    )
    assert any("S3A needs a key of the filer" in it.message for it in caplog.records)
    assert any("without a pin" in it.message for it in caplog.records)
    assert not frame.inputFiles(), "Python workers read them"
    assert {int(row.value) for row in frame.collect()} == set(range(200))
    pyspark_smq.release(frame)


def known_secrets(cluster: SecureCluster, files: dict[str, Path]) -> SecretSearch:
    search = SecretSearch()
    know_keys(search, cluster)
    if "tokenFile" in files:
        search.add_token("the token", files["tokenFile"].read_text())
    else:
        search.add_pem("the key of the certificate", files["keyFile"].read_bytes())
    return search


def values(frame: DataFrame) -> set[str]:
    return {bytes(row.value).decode() for row in frame.select("value").collect()}


def look_at_plans(search: SecretSearch, spark: SparkSession, frame: DataFrame) -> None:
    """Of the read, and of all queries that have run, writes included: what Spark's page shows of them."""
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        shown = spark._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), mode)  # type: ignore[union-attr]
        search.see(f"explain {mode}", shown)
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    assert executions.size() >= 4
    for number in range(executions.size()):
        execution = executions.apply(number)
        search.see(f"query {number}", f"{execution.description()} {execution.details()} {execution.modifiedConfigs()}")
        search.see(f"plan {number}", execution.physicalPlanDescription())
