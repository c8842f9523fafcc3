"""What the Kubernetes API may answer instead of a resource.

::

    KubeError
    ├── NotFound
    ├── Conflict          somebody changed it first; read again
    │   └── AlreadyExists
    ├── Forbidden         a right is missing; the message says which
    ├── Unauthorized      the credentials are not accepted
    ├── Invalid           the API server says what of the request is wrong
    └── Unreachable       no answer, or none that counts: try again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class KubeError(Exception):
    """``message`` is the API server's own, where it sent one."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(KubeError):
    pass


class Conflict(KubeError):
    pass


class AlreadyExists(Conflict):
    pass


class Forbidden(KubeError):
    pass


class Unauthorized(KubeError):
    pass


class Invalid(KubeError):
    pass


class Unreachable(KubeError):
    pass


_BY_CODE: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: NotFound,
    415: Invalid,
    422: Invalid,
}


def error_of(code: int, status: Mapping[str, Any], what: str) -> KubeError:
    """The error of an answer: ``status`` is its body, ``what`` was tried, such as ``list pods in smq``."""
    message = str(status.get("message") or f"the API server answered {code}")
    if code == 409 and status.get("reason") == "AlreadyExists":
        return AlreadyExists(message)
    if code == 403:
        return Forbidden(f"the operator may not {what}: {message}")
    kind = _BY_CODE.get(code, Unreachable if code == 429 or code >= 500 else Invalid)
    return kind(f"{what}: {message}" if kind is Unreachable else message)
