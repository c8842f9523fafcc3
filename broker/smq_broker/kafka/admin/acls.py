"""DescribeAcls, CreateAcls and DeleteAcls. Rights are those of the release, and not lists of Kafka."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody

_REASON = "there are no access control lists of Kafka here: Kubernetes, or the policy file of the release, gives rights"
_REFUSED = {"error_code": ErrorCode.security_disabled, "error_message": _REASON}


async def describe_acls(_: Any, __: RequestContext) -> ResponseBody:
    return {"throttle_time": NO_THROTTLE, "resources": (), **_REFUSED}


async def create_acls(request: Any, _: RequestContext) -> ResponseBody:
    return {"throttle_time": NO_THROTTLE, "results": [_REFUSED for _ in request.creations]}


async def delete_acls(request: Any, _: RequestContext) -> ResponseBody:
    results = [{"matching_acls": (), **_REFUSED} for _ in request.filters]
    return {"throttle_time": NO_THROTTLE, "filter_results": results}
