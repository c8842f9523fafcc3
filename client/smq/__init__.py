"""SeaweedMQ for Python programs: producers, consumers, administration.

::

    import smq

    with smq.connect("localhost:7070") as client:
        with client.producer("travel/flights") as producer:
            receipt = producer.send(b"payload", key=b"N14228").result()
            producer.write(table)                      # a pyarrow Table: whole batches, the fast way
        with client.consumer("travel/flights", group="report", start="earliest") as consumer:
            for batch in consumer:
                print(batch.segment, batch.first_offset, batch.table.num_rows)
                consumer.commit()

``smq.aio`` has the same for asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smq import aio
    from smq.admin import (
        Admin,
        AppliedTopic,
        BrokerInfo,
        Condition,
        DecisionInfo,
        GroupInfo,
        SegmentInfo,
        SegmentLoad,
        TopicInfo,
    )
    from smq.batch import Batch
    from smq.client import Client, connect
    from smq.consumer import Consumer
    from smq.delivery import Delivery, Receipt, TableReceipt
    from smq.producer import Producer
    from smq_core.errors import (
        Conflict,
        DataLost,
        DeliveryTimeout,
        InvalidManifest,
        InvalidRequest,
        MessageTooLarge,
        NoBrokers,
        NotLeader,
        Overloaded,
        ProducerFenced,
        SchemaMismatch,
        SmqError,
        StaleGeneration,
        StoreUnavailable,
        Unavailable,
        UnknownSegment,
        UnknownTopic,
    )

__all__ = [
    "Admin",
    "AppliedTopic",
    "Batch",
    "BrokerInfo",
    "Client",
    "Condition",
    "Conflict",
    "Consumer",
    "DataLost",
    "DecisionInfo",
    "Delivery",
    "DeliveryTimeout",
    "GroupInfo",
    "InvalidManifest",
    "InvalidRequest",
    "MessageTooLarge",
    "NoBrokers",
    "NotLeader",
    "Overloaded",
    "Producer",
    "ProducerFenced",
    "Receipt",
    "SchemaMismatch",
    "SegmentInfo",
    "SegmentLoad",
    "SmqError",
    "StaleGeneration",
    "StoreUnavailable",
    "TableReceipt",
    "TopicInfo",
    "Unavailable",
    "UnknownSegment",
    "UnknownTopic",
    "aio",
    "connect",
]

_HOMES = {
    "smq.admin": (
        "Admin",
        "AppliedTopic",
        "BrokerInfo",
        "Condition",
        "DecisionInfo",
        "GroupInfo",
        "SegmentInfo",
        "SegmentLoad",
        "TopicInfo",
    ),
    "smq.batch": ("Batch",),
    "smq.client": ("Client", "connect"),
    "smq.consumer": ("Consumer",),
    "smq.delivery": ("Delivery", "Receipt", "TableReceipt"),
    "smq.producer": ("Producer",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
"""All other names are errors."""


def __getattr__(name: str) -> Any:
    """Each name is loaded when it is first used: Arrow and gRPC take half a second, and not all programs need both."""
    if name not in __all__:
        raise AttributeError(f"module 'smq' has no attribute {name!r}")
    if name == "aio":
        return import_module("smq.aio")
    value = globals()[name] = getattr(import_module(_HOME.get(name, "smq_core.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
