"""What a failed call to the object store says to people: the cause, without details of the request and the library."""

from __future__ import annotations

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

_MAX_CHARACTERS = 300

_CAUSES = (
    ("ConnectionRefused", "connection refused"),
    ("kind: Timeout", "no answer in time"),
    ('"dns error"', "the name of its host is not known"),
)
"""Words in the library's description of an error, and what they mean."""

_DENIALS = ("status code: 401", "status code: 403", "(code: AccessDenied)")
"""Words of errors that have no kind of their own. A deletion names the code of its object's error."""

DISK_FULL_HINT = "; if this continues, check the filer's free space and its log"


def cause(error: Exception) -> str:
    """Why the call failed, in one line."""
    text = str(error)
    if "\n" in text:  # the library's own description of the causes follows
        for words, meaning in _CAUSES:
            if words in text:
                return meaning
    _, of_a_request, answer = first_line(error).partition(" - ")  # what is before names the request and its time
    return answer if of_a_request else first_line(error).removeprefix("Generic S3 error: ")


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
