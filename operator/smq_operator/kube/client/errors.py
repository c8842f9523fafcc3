"""The errors of calls to the Kubernetes API.

::

    KubeError
    ├── NotFound
    ├── ResourceConflict      another writer changed it first; read it again
    │   └── AlreadyExists
    ├── Forbidden             a permission is missing; the message names it
    ├── Unauthorized          the API server rejects the credentials
    ├── InvalidResource       the message says what is wrong with the request
    └── ApiServerUnreachable  no response, or a server error: the state is unknown, try again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class KubeError(Exception):
    """``message`` is that of the API server, if it sent one."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(KubeError):
    pass


class ResourceConflict(KubeError):
    pass


class AlreadyExists(ResourceConflict):
    pass


class Forbidden(KubeError):
    pass


class Unauthorized(KubeError):
    pass


class InvalidResource(KubeError):
    pass


class ApiServerUnreachable(KubeError):
    pass


_BY_CODE: dict[int, type[KubeError]] = {
    400: InvalidResource,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: ResourceConflict,
    410: NotFound,
    415: InvalidResource,
    422: InvalidResource,
}


def error_from_status(code: int, status: Mapping[str, Any], operation: str) -> KubeError:
    """The error of a response with the body ``status``; ``operation`` failed, such as ``list pods in smq``."""
    message = str(status.get("message") or f"the API server responded with {code}")
    if code == 409 and status.get("reason") == "AlreadyExists":
        return AlreadyExists(message)
    if code == 403:
        return Forbidden(f"the operator may not {operation}: {message}")
    kind = _BY_CODE.get(code, ApiServerUnreachable if code == 429 or code >= 500 else InvalidResource)
    return kind(f"{operation}: {message}" if kind is ApiServerUnreachable else message)
