"""Attacks the processes of a release for some seconds: with strange bytes, and as a client.

In a secure release the client has a token, a certificate and grants, so that its requests get as far as any do.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
import pyarrow as pa
import pyarrow.flight as fl
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import smq
from smq_core.access.peers import LEADER_SERVER_NAME
from smq_core.model.addresses import split_address
from smq_core.model.entities import Replica
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from support.data.raw_flight import rows
from support.fuzzing.mutator import NAMES, Mutator
from support.leader_access import methods
from support.processes.local_cluster import LocalCluster, manifest
from support.processes.secure_cluster import SecureCluster

# How long an attacker waits for an answer. Some requests get none: a tail goes on.
ANSWER_SECONDS = 2.0
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(32) + b"\x20" + bytes(150)
BODIES: dict[str, type[Message]] = {
    "open": pb.OpenSegment,
    "seal": pb.SealSegment,
    "segments": pb.HostedSegmentsRequest,
    "outcome": pb.OutcomeRequest,
    "claim": pb.ClaimProducer,
    "locate": pb.LocateRequest,
    "grants": pb.PresentGrants,
    "status": pb.BrokerStatus,
}


# What everybody may do in an open release, so that others are not served any more: no matter of this attack.
OPEN_TO_ALL = {"Brokers.Report", "Admin.DrainBroker", "Admin.DeleteTopic"}


class ProcessAttack:
    """``topic`` is one on which ``identity`` has rights; in an open release nobody has an identity.

    ``sent`` counts what was sent, by attacker.
    """

    def __init__(self, cluster: LocalCluster, topic: str, identity: str, seed: int) -> None:
        self._cluster = cluster
        self._secure = cluster if isinstance(cluster, SecureCluster) else None
        self._topic = topic
        self._identity = identity
        self._seed = seed
        self.sent: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Returns after that time, when all attackers have ended. Raises what an attacker did not expect."""
        secure, cluster = self._secure, self._cluster
        attacker = secure.connect_as(self._identity) if secure is not None else cluster.connect()
        with attacker as client, cluster.connect() as administrator:
            (segment,) = administrator.admin().segments(self._topic)
            brokers = [
                Replica(it.name, it.incarnation, it.address)
                for it in administrator.admin().brokers()
                if it.state == "alive"
            ]
            with client.producer(self._topic) as producer:
                producer.send(b"before").result(ANSWER_SECONDS * 10)
            with client._view(f"default/{self._topic}") as view:
                uid = view.wait_for_snapshot().topic.uid
            words = [self._topic, f"default/{self._topic}", segment.name, uid, self._identity, "g", "p"]
            words += [it.incarnation for it in brokers]
            ports = [self._cluster.address, *(it.address for it in brokers), *self._relays(brokers)]
            attackers: list[tuple[str, Callable[[Mutator], None]]] = [
                ("bytes", lambda mutator: strange_bytes(mutator.random, mutator.random.choice(ports))),
                ("leader", self._leader_attacker()),
                *((f"broker {it.broker}", self._broker_attacker(client, it)) for it in brokers),
            ]
            self._run(attackers, words, seconds)

    def _relays(self, brokers: list[Replica]) -> list[str]:
        return [found for it in brokers if (found := self._cluster.relay_address(it.broker)) is not None]

    def _run(self, attackers: list[tuple[str, Callable[[Mutator], None]]], words: list[str], seconds: float) -> None:
        until, failed = time.monotonic() + seconds, []

        def attack(number: int, name: str, send: Callable[[Mutator], None]) -> None:
            mutator = Mutator(self._seed * 100 + number, words)
            try:
                while time.monotonic() < until:
                    send(mutator)
                    self.sent[name] += 1
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=attack, args=(n, *it)) for n, it in enumerate(attackers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    # ---- at the leader

    def _leader_attacker(self) -> Callable[[Mutator], None]:
        token, known = "none", methods()
        if self._secure is not None:
            credentials = grpc.ssl_channel_credentials(self._secure.ca_file.read_bytes())
            options = [("grpc.ssl_target_name_override", LEADER_SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.secure_channel(self._cluster.address, credentials, options)
            token = self._secure.token_file(self._identity).read_text()
        else:
            channel = grpc.insecure_channel(self._cluster.address)
            known = {call: method for call, method in known.items() if call not in OPEN_TO_ALL}

        def send(mutator: Mutator) -> None:
            call = mutator.random.choice(sorted(known))
            request = mutator.message(GetMessageClass(known[call].input_type))
            fields = request.DESCRIPTOR.fields_by_name
            if "topic" in fields and mutator.random.random() < 0.6:
                request.topic = self._topic  # type: ignore[attr-defined]
            if "manifest" in fields:
                request.manifest = mutator.text([manifest(self._topic)])  # type: ignore[attr-defined]
            body = request.SerializeToString()
            if mutator.random.random() < 0.4:
                body = mutator.data([body])
            stub = channel.unary_stream(f"/smq.v1.{call.replace('.', '/')}")
            with suppress(grpc.RpcError, ValueError):  # gRPC sends no metadata that it cannot
                replies = stub(body, timeout=ANSWER_SECONDS, metadata=_metadata(mutator, token))
                next(iter(replies), None)
                replies.cancel()

        return send

    # ---- at a broker

    def _broker_attacker(self, client: smq.Client, broker: Replica) -> Callable[[Mutator], None]:
        dialer = client._target.dialer
        flight = dialer.flight(broker)
        dialer.present(flight, f"default/{self._topic}")
        options = fl.FlightCallOptions(timeout=ANSWER_SECONDS)

        def send(mutator: Mutator) -> None:
            with _rejections():
                mutator.random.choice((act, read, put))(mutator)

        def act(mutator: Mutator) -> None:
            name = mutator.random.choice((*BODIES, *BODIES, mutator.name()))
            body = mutator.message(BODIES.get(name, pb.LocateRequest)).SerializeToString()
            body = body if mutator.random.random() < 0.6 else mutator.data([body])
            list(flight.do_action(fl.Action(name, body), options))

        def read(mutator: Mutator) -> None:
            ticket = mutator.message(pb.TailTicket)
            ticket.MergeFrom(pb.TailTicket(protocol=PROTOCOL, incarnation=broker.incarnation))
            body = ticket.SerializeToString()
            reader = flight.do_get(fl.Ticket(body if mutator.random.random() < 0.6 else mutator.data([body])), options)
            reader.read_chunk()
            reader.cancel()

        def put(mutator: Mutator) -> None:
            hello = pb.PutOpen(protocol=PROTOCOL, incarnation=broker.incarnation, uid=mutator.name())
            hello.producers.lane = mutator.random.choice((pb.LANE_SMALL, pb.LANE_BULK))
            command = hello.SerializeToString()
            command = command if mutator.random.random() < 0.8 else mutator.data([command])
            writer, reader = flight.do_put(fl.FlightDescriptor.for_command(command), rows([b"a"]).schema, options)
            for _ in range(3):
                frame = mutator.message(pb.ProducerFrame).SerializeToString()
                if mutator.random.random() < 0.5:
                    writer.write_metadata(frame or b"\x00")
                else:
                    writer.write_with_metadata(rows([b"a", b"b"]), mutator.data([frame]) or b"\x00")
            writer.done_writing()
            while reader.read() is not None:
                pass
            writer.close()

        return send


def strange_bytes(rng: random.Random, address: str) -> None:
    """One connection to a port, with what is no request of it, or the beginning of one."""
    sent = rng.choice(
        (
            rng.randbytes(rng.choice((0, 1, 100, 20_000))),
            b"GET /" + rng.choice(NAMES).encode() + b" HTTP/1.1\r\n\r\n",
            b"CONNECT " + rng.choice(NAMES).encode() + b" HTTP/1.1\r\n\r\n",
            b"CONNECT " + b"x" * rng.choice((10, 100_000)),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(500),
            CLIENT_HELLO[: rng.randint(1, len(CLIENT_HELLO))],
            CLIENT_HELLO + rng.randbytes(300),
        )
    )
    with suppress(OSError), socket.create_connection(split_address(address), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(sent)
        if rng.random() < 0.3:
            connection.settimeout(0.2)
            connection.recv(100)


def _metadata(mutator: Mutator, token: str) -> list[tuple[str, str | bytes]]:
    """Mostly the token, so that requests are read."""
    if mutator.random.random() < 0.7:
        return [("authorization", f"Bearer {token}")]
    return [
        ("authorization", f"Bearer {_printable(mutator.text([token]))}"),
        ("smq-error-bin", mutator.random.randbytes(20)),
        ("x-" + "y" * mutator.random.randint(1, 30), "z" * mutator.random.choice((1, 100, 4000))),
    ][: mutator.random.randint(0, 3)]


def _printable(text: str) -> str:
    """gRPC sends nothing else in a header, and complains."""
    return "".join(character for character in text if 32 <= ord(character) < 127)


@contextmanager
def _rejections() -> Iterator[None]:
    with suppress(pa.ArrowException, OSError, EOFError, UnicodeError):
        yield
