"""Each service of the leader is one definition, one module of handlers, and calls with their own requests."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from smq_operator.api import server
from smq_operator.api.server import LeaderServices

ROOT = Path(__file__).parents[4]
SERVICES = [path.stem for path in sorted((ROOT / "proto/smq/v1").glob("*.proto")) if "\nservice " in path.read_text()]


def service_of(name: str) -> ServiceDescriptor:
    module = importlib.import_module(f"smq_proto.v1.{name}_pb2")
    (service,) = module.DESCRIPTOR.services_by_name.values()
    return service


def test_the_leader_serves_every_service_that_is_defined() -> None:
    assert sorted(LeaderServices.__dataclass_fields__) == SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_its_definition_and_its_module_have_one_name_and_the_same_calls(name: str) -> None:
    service = service_of(name)
    assert service.name.lower() == name
    handlers = getattr(server, LeaderServices.__annotations__[name])
    assert handlers.__module__ == f"smq_operator.api.{name}"
    assert {it for it in vars(handlers) if it[0].isupper()} == {method.name for method in service.methods}


def test_every_call_has_its_own_request() -> None:
    requests = Counter(method.input_type.name for name in SERVICES for method in service_of(name).methods)
    assert set(requests.values()) == {1}, requests
