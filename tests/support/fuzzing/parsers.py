"""What strangers, clients and administrators write, and the functions that read it, which need no process."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import yaml
from google.protobuf.message import Message

from smq_broker.rows.batches import WireSchemas
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.ipc_messages import read_rows
from smq_broker.rows.replication_messages import decode_entries
from smq_broker.rows.small_batches import rows_of
from smq_broker.streams.relay import parse_request
from smq_core.access.grants import Grant, GrantBook
from smq_core.access.peers import Peer, Role, parse_peer
from smq_core.access.policy import parse_policy
from smq_core.access.rights import Right, group_names
from smq_core.errors import InvalidRequest, SmqError, Unauthenticated, Unavailable
from smq_core.model.addresses import split_address
from smq_core.model.entities import number_of, range_of
from smq_core.model.incarnation_ids import parse_incarnation
from smq_operator.security.access.access_control import bearer_token
from smq_operator.security.identities.tokens import BrokerTokens, parse_tokens
from smq_proto.error_conversion import error_from_pb, error_to_pb
from smq_proto.flight import parse
from smq_proto.signed_grants import GrantSigner, GrantVerifier
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import (
    PROTOCOL,
    layout_from_pb,
    outcome_from_pb,
    sealed_from_pb,
    segment_from_pb,
    segment_to_pb,
    topic_from_pb,
    topic_to_pb,
)
from smq_storage.topic_manifests.parser import parse_manifest
from support.data.raw_flight import rows
from support.fuzzing.kafka_parsers import kafka_parsers
from support.fuzzing.targets import Target, data_target, text_target
from support.processes.broker import make_segment, make_topic
from support.processes.leader import manifest

TOPIC = make_topic("travel/flights")
NOW = 1_000_000.0
RELEASE = "release-1"
MANIFESTS = (
    manifest("flights", segments={"min": 1, "max": 4}, retention={"age": "7d", "size": "1Gi"}),
    """
apiVersion: seaweedmq.io/v1alpha1
kind: Topic
metadata: {name: flights, namespace: travel, annotations: {seaweedmq.io/autoscaling: paused}}
spec:
  partitions: 1024
  durability: Replicated
  key: carrier
  schema:
    - {name: carrier, type: string}
    - {name: delay, type: float64, nullable: true}
  flush: {bytes: 16Mi, interval: 1s}
""",
)


def parsers() -> list[Target]:
    return [*_names(), *_credentials(), *_messages(), *_rows(), *_documents(), *kafka_parsers()]


def _names() -> list[Target]:
    incarnation = "0f3e4f6a-8c55-4f1b-9c0c-6a4b6f0e9d11.65f1a2b3.0a1b2c3d"
    uris = [Peer(role, RELEASE, name, 1_000_900).uri for role in Role for name in ("ada@example.com", incarnation)]
    connect = [b"CONNECT 10.0.0.1:7071 HTTP/1.1\r\nHost: a\r\n\r\n", b"GET http://filer:8333/a/b HTTP/1.1\r\n\r\n"]
    return [
        text_target("names in certificates", uris, parse_peer, Unauthenticated),
        text_target("addresses", ["10.0.0.1:7071", "[::1]:7070", "broker-0.smq:7071"], split_address, ValueError),
        text_target("incarnations", [incarnation], parse_incarnation),
        text_target(
            "ranges of segments", ["flights-0-1024-0"], lambda name: (range_of(name), number_of(name)), ValueError
        ),
        text_target("groups", ["team.a.b.c.d", "billing"], group_names),
        data_target("requests to a relay", connect, parse_request, InvalidRequest),
    ]


def _credentials() -> list[Target]:
    tokens = BrokerTokens(b"k" * 32, lambda _: False)
    signer = GrantSigner(b"s" * 32)
    verifier, book = GrantVerifier([signer.public_key]), GrantBook(RELEASE)
    grant = Grant(
        release=RELEASE, identity="ada", topic=TOPIC.name, uid=TOPIC.uid, right=Right.PRODUCE, expires_at=NOW + 300
    )
    presented = pb.PresentGrants(grants=[signer.sign(grant)] * 2).SerializeToString()

    def present(body: bytes) -> None:
        for signed in parse(pb.PresentGrants, body).grants:
            book.add("ada", verifier.verify(signed), NOW)

    def sign_anything(message: bytes) -> None:
        """As a leader of another version may: the signature is good, and what is signed is something else."""
        prefixed = b"smq-grant-v1:" + message
        verifier.verify(pb.SignedGrant(grant=message, signature=signer._key.sign(prefixed)))

    return [
        text_target(
            "authorization", ["Bearer abc.def.ghi", "bearer x"], lambda it: bearer_token([("authorization", it)])
        ),
        text_target("tokens of brokers", [tokens.issue("i-1")], lambda it: asyncio.run(tokens.verify(it)), share=0.05),
        data_target("presented grants", [presented], present),
        data_target("signed grants", [signer.sign(grant).grant], sign_anything),
    ]


def _messages() -> list[Target]:
    segment = make_segment(TOPIC, make_broker("b1"), make_broker("b2"))
    topic, planned = topic_to_pb(TOPIC), segment_to_pb(segment)
    layout = pb.Layout(topic=TOPIC.name, uid=TOPIC.uid, partitions=1024, version=1, segments=[planned])
    outcome = pb.SealOutcome(segment=segment.name, end=7, lost=pb.Loss(start=1, stop=2), successors=[planned])
    error = error_to_pb(Unavailable("no"))
    hello = pb.PutOpen(protocol=PROTOCOL, incarnation="i-b1", uid=TOPIC.uid)
    ticket = pb.TailTicket(protocol=PROTOCOL, segment=segment.name, uid=TOPIC.uid, incarnation="i-b1")
    converted: list[tuple[Message, Any, tuple[type[BaseException], ...]]] = [
        (planned, segment_from_pb, (SmqError,)),
        (topic, topic_from_pb, (ValueError, KeyError)),
        (layout, layout_from_pb, (SmqError, ValueError, KeyError)),
        (planned, sealed_from_pb, (ValueError,)),
        (outcome, outcome_from_pb, (SmqError,)),
        (error, error_from_pb, ()),
        (hello, lambda it: it, ()),
        (ticket, lambda it: it, ()),
    ]
    found = []
    for number, (sample, convert, declared) in enumerate(converted):
        kind, encoded = type(sample), sample.SerializeToString()
        name = f"{kind.DESCRIPTOR.name} {number}"
        found.append(
            data_target(
                f"bytes of {name}",
                [encoded],
                lambda it, kind=kind, convert=convert: convert(parse(kind, it)),
                InvalidRequest,
                *declared,
            )
        )
        found.append(
            Target(f"fields of {name}", lambda it, kind=kind: it.message(kind), convert, (*declared, InvalidRequest))
        )
    return found


def _rows() -> list[Target]:
    wire = WireSchemas.of(make_topic("travel/plain"))
    batch = rows([b"a", b"bc", b"def"])
    message = batch.serialize().to_pybytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    small = pb.SmallBatch(partitions=[1, 2], timestamps=[3, 4], keys=[b"k", b"l"], values=[b"v", b"w"])
    frame = pb.ProducerFrame(small_batch=small, sub_batches=[pb.ProducerFrame.SubBatch(session=1, rows=2)])
    entry = pb.ReplicationBatch.Entry(producer="p", epoch=1, sequence=1, rows=2, partition_max=9)
    header = pb.ReplicationBatch(base_offset=3, entries=[entry], watermark=1, small_batch=small)

    def accept(found: pa.RecordBatch) -> None:
        block = ArrowBlock(found).accept(wire, wire.check_stream(found.schema))
        if block.num_rows:
            block.partition_bounds(0, block.num_rows)
            block.to_arrow().serialize()

    def stream(encoded: bytes) -> None:
        try:
            found = list(pa.ipc.open_stream(encoded))
        except (pa.ArrowException, OSError):
            return
        for batch in found:
            accept(batch)

    def receive(encoded: bytes) -> None:
        block = rows_of(parse(pb.ProducerFrame, encoded), None)
        if block is not None:
            kept = block.accept(wire, True)
            if kept.num_rows:
                kept.partition_bounds(0, kept.num_rows)

    def replicate(encoded: bytes) -> None:
        received = parse(pb.ReplicationBatch, encoded)
        block = rows_of(received, None)
        if block is not None:
            decode_entries(received, block)

    return [
        data_target("rows in a message", [message], lambda it: accept(read_rows(it, wire.message))),
        data_target("rows of a stream", [sink.getvalue().to_pybytes()], stream),
        data_target("frames of producers", [frame.SerializeToString()], receive),
        data_target("headers of a primary", [header.SerializeToString()], replicate),
    ]


def _documents() -> list[Target]:
    tokens = "tokens:\n  - {identity: ada, sha256: '" + "ab" * 32 + "', groups: [g]}\n"
    policy = "rules:\n  - {identities: [ada], namespaces: [travel], topics: ['*'], verbs: [consume, get]}\n"

    def safe(text: str) -> object:
        try:
            return yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            return None

    return [
        text_target("manifests", MANIFESTS, parse_manifest, share=0.05),
        text_target("files of tokens", [tokens], lambda it: parse_tokens(safe(it)), InvalidRequest, share=0.05),
        text_target("policies", [policy], lambda it: parse_policy(safe(it)), InvalidRequest, share=0.05),
    ]


def make_broker(name: str) -> Any:
    from smq_core.model.entities import Replica

    return Replica(name, f"i-{name}", f"{name}:7071")
