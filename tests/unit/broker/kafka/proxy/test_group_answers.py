"""While nobody coordinates a group, its clients get an error in each version of each API, after which they repeat."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from smq_broker.kafka.protocol.entities import encode
from smq_broker.kafka.proxy.apis.group_answers import OFFSET_COMMIT, OFFSET_FETCH, unavailable
from smq_broker.kafka.proxy.apis.group_apis import error_codes
from smq_broker.kafka.proxy.service import BY_COORDINATOR

GROUP = SimpleNamespace(group_id="g", topics=None)
TOPIC = SimpleNamespace(
    name="t",
    partition_indexes=(0, 1),
    partitions=(SimpleNamespace(partition_index=0), SimpleNamespace(partition_index=1)),
)
MORE = {"group_ids": ("g",), "member_epoch": 3}
REQUEST = SimpleNamespace(
    group_id="g", member_id="m", topics=(TOPIC,), groups=("g",), groups_names=("g",), key="g", **MORE
)
VERSIONS = [
    *((key, version) for key, (low, high) in BY_COORDINATOR.items() for version in range(low, high + 1)),
    *((10, version) for version in range(7)),
    *((16, version) for version in range(6)),
]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_there_is_an_answer_in_each_version(api_key: int, version: int) -> None:
    request = REQUEST
    if api_key == OFFSET_FETCH and version >= 8:
        request = SimpleNamespace(groups=(GROUP,))
    answer = unavailable(api_key, request, version)
    assert encode(answer)
    codes = list(error_codes(answer))
    if api_key == 10 and version >= 4:
        assert codes == []  # this request names no groups
    else:
        assert codes and set(codes) == {ErrorCode.coordinator_not_available}
    if api_key == OFFSET_COMMIT:
        assert len(codes) == 2
