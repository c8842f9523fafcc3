"""InitProducerId: the identity of an idempotent producer. Ids are random, so brokers need not agree on them."""

from __future__ import annotations

import secrets
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody

# The highest producer id is 2^63 - 1.
ID_BITS = 63


async def init_producer_id(request: Any, _: RequestContext) -> ResponseBody:
    """There are no transactions. Clients end at once after this error, and repeat the request after most others."""
    if request.transactional_id is not None:
        return _answer(ErrorCode.transactional_id_authorization_failed, producer_id=-1, epoch=-1)
    return _answer(ErrorCode.none, producer_id=secrets.randbits(ID_BITS), epoch=0)


def _answer(code: ErrorCode, *, producer_id: int, epoch: int) -> ResponseBody:
    return {
        "throttle_time": NO_THROTTLE,
        "error_code": code,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }
