"""The blocks of docs/spark.md and docs/spark-pipeline.md run as written, with a cluster of the tests and its topics.

Only addresses and folders are others. What needs Kubernetes is in tests/integration/kube and tests/e2e.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml

import smq
from support.doc_blocks import REPOSITORY, console_blocks, fenced, run_commands
from support.processes.cli import environment
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = [{"name": "carrier", "type": "string"}, {"name": "dep_delay", "type": "float64"}]
DELAYS = pa.table({"carrier": ["AA", "UA", "UA"], "dep_delay": [4.0, 1.0, 2.0]})
SETUP, TOPICS, INGEST, STREAM, UPKEEP, _ = console_blocks("docs/spark-pipeline.md")


def run_block(code: str, given: Mapping[str, Any]) -> list[Any]:
    """The values of the block's expressions. All its statements see what the ones before have assigned."""
    names, values = dict(given), []
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.Expr):
            values.append(eval(compile(ast.Expression(statement.value), "block", "eval"), names))
        else:
            exec(compile(ast.Module([statement], []), "block", "exec"), names)
    return [*values, names]


def create(cluster: LocalCluster, name: str) -> None:
    """A topic of the Namespace travel, with two columns."""
    resource = {
        "apiVersion": "seaweedmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name, "namespace": "travel"},
        "spec": {"partitions": 16, "schema": SCHEMA, "segments": {"min": 1, "max": 1}},
    }
    with cluster.connect() as client:
        client.admin().apply(yaml.safe_dump(resource))


def test_frames_are_read_and_written(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, follow, write = (
        block.replace("leader:7070", cluster.address).replace("s3a://bucket/checkpoints", str(tmp_path))
        for block in fenced("docs/spark.md", "python")
    )
    for name in ("flights", "delays"):
        create(cluster, name)
    with client.producer("travel/flights") as producer:
        producer.write(DELAYS).result()

    *_, loaded, names = run_block(read, {"spark": s3a})
    assert "|     UA|           1.5|" in capsys.readouterr().out
    assert names["flights"].columns == loaded.columns
    assert sorted(loaded.select("dep_delay").toPandas()["dep_delay"]) == [1.0, 2.0, 4.0]

    batch, stream = ast.parse(write).body
    run_block(ast.unparse(batch), {"frame": loaded})
    *_, names = run_block(follow, {"spark": s3a})
    *_, names = run_block(ast.unparse(stream), {"frame": names["flights"]})
    query = names["query"]

    def has_rows() -> bool:
        """A stream begins with the messages that come after its first plan, which may be later than its start."""
        with client.producer("travel/flights") as producer:
            producer.write(DELAYS).result()
        query.processAllAvailable()
        return any(progress.numInputRows for progress in query.recentProgress)

    eventually(has_rows, what="the query has written rows", pause=0.5)
    query.stop()
    assert (tmp_path / "delays" / "metadata").exists()
    written = s3a.read.format("smq").option("topic", "travel/delays").option("leader", cluster.address).load()
    assert written.count() >= 2 * DELAYS.num_rows


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as the repository's root is, where commands may write files. Its Python is that of the tests."""
    for name in ("Makefile", "examples", "pyproject.toml", "spark", "tools"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    venv = tmp_path / ".venv"
    venv.mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".installed":
            (venv / path.name).symlink_to(path)
    (venv / ".installed").touch()  # so `make venv` has nothing to do
    return tmp_path


def test_the_pipeline_runs(
    s3a: SparkSession, cluster: LocalCluster, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    defaults = checkout / "conf"
    defaults.mkdir()
    (defaults / "spark-defaults.conf").write_text(
        "spark.driver.host 127.0.0.1\nspark.driver.bindAddress 127.0.0.1\nspark.ui.enabled false\n"
        "spark.sql.shuffle.partitions 2\nspark.driver.memory 1g\n"
    )
    own = environment(cluster.address) | {"SPARK_CONF_DIR": str(defaults)}

    def run(*blocks: list[tuple[str, list[str]]]) -> str:
        commands = [command.replace("/tmp/", f"{checkout}/") for block in blocks for command, _ in block]
        ran = run_commands(commands, checkout, own)
        assert [code for _, code in ran] == [0] * len(commands), ran
        return "".join(output for output, _ in ran)

    (start, _), *applies = TOPICS
    assert start.split()[:2] == ["smq", "dev"]  # the cluster of the tests takes its place
    run(SETUP, applies, INGEST, STREAM)
    (query,) = fenced("docs/spark-pipeline.md", "python")
    query = query.replace("localhost:7070", cluster.address).replace("/tmp/", f"{checkout}/")
    *_, hours, _ = run_block(query, {"spark": s3a})
    shown = capsys.readouterr().out
    assert all(f"|     {carrier}|" in shown for carrier in ("AA", "UA", "WN")), shown
    assert hours > 10_000
    assert "336,776" in run(SETUP, UPKEEP).replace("336776", "336,776")
