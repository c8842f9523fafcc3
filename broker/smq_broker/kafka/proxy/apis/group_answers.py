"""What a client gets for its group while nobody can be reached who coordinates it: an error after which it repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.protocol.entities import build_response

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = range(8, 15)
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
# From this version on OffsetFetch is about several groups, and from that one on it has an error of the group.
GROUPS_FROM, GROUP_ERROR_FROM = 8, 2
# Before this version the name of a protocol must not be null.
NULL_PROTOCOL_FROM = 7

_CODE = {"error_code": ErrorCode.coordinator_not_available}
_NO_NODE = _CODE | {"error_message": None, "node_id": -1, "host": "", "port": -1}
_STATE = _CODE | {"error_message": None, "group_state": "", "members": ()}
_DESCRIBED = _STATE | {"protocol_type": "", "protocol_data": ""}
_CONSUMERS = _STATE | {"group_epoch": 0, "assignment_epoch": 0, "assignor_name": ""}
_Values: TypeAlias = Mapping[str, Any]


def _join(request: Any, version: int) -> _Values:
    name = None if version >= NULL_PROTOCOL_FROM else ""
    joined = {"generation_id": -1, "protocol_type": None, "protocol_name": name, "leader": "", "members": ()}
    return joined | {"skip_assignment": False, "member_id": request.member_id}


def _sync(_: Any, __: int) -> _Values:
    return {"protocol_type": None, "protocol_name": None, "assignment": b""}


def _commit(request: Any, _: int) -> _Values:
    return {"topics": [_topic(it, (one.partition_index for one in it.partitions)) for it in request.topics]}


def _fetch(request: Any, version: int) -> _Values:
    if version >= GROUPS_FROM:
        return {"groups": [{"group_id": it.group_id, "topics": ()} | _CODE for it in request.groups]}
    if version >= GROUP_ERROR_FROM:
        return {"topics": ()}
    return {"topics": [_topic(it, it.partition_indexes) for it in request.topics or ()]}


def _topic(topic: Any, partitions: Any) -> _Values:
    nothing = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""} | _CODE
    return {"name": topic.name, "partitions": [{"partition_index": it} | nothing for it in partitions]}


def _consumer(request: Any, _: int) -> _Values:
    member = {"member_id": request.member_id, "member_epoch": request.member_epoch, "assignment": None}
    return member | {"error_message": None, "heartbeat_interval": NO_THROTTLE}


def _find(request: Any, _: int) -> _Values:
    return _NO_NODE | {"coordinators": [{"key": it} | _NO_NODE for it in getattr(request, "coordinator_keys", ())]}


_ANSWERS: Mapping[int, Callable[[Any, int], _Values]] = MappingProxyType(
    {
        OFFSET_COMMIT: _commit,
        OFFSET_FETCH: _fetch,
        FIND_COORDINATOR: _find,
        JOIN_GROUP: _join,
        SYNC_GROUP: _sync,
        HEARTBEAT: lambda _, __: {},
        LEAVE_GROUP: lambda _, __: {"members": ()},
        OFFSET_DELETE: lambda _, __: {"topics": ()},
        LIST_GROUPS: lambda _, __: {"groups": ()},
        DESCRIBE_GROUPS: lambda it, _: {"groups": [{"group_id": name} | _DESCRIBED for name in it.groups]},
        CONSUMER_GROUP_HEARTBEAT: _consumer,
        CONSUMER_GROUP_DESCRIBE: lambda it, _: {"groups": [{"group_id": name} | _CONSUMERS for name in it.group_ids]},
        DELETE_GROUPS: lambda it, _: {"results": [{"group_id": name} | _CODE for name in it.groups_names]},
    }
)


def unavailable(api_key: int, request: Any, version: int) -> Any:
    """The response to this request, in its version."""
    return build_response(
        api_key, version, {"throttle_time": NO_THROTTLE, **_CODE, **_ANSWERS[api_key](request, version)}
    )
