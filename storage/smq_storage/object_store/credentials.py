"""The credentials of requests. All parts come from one source: the program, or else the environment."""

from __future__ import annotations

import os

from smq_core.errors import InvalidRequest, StoreUnsupported
from smq_storage.object_store.presigned.urls import SigningKey

# With one of these variables the platform gives short-lived credentials, which obstore fetches and renews.
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def given_key(access_key: str | None, secret_key: str | None, session_token: str | None) -> SigningKey | None:
    """The key that a program gives, or None if it gives nothing. Raises InvalidRequest if a part is missing."""
    if access_key and secret_key:
        return SigningKey(access_key, secret_key, session_token or None)
    if access_key or secret_key or session_token:
        raise InvalidRequest(
            "an access key and its secret key for the filer belong together, and a session token belongs to both: give "
            "all of them, or none to use the AWS_ variables"
        )
    return None


def key_of_environment() -> SigningKey | None:
    """The key of the AWS_ variables, or None if they have none. Raises InvalidRequest if a part is missing."""
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return SigningKey(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN") or None)
    if access_key or secret_key:
        missing = "AWS_ACCESS_KEY_ID" if secret_key else "AWS_SECRET_ACCESS_KEY"
        raise InvalidRequest(f"{missing} is not set: set both variables of the filer's credentials, or none of them")
    return None


def has_role() -> bool:
    """Whether the environment names a role whose credentials are used if there is no key."""
    return any(os.environ.get(name) for name in _ROLES)


def has_credentials(access_key: str | None) -> bool:
    """Whether requests are signed: with the key that is given, or with what the environment has."""
    return bool(access_key or os.environ.get("AWS_ACCESS_KEY_ID")) or has_role()


def signing_key(given: SigningKey | None, where: str) -> SigningKey:
    """The key for presigned URLs. Raises StoreUnsupported if requests to ``where`` are not signed, or by a role."""
    key = given or key_of_environment()
    if key is not None:
        return key
    if has_role():
        raise StoreUnsupported(
            f"the credentials for {where} are those of a role, which cannot sign URLs: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY for the leader, or give producers credentials of their own"
        )
    raise StoreUnsupported(
        f"requests to {where} are not signed, so there is no key to sign URLs with: producers can write there directly"
    )
