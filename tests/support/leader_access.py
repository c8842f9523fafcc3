"""A leader's API over TLS with its checks of callers, in front of handlers that note what reaches them."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import yaml
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from smq_core.access.peers import LEADER_SERVER_NAME
from smq_core.errors import SmqError
from smq_operator.api.server import LeaderServices, make_server
from smq_operator.local.security.folder import SecurityFolder
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.security.callers import Caller, current_caller
from smq_operator.security.identities.tokens import BrokerTokens, token_digest
from smq_operator.security.leader_security import LeaderSecurity
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb
from support.processes.leader import manifest

SERVICES = ("admin", "auth", "brokers", "groups", "publishes", "topics")


def methods() -> dict[str, MethodDescriptor]:
    """All calls of the leader, such as ``Topics.Locate``."""
    found = {}
    for name in SERVICES:
        (service,) = importlib.import_module(f"smq_proto.v1.{name}_pb2").DESCRIPTOR.services_by_name.values()
        found |= {f"{service.name}.{method.name}": method for method in service.methods}
    return found


CALLS = sorted(methods())


class NotingHandlers:
    """Handlers of all calls. ``seen`` are the calls that reached them and who made them; ``replies`` what they get."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Caller | None]] = []
        self.replies: dict[str, Any] = {}
        """By call: a message, or a function that returns an async iterator of them."""
        for call, method in methods().items():
            setattr(self, method.name, self._stream(call) if method.server_streaming else self._unary(call, method))

    def _unary(self, call: str, method: MethodDescriptor) -> Callable[..., Any]:
        async def handler(request: Message, context: object) -> Message:
            self.seen.append((call, current_caller()))
            reply: Message = self.replies.get(call) or GetMessageClass(method.output_type)()
            return reply

        return handler

    def _stream(self, call: str) -> Callable[..., Any]:
        async def handler(request: Message, context: object) -> AsyncIterator[Message]:
            self.seen.append((call, current_caller()))
            async for reply in self.replies[call]():
                yield reply

        return handler

    @property
    def services(self) -> LeaderServices:
        return SimpleNamespace(**dict.fromkeys(SERVICES, self))  # type: ignore[return-value]


@dataclass
class SecureApi:
    """``call`` makes a call with a token, and raises the SmqError of its trailer."""

    folder: Path
    tokens: BrokerTokens
    security: LeaderSecurity
    topics: TopicDirectory = field(default_factory=TopicDirectory)
    handlers: NotingHandlers = field(default_factory=NotingHandlers)
    channel: grpc.aio.Channel = None
    address: str = ""

    @property
    def admin(self) -> str:
        return (self.folder / "admin.token").read_text()

    def add_token(self, identity: str, *groups: str) -> str:
        """A new token of this identity."""
        token, path = f"token-of-{identity}", self.folder / "tokens.yaml"
        document = yaml.safe_load(path.read_text())
        document["tokens"].append({"identity": identity, "groups": list(groups), "sha256": token_digest(token).hex()})
        path.write_text(yaml.safe_dump(document))
        return token

    def add_rule(self, identity: str, **fields: list[str]) -> None:
        path = self.folder / "policy.yaml"
        document = yaml.safe_load(path.read_text())
        document["rules"].append({"identities": [identity], **fields})
        path.write_text(yaml.safe_dump(document))

    def stub(self, call: str) -> Any:
        method = methods()[call]
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        return kind(
            f"/smq.v1.{call.replace('.', '/')}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )

    async def call(self, call: str, request: Message, token: str | None) -> Any:
        metadata = [("authorization", f"Bearer {token}")] if token is not None else []
        try:
            if methods()[call].server_streaming:
                return [reply async for reply in self.stub(call)(request, metadata=metadata)]
            return await self.stub(call)(request, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise smq_error(error) from error


def smq_error(error: grpc.aio.AioRpcError) -> SmqError:
    for key, value in error.trailing_metadata():
        if key == "smq-error-bin":
            return error_from_pb(pb.Error.FromString(value))
    raise AssertionError(f"no smq-error-bin in {error!r}")


@asynccontextmanager
async def secure_api(
    folder: Path,
    clock: Callable[[], float],
    services: Callable[[SecureApi], LeaderServices] | None = None,
    *,
    permissive: bool = False,
) -> AsyncIterator[SecureApi]:
    """``services`` returns other handlers than noting ones."""
    kept = SecurityFolder(folder / "security", clock)
    kept.ensure("release-1")
    brokers = kept.broker_tokens(lambda incarnation: incarnation == "ended")
    security = kept.open(brokers, "leader-1")
    api = SecureApi(kept.folder, brokers, security)
    api.topics.synced = True
    server = make_server("127.0.0.1:0", security, lambda: api.topics, permissive=permissive)
    await server.start(services(api) if services is not None else api.handlers.services)
    api.address = f"127.0.0.1:{server.port}"
    credentials = grpc.ssl_channel_credentials(security.authority.roots)
    options = [("grpc.ssl_target_name_override", LEADER_SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(api.address, credentials, options) as api.channel:
        try:
            yield api
        finally:
            await server.stop()


def request_of(call: str, incarnation: str = "i1") -> Message:
    if call == "Admin.ApplyTopic":
        return admin_pb2.ApplyTopicRequest(manifest=manifest("flights"))
    kind = GetMessageClass(methods()[call].input_type)
    fields = {"topic": "flights", "group": "g", "incarnation": incarnation, "broker": "b1"}
    return kind(**{name: value for name, value in fields.items() if name in kind.DESCRIPTOR.fields_by_name})


async def one_reply() -> AsyncIterator[Message]:
    yield pb.LocateReply()


async def reached(api: SecureApi, call: str, token: str | None) -> SmqError | None:
    """The error of the caller; None if it got to the handler."""
    api.handlers.replies["Topics.Watch"] = one_reply
    before = len(api.handlers.seen)
    try:
        await api.call(call, request_of(call), token)
    except SmqError as error:
        assert len(api.handlers.seen) == before, f"{call} was refused, but its handler ran"
        return error
    assert len(api.handlers.seen) == before + 1
    return None
