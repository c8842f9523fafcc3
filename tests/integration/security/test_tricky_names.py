"""Names that lead out of a folder, at every door of a leader and a broker: the filer has nothing outside of a topic.

The release is open, so that no denial stands before the checks of names.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from google.protobuf.message_factory import GetMessageClass
from typer.testing import CliRunner

import smq
from smq.cli.app import app
from smq_core.errors import SmqError
from smq_core.model.entities import Replica
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.raw_flight import rows
from support.data.tricky_names import FEW, requests
from support.fuzzing.process_attack import BODIES
from support.leader_access import methods
from support.processes.local_cluster import LocalCluster, manifest
from support.waiting import HANG_GUARD

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC = "default/t"
ANSWER_SECONDS = 10.0
# Below a topic's folder, and below those for the files to which its log refers.
TOPIC_FILE = re.compile(
    r"_(topic|layout|publishes)\.json|_index/\d{8}\.json|_groups/[A-Za-z0-9_-][A-Za-z0-9._-]*\.json"
    r"|_producers/(=[0-9a-f]{64}|[A-Za-z0-9_-][A-Za-z0-9._-]*)\.json|_file_lists/t-0-64-\d+\.\d{8}\.json"
    r"|t-0-64-\d+/\d{20}\.parquet"
)
UPLOAD = re.compile(r"[A-Za-z0-9=_-][A-Za-z0-9=._-]*\.parquet")
TABLE = pa.table({"value": [b"x"]})
# Commands with a place for a trick. They end at once, and ask nothing.
COMMANDS = (
    *(
        f"topic {it} {{}}"
        for it in ("describe", "pins", "delete --yes", "pause-scaling", "export", "verify", "compact")
    ),
    *("topic create {}", "topic create n --key {}", "topic recover {} --dry-run", "topic trim {} --before 1h --yes"),
    *("topic alter {} --reset retention --yes", "topic alter t --drop-column {} --yes", "segment list {}"),
    *(f"segment {it} {{}}" for it in ("split", "move", "roll", "accept-loss --yes")),
    *("publish {} --value x", "publish t {}", "publish t --from {}", "consume {} --max 1", "files {}", "group list {}"),
    *("consume t --group {} --max 1 --idle-timeout 1s", "broker drain {}", "broker undrain {}", "group describe t {}"),
    *("group reset t {} --to-earliest", "group delete t {} --yes", "group export t {}", "group import t {} --from -"),
    *("group import t g --from {}", "apply -f {}", "diff -f {}", "example {}", "spark {}", "auth can-i produce {}"),
    *("--ca-file {} topic list", "--token-file {} topic list", "--via {} topic list", "dev status --dir {}"),
)
# The last one is what Python makes of bytes that are no UTF-8.
TYPED = ("../../x", "/a", "\x1b[2J", "\udcff")


@pytest.fixture
def cluster(seaweed: SeaweedProcess, tmp_path: Path) -> Iterator[LocalCluster]:
    """Two brokers, and a topic of one segment."""
    with LocalCluster(tmp_path / "cluster", seaweed.settings("tricky-names"), brokers=2) as running:
        running.create("t")
        yield running


def test_no_name_leads_out_of_the_folder_of_its_topic(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    store = cluster.store.open()
    before, folders = {it.path for it in store.list("")}, _folders(cluster)
    with cluster.connect() as client:
        with client._view(TOPIC) as view:
            layout = view.wait_for_snapshot().layout
        (segment,) = layout.segments
        known = {"topic": TOPIC, "uid": layout.uid, "segment": segment.name, "segments": segment.name}
        known |= {"name": TOPIC, "group": "g", "app": "a", "owner": "o", "producer": "p", "instance": "i"}
        known |= {"incarnation": segment.primary.incarnation, "upload": "p-1-1-x.parquet", "verb": "produce"}
        doors = {"leader": _leader_calls(cluster, known), "library": _library_calls(client)}
        doors |= {it.broker: _broker_calls(client, it, known) for it in segment.replicas}
        with futures.ThreadPoolExecutor(8) as pool:
            for door, calls in doors.items():
                answers = Counter(pool.map(_outcome, calls))
                print(f"{door}: {dict(answers)}")
                assert answers.keys().isdisjoint({"UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED", "UnicodeEncodeError"})
                assert not [it for it in answers if it.startswith("INTERNAL")], answers
    _type_commands(cluster, monkeypatch)
    _check_files({it.path for it in store.list("")} - before, layout.uid)
    assert _folders(cluster) == folders
    with cluster.connect() as client, client.producer("t") as producer:
        producer.send(b"afterwards").result(HANG_GUARD)


def _check_files(new: set[str], uid: str) -> None:
    for path in sorted(new - {"_clock.json"}):
        if path.startswith(uploads := f"_uploads/{uid}/"):
            assert UPLOAD.fullmatch(path.removeprefix(uploads)), path
            continue
        inside = path.removeprefix(f"{TOPIC}/{uid}/")
        assert inside != path and TOPIC_FILE.fullmatch(inside), path


def _folders(cluster: LocalCluster) -> set[Path]:
    """The folders on the disk, and the files of manifests, beside the cluster's own and in it."""
    found = {path for path in cluster.folder.parent.rglob("*") if path.is_dir() or path.suffix in (".yaml", ".token")}
    return {path for path in found if "journal" not in path.parts}


def _leader_calls(cluster: LocalCluster, known: dict[str, str]) -> Iterator[Callable[[], object]]:
    """Every field of every call but reports and manifests."""
    channel = grpc.insecure_channel(cluster.address)
    for call, method in methods().items():
        stub = channel.unary_stream(f"/smq.v1.{call.replace('.', '/')}")
        if call in ("Brokers.Report", "Admin.ApplyTopic"):
            continue
        for _, request in requests(GetMessageClass(method.input_type), known, FEW):
            if call != "Admin.DeleteTopic" or request.topic != TOPIC:  # type: ignore[attr-defined]
                yield partial(_first_reply, stub, request.SerializeToString())


def _first_reply(stub: Any, body: bytes) -> None:
    replies = stub(body, timeout=ANSWER_SECONDS)
    next(iter(replies), None)
    replies.cancel()


def _broker_calls(client: smq.Client, broker: Replica, known: dict[str, str]) -> Iterator[Callable[[], object]]:
    """Every field of each action and of the first words of streams."""
    flight, options = client._target.dialer.flight(broker), fl.FlightCallOptions(timeout=ANSWER_SECONDS)
    known = known | {"incarnation": broker.incarnation}

    def act(name: str, body: bytes) -> None:
        list(flight.do_action(fl.Action(name, body), options))

    def put(descriptor: fl.FlightDescriptor) -> None:
        writer, reader = flight.do_put(descriptor, rows([b"a"]).schema, options)
        writer.done_writing()
        reader.read()
        writer.close()

    for action, kind in BODIES.items():
        for _, request in requests(kind, known, FEW):
            if "protocol" in request.DESCRIPTOR.fields_by_name:
                request.protocol = PROTOCOL  # type: ignore[attr-defined]
            yield partial(act, action, request.SerializeToString())
    for _, ticket in requests(pb.TailTicket, known, FEW[1:4]):  # each waits whether the segment is opened
        ticket.protocol = PROTOCOL  # type: ignore[attr-defined]
        yield partial(_read, flight, ticket.SerializeToString(), options)
    for trick in FEW:
        hello = pb.PutOpen(protocol=PROTOCOL, incarnation=broker.incarnation, uid=trick)
        hello.producers.lane = pb.LANE_SMALL
        yield partial(act, trick, b"")
        yield partial(put, fl.FlightDescriptor.for_path(trick))
        yield partial(put, fl.FlightDescriptor.for_command(hello.SerializeToString()))


def _read(flight: fl.FlightClient, ticket: bytes, options: fl.FlightCallOptions) -> None:
    reader = flight.do_get(fl.Ticket(ticket), options)
    reader.read_chunk()
    reader.cancel()


def _library_calls(client: smq.Client) -> Iterator[Callable[[], object]]:
    admin = client.admin()
    (staged,) = client.stage("t", table=TABLE)
    for trick in (*FEW, "\ud800"):
        yield partial(client.publish_atomically, "t", app=trick, version=1, table=TABLE)
        yield partial(_publish_by_reference, client, trick)
        yield partial(client.topic_files, trick)
        yield lambda name=trick: client.producer("t", producer_id=name).close()
        yield lambda name=trick: client.consumer("t", group=name).close()
        yield partial(admin.delete_group, "t", trick)
        for call in (client.producer, client.consumer, admin.delete, admin.export, admin.story):
            yield partial(call, trick)
    for trick in FEW:
        yield partial(client.publish_atomically, "t", app="a", version=2, staged=[replace(staged, name=trick)])
        yield partial(admin.apply, manifest(trick))


def _publish_by_reference(client: smq.Client, producer_id: str) -> None:
    """A file whose name has the producer's id."""
    file = io.BytesIO()
    client.write_upload("t", TABLE, file)
    with client.producer("t", producer_id=producer_id) as producer:
        producer.publish_files([file]).result(HANG_GUARD)


def _type_commands(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command ends with a message, which shows tricks in escapes, and writes no file."""
    for name, value in {"SMQ_LEADER": cluster.address, "SMQ_TIMEOUT": "10", "TERM": "dumb", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    folder = cluster.folder / "typed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for words in COMMANDS:
        for trick in TYPED:
            done = CliRunner().invoke(app, [it.format(trick) for it in words.split()], input="")
            assert done.exception is None or isinstance(done.exception, SystemExit), (words, trick, done.exception)
            assert done.exit_code in (0, 1, 2), (words, trick, done.output)
            assert done.output.replace("\n", "").isprintable() and len(done.output) < 3000, (words, trick, done.output)
    assert not list(folder.iterdir())
    folder.rmdir()


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
        return "OK"
    except SmqError as error:
        assert len(error.message) < 3000
        return type(error).__name__
    except grpc.RpcError as error:
        return str(error.code().name)  # type: ignore[attr-defined]  # it is a Call, too
    except fl.FlightInternalError as error:
        return f"INTERNAL: {str(error)[:300]}"
    except (pa.ArrowException, OSError, UnicodeError) as error:
        return type(error).__name__
