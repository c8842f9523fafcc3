"""FindCoordinator: which broker coordinates a group."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.groups.coordinator import MAX_GROUP_ID_CHARACTERS, GroupCoordinator
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody

GROUP, TRANSACTION = 0, 1
BATCHED_FROM = 4


class FindCoordinatorApi:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def find(self, request: Any, context: RequestContext) -> ResponseBody:
        kind = getattr(request, "key_type", GROUP)
        if context.version < BATCHED_FROM:
            return {"throttle_time": NO_THROTTLE} | self._find(request.key, kind)
        return {
            "throttle_time": NO_THROTTLE,
            "coordinators": [{"key": it} | self._find(it, kind) for it in request.coordinator_keys],
        }

    def _find(self, key: str, kind: int) -> dict[str, Any]:
        if kind == TRANSACTION:
            return _error(
                ErrorCode.transactional_id_authorization_failed,
                "there are no transactions here: produce without a transactional id",
            )
        if kind != GROUP:
            return _error(ErrorCode.invalid_request, f"there are no coordinators of kind {kind} here")
        if not 0 < len(key) <= MAX_GROUP_ID_CHARACTERS:
            return _error(ErrorCode.invalid_group_id, f"a group's id has 1 to {MAX_GROUP_ID_CHARACTERS} characters")
        node = self._coordinator.node_of(key)
        if node is None:
            return _error(ErrorCode.coordinator_not_available, None)
        found = {"node_id": node.id, "host": node.host, "port": node.port}
        return {"error_code": ErrorCode.none, "error_message": None} | found


def _error(error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": error, "error_message": message, "node_id": -1, "host": "", "port": -1}
