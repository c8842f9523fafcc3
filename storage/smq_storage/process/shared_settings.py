"""What the settings of brokers and of the operator share: units, help texts and error messages.

Only processes that have pydantic-settings import this module; clients need neither.
"""

from __future__ import annotations

import argparse
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from smq_core.errors import InvalidRequest
from smq_core.model.units import duration_text, parse_duration, parse_size, size_text
from smq_storage.object_store.store import StoreSettings

# What pydantic-settings appends to the help of a setting whose default is empty, generated, or has a unit.
_UNREADABLE_DEFAULT = re.compile(r" ?\(default( factory: .*|: (null|False|\(\)|\d{5,})?)\)$")


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


# Bytes, given as ``32Mi``.
Size = Annotated[int, BeforeValidator(_size)]
# Microseconds, given as ``10m``.
Duration = Annotated[int, BeforeValidator(_duration)]


def size_field(default: int, description: str, **constraints: Any) -> Any:
    """A field of the type ``Size`` whose help shows the default with its unit."""
    return Field(default, description=f"{description} (default: {size_text(default)})", **constraints)


def duration_field(default: int, description: str, **constraints: Any) -> Any:
    """A field of the type ``Duration`` whose help shows the default with its unit."""
    return Field(default, description=f"{description} (default: {duration_text(default)})", **constraints)


def required_filer_url(value: str) -> str:
    """The value of ``--filer-url``. Raises ValueError if there is none."""
    if not value:
        raise ValueError("required: where the log is kept, such as --filer-url s3://bucket/prefix or SMQ_FILER_URL")
    return value


def store_settings(url: str, endpoint: str, region: str, timeout_seconds: float) -> StoreSettings:
    """How to reach the filer. The AWS_ variables have the credentials, and an endpoint or region that is empty here."""
    return StoreSettings.configured(url, endpoint=endpoint, region=region, timeout=timeout_seconds)


def add_argument(parser: argparse.ArgumentParser, *names: str, **options: Any) -> None:
    """The ``add_argument_method`` of CliSettingsSource.

    It replaces the Python type by a neutral placeholder, omits unreadable defaults, and adds no flag for a setting that
    is suppressed, because such a setting has only a variable.
    """
    if options["help"] == argparse.SUPPRESS:
        return
    options["help"] = _UNREADABLE_DEFAULT.sub("", options["help"])
    parser.add_argument(*names, **options | ({"metavar": "…"} if "metavar" in options else {}))


def invalid_settings(settings: type[BaseModel], error: ValidationError) -> InvalidRequest:
    """One line for each invalid setting. It begins with the flag, also if the value came from a variable."""
    return InvalidRequest("\n".join(_error_line(settings, details) for details in error.errors()))


def _error_line(settings: type[BaseModel], error: ErrorDetails) -> str:
    name = str(error["loc"][0])
    if name in settings.model_fields:  # pydantic reports an invalid default by the field's name, not by its alias
        name = str(settings.model_fields[name].validation_alias or name)
    flag = name if name.isupper() else "--" + name.replace("_", "-")
    if error["type"] == "missing":
        return f"{flag}: required"
    if error["type"] == "value_error":
        return f"{flag}: {error['msg'].removeprefix('Value error, ')}"
    return f"{flag}: {error['msg']}, not {error['input']!r}"
