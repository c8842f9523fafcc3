"""What a failed call to the object store says to people: the cause, without details of the request and the library."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from smq_core.errors import BucketMissing, InvalidRequest, StoreDenied, StoreUnavailable
from smq_core.model.names import bounded
from smq_storage.object_store.results import ObjectMissing

T = TypeVar("T")

_MAX_CHARACTERS = 300
# How much of a path an error repeats, in characters.
_MAX_PATH = 200

# Words in the library's description of an error, and what they mean.
_CAUSES = (
    ("ConnectionRefused", "connection refused"),
    ("kind: Timeout", "no answer in time"),
    ('"dns error"', "the name of its host is not known"),
    (
        "UnknownIssuer",
        "its certificate is not signed by an authority that is known here: set SSL_CERT_FILE to a file with the "
        "certificate of that authority (PEM)",
    ),
    ("NotValidForName", "its certificate is for another host name: check the endpoint"),
    ("CertificateExpired", "its certificate has expired: renew it"),
    ("InvalidCertificate", "its certificate is not valid"),
)

# Words of errors that have no separate kind. A deletion names the code of its object's error.
_DENIALS = ("status code: 401", "status code: 403", "(code: AccessDenied)")

_REGION = "is in another region than requests are signed for: set --filer-region (SMQ_FILER_REGION, filer_region)"
_TOKEN = "the session token is not valid any more: renew the temporary credentials, AWS_SESSION_TOKEN with its key"
# Codes of a store's answer that stay until somebody changes a setting, and what to change.
_REJECTIONS = {
    "AuthorizationHeaderMalformed": f"the bucket {_REGION}",
    "IllegalLocationConstraintException": f"the bucket {_REGION}",
    "PermanentRedirect": f"the bucket {_REGION}, and check the endpoint",
    "TemporaryRedirect": f"the bucket {_REGION}, and check the endpoint",
    "RequestTimeTooSkewed": "the clocks of this machine and the store differ by more than the store accepts: set them",
    "ExpiredToken": _TOKEN,
    "ExpiredTokenException": _TOKEN,
    "InvalidToken": "the session token does not belong to the key: set AWS_SESSION_TOKEN to the key's own, or unset it",
    "InvalidAccessKeyId": "the store does not know this access key: check AWS_ACCESS_KEY_ID, and the endpoint",
    "SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY does not fit AWS_ACCESS_KEY_ID, or a proxy changes requests",
}

_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
# What the library says of an answer that names the region in a header, which it does not show.
_BARE_REDIRECT = "Received redirect without LOCATION"

DISK_FULL_HINT = "; if this continues, check the filer's free space and its log"


def call_store(
    call: Callable[[], T], path: str, where: str, no_clear_answer: type[StoreUnavailable] = StoreUnavailable
) -> T:
    """Makes a call of obstore about ``path``. ``where`` names the store.

    Raises ObjectMissing, BucketMissing, StoreDenied, InvalidRequest (no such path can be), and ``no_clear_answer``.
    """
    try:
        return call()
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise bucket_missing(where) from None
        raise ObjectMissing(path) from None
    except (BaseError, OSError) as error:
        if advice := rejection(error):
            reason = store_reason(error) or first_line(error)
            raise StoreDenied(f"{where} refuses {path[:_MAX_PATH]!r}: {advice} ({reason})") from None
        if is_denied(error):
            raise StoreDenied(
                f"{where} refuses the credentials for {path!r}: set AWS_ACCESS_KEY_ID and "
                f"AWS_SECRET_ACCESS_KEY to a key that may read, write, list and delete there "
                f"({store_reason(error) or first_line(error)})"
            ) from None
        hint = DISK_FULL_HINT if may_be_disk_full(error) else ""
        raise no_clear_answer(f"no clear answer from {where} for {path!r}: {cause(error)}{hint}", path=path) from None
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"the store has no path {path[:_MAX_PATH]!r}: {first_line(error)}") from None
    except BaseException as error:
        if not is_panic(error):
            raise
        raise no_clear_answer(
            f"no clear answer from {where} for {path!r}: the store's client failed", path=path
        ) from None


def bucket_missing(where: str) -> BucketMissing:
    return BucketMissing(f"there is no bucket at {where}: create it, or change the url")


def store_reason(error: Exception) -> str:
    """What the store itself says, as ``Code: message``. Empty if it says nothing."""
    return reason_in(str(error).split("\n\nDebug source", 1)[0])


def reason_in(answer: str) -> str:
    """The same of the body of an answer."""
    found = _ANSWER.search(answer)
    return bounded(": ".join(filter(None, found.groups())), _MAX_CHARACTERS) if found else ""


def rejection(error: Exception) -> str | None:
    """What to change if the store refuses a request for a reason that a retry does not remove, else None."""
    if _BARE_REDIRECT in str(error):
        return _REJECTIONS["PermanentRedirect"]
    return _REJECTIONS.get(store_reason(error).partition(":")[0])


def is_not_implemented(error: Exception) -> bool:
    """Whether the store does not know this kind of request."""
    return "status code: 501" in str(error)


def cause(error: Exception) -> str:
    """Why the call failed, in one line."""
    text = str(error)
    if "\n" in text:  # the library's own description of the causes follows
        for words, meaning in _CAUSES:
            if words in text:
                return meaning
    _, of_a_request, answer = first_line(error).partition(" - ")  # what is before names the request and its time
    found = answer if of_a_request else first_line(error).removeprefix("Generic S3 error: ")
    reason = store_reason(error)
    return f"{found} ({reason})" if reason else found


def first_line(error: Exception) -> str:
    """The first line, without a body of the answer."""
    return str(error).split("\n", 1)[0].split(": <", 1)[0][:_MAX_CHARACTERS]


def is_denied(error: Exception) -> bool:
    """Whether the store refuses the credentials. Listings and deletions report that as a general error."""
    kinds = (PermissionDeniedError, UnauthenticatedError)
    return isinstance(error, kinds) or any(words in str(error) for words in _DENIALS)


def is_panic(error: BaseException) -> bool:
    """Whether the library ended a call because it had not expected the store's answer. That is no Exception."""
    return type(error).__name__ == "PanicException"


def may_be_disk_full(error: Exception) -> bool:
    """SeaweedFS answers 500 to every write when its disk is full, others 507. Only their logs have the reason."""
    text = str(error)
    return "Error performing PUT" in text and any(f"status code: {status}" in text for status in (500, 507))
