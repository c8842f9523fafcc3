"""Every error survives the wire with its declared fields."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from pyarrow import flight as fl

from smq_core import errors
from smq_core.errors import SmqError
from smq_proto.error_conversion import error_from_pb, error_to_pb
from smq_proto.flight import from_flight, to_flight
from smq_proto.v1 import data_pb2 as pb

# A value of each type that a field may have; no default of any field.
VALUES: dict[Any, object] = {
    str: "a text",
    int: 7,
    int | None: 8,
    bool: True,
    bool | None: True,
    tuple[str, ...]: ("s1", "s2"),
}


def error_classes(base: type[SmqError] = SmqError) -> Iterator[type[SmqError]]:
    if getattr(errors, base.__name__, None) is base:
        yield base
    for cls in base.__subclasses__():
        yield from error_classes(cls)


CLASSES = list(error_classes())
CARRIED = [cls for cls in CLASSES if cls is not errors.Unreachable]


def example(cls: type[SmqError]) -> SmqError:
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls) if f.name != "message"]
    return cls("what happened", **{name: VALUES[hints[name]] for name in names})


def decoded(error: SmqError) -> SmqError:
    return error_from_pb(pb.Error.FromString(error_to_pb(error).SerializeToString()))


@pytest.mark.parametrize("cls", CARRIED)
def test_an_error_survives_the_wire(cls: type[SmqError]) -> None:
    error = example(cls)
    assert all(value is not None for value in error.field_values().values())
    found = decoded(error)
    assert type(found) is cls
    assert (found.message, str(found), found.retry) == (error.message, error.message, error.retry)
    assert found.field_values() == error.field_values()


@pytest.mark.parametrize("cls", [cls for cls in CARRIED if cls is not SmqError])
def test_an_error_survives_flight(cls: type[SmqError]) -> None:
    sent = to_flight(example(cls))
    found = from_flight(fl.FlightServerError(str(sent), sent.extra_info))
    assert type(found) is cls and found.field_values() == example(cls).field_values()


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_survives_a_process_boundary(cls: type[SmqError]) -> None:
    error = example(cls)
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is cls and found.message == error.message and found.field_values() == error.field_values()


@pytest.mark.parametrize("cls", CLASSES)
def test_an_optional_field_may_be_absent(cls: type[SmqError]) -> None:
    hints = get_type_hints(cls)
    required = {
        f.name: VALUES[hints[f.name]]
        for f in dataclasses.fields(cls)
        if f.name != "message" and f.default is dataclasses.MISSING
    }
    found = error_from_pb(pb.Error(code=cls.code, message="m", details=json.dumps(required)))
    assert type(found) is cls and required.items() <= found.field_values().items()


def test_what_did_not_answer_a_server_did_answer_its_caller() -> None:
    """Who receives the error did reach the server."""
    found = decoded(errors.Unreachable("the broker at h:1 did not answer"))
    assert type(found) is errors.Unavailable and found.message == "the broker at h:1 did not answer"


def test_a_flight_error_without_an_error_of_ours_means_no_answer() -> None:
    assert type(from_flight(fl.FlightUnavailableError("connection refused"))) is errors.Unreachable
    assert type(from_flight(fl.FlightServerError("failed", b"\xff\xff"))) is errors.Unavailable


@pytest.mark.parametrize(
    ("code", "details", "cls"),
    [
        ("FromTheFuture", "{}", errors.SmqError),
        ("SequenceGap", "{}", errors.SmqError),
        ("SequenceGap", '{"expected": "soon"}', errors.SmqError),
        ("UnknownTopic", "not JSON", errors.SmqError),
        ("UnknownTopic", "3", errors.SmqError),
        ("SequenceGap", '{"expected": true}', errors.SmqError),
        ("SchemaMismatch", '{"difference": ["size", 3]}', errors.InvalidRequest),
        ("NotLeader", '{"leader": {"host": "h"}}', errors.Unavailable),
    ],
)
def test_an_error_that_cannot_be_decoded_becomes_a_base_class(code: str, details: str, cls: type[SmqError]) -> None:
    found = error_from_pb(pb.Error(code=code, message="m", details=details))
    assert isinstance(found, cls) and found.message == "m" and found.code != code


def test_fields_of_a_newer_version_are_dropped() -> None:
    found = error_from_pb(pb.Error(code="NotLeader", message="m", details='{"leader": "h:1", "since": 3}'))
    assert isinstance(found, errors.NotLeader) and found.field_values() == {"leader": "h:1"}


def test_failed_and_state_unknown_are_two_classes() -> None:
    unknown, failed = errors.StoreStateUnknown("m", path="p"), errors.StoreUnavailable("m", path="p")
    assert isinstance(unknown, errors.StoreUnavailable) and not isinstance(failed, errors.StoreStateUnknown)
    assert unknown.retry and failed.retry and not errors.StoreDenied("m").retry


def test_an_error_on_the_wire_is_small_and_printable_whatever_it_quotes() -> None:
    long = "\x1b[2J" + "x" * 30_000_000
    sent = errors.SchemaMismatch(long, topic=long, expected=long, difference=(long,) * 1000)
    message = error_to_pb(sent)
    assert len(message.message) <= 1000 and len(message.SerializeToString()) < 8000
    found = error_from_pb(message)
    assert isinstance(found, errors.SchemaMismatch) and "\x1b" not in found.message + found.topic + found.expected
    assert len(str(to_flight(sent))) < 8000
