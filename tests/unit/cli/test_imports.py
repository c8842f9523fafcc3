"""Commands load only the modules that they need, because Arrow alone takes longer than most commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from smq_proto.v1 import admin_pb2, groups_pb2
from smq_proto.v1 import data_pb2 as pb
from support.leader_services import LeaderServicer

HEAVY = ("pyarrow", "numpy", "obstore", "grpc", "pydantic", "pandas", "duckdb", "yaml", "smq_core.model.entities")
# What no list of topics, segments, brokers or groups needs.
NEEDLESS = (*(name for name in HEAVY if name != "grpc"), "rich.table", "rich.markdown", "importlib.metadata")


class EmptyLeader(LeaderServicer):
    """Has one topic, and nothing else."""

    def ListTopics(self, request: Any, context: Any) -> admin_pb2.TopicList:
        return admin_pb2.TopicList(topics=[admin_pb2.TopicList.Topic(info=pb.TopicInfo(name="default/events"))])

    def ExportTopic(self, request: Any, context: Any) -> admin_pb2.ExportTopicReply:
        return admin_pb2.ExportTopicReply(
            settings=[admin_pb2.ExportTopicReply.Setting(field="retention.age", value="7d")]
        )

    def ListDecisions(self, request: Any, context: Any) -> admin_pb2.DecisionList:
        return admin_pb2.DecisionList()

    def ListBrokers(self, request: Any, context: Any) -> admin_pb2.BrokerList:
        return admin_pb2.BrokerList()

    def ListGroups(self, request: Any, context: Any) -> groups_pb2.GroupList:
        return groups_pb2.GroupList()


@pytest.fixture(scope="module")
def leader() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4))
    EmptyLeader().serve_at(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def loaded(code: str, among: tuple[str, ...] = HEAVY) -> set[str]:
    """Which of these modules are loaded after this code, in a separate process."""
    program = f"{code}\nimport sys\nprint(*(m for m in {among} if m in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("code", ["import smq", "import smq.cli.app", "from smq_core.errors import SmqError"])
def test_nothing_heavy_is_loaded_before_it_is_used(code: str) -> None:
    assert loaded(code) == set()


def test_administration_needs_grpc_only() -> None:
    assert loaded("import smq\nsmq.connect('127.0.0.1:1').admin()") == {"grpc"}


@pytest.mark.parametrize(
    "command",
    ["topic list", "topic list -o json", "topic describe events", "broker list", "group list", "group list events"],
)
def test_a_command_that_only_calls_the_leader_loads_nothing_else(command: str, leader: str) -> None:
    code = f"""
import sys
from smq.cli import main
sys.argv = ["smq", "--leader", "{leader}", *{command.split()}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert loaded(code, NEEDLESS) == set()


def test_one_command_does_not_load_the_others() -> None:
    code = "import typer.main\nfrom smq.cli.app import app\ntyper.main.get_command(app).commands['top']"
    others = tuple(f"smq.cli.commands.{name}" for name in ("topics", "publish", "consume", "groups", "dev"))
    assert loaded(code, others) == set()


def test_producers_and_consumers_load_what_they_need() -> None:
    assert {"pyarrow", "grpc"} <= loaded("import smq\nsmq.Producer, smq.Consumer, smq.aio.connect")
