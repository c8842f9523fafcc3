"""SeaweedMQ for Python programs: producers, consumers and the admin API.

::

    import smq

    with smq.connect("localhost:7070") as client:
        with client.producer("travel/flights") as producer:
            receipt = producer.send(b"payload", key=b"N14228").result()
            producer.write(table)                      # a pyarrow Table, the fastest way to publish
        with client.consumer("travel/flights", group="report", start="earliest") as consumer:
            for batch in consumer:
                print(batch.segment, batch.first_offset, batch.table.num_rows)
                consumer.commit()

``smq.aio`` has the same API for asyncio.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# gRPC's handlers of fork() crash about one child in twenty before it can run another program, such as Spark's JVM. It
# reads this when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from smq_core import errors as _errors

if TYPE_CHECKING:
    from smq import aio
    from smq.admin import (
        AccessCheck,
        Admin,
        AlteredTopic,
        AppliedTopic,
        AuthorityInfo,
        AuthorityRotation,
        BrokerInfo,
        CallerInfo,
        Condition,
        DecisionInfo,
        GroupInfo,
        GroupReset,
        GroupSegment,
        KafkaGroupInfo,
        KafkaGroupPartition,
        PinInfo,
        ProblemInfo,
        RecoveredTopic,
        SegmentInfo,
        SegmentLoad,
        StoryEvent,
        TopicChange,
        TopicInfo,
        TopicSetting,
        TrimmedSegment,
        TrimmedTopic,
    )
    from smq.batch import Batch, Message
    from smq.client import Client
    from smq.connecting import connect
    from smq.consumer import Consumer
    from smq.consuming.consumer_options import ConsumerOptions
    from smq.data_files import DataFile, DataFiles
    from smq.delivery import (
        AtomicReceipt,
        Delivery,
        FileReceipt,
        FilesReceipt,
        PublishedRange,
        Receipt,
        StagedFile,
        TableReceipt,
    )
    from smq.producer import Producer
    from smq.topics_consumer import TopicsConsumer
    from smq_core.errors import (
        Conflict,
        DataLost,
        DeliveryTimeout,
        DeliveryUnknown,
        InvalidRequest,
        MessageTooLarge,
        NoBrokers,
        NotLeader,
        Overloaded,
        PartlySent,
        PermissionDenied,
        ProducerFenced,
        QuotaExceeded,
        ReferenceRejected,
        SchemaMismatch,
        SmqError,
        SpecRejected,
        StaleGeneration,
        StoreStateUnknown,
        StoreUnavailable,
        Unauthenticated,
        Unavailable,
        UnknownSegment,
        UnknownTopic,
    )
    from smq_core.model.loss import Loss

__all__ = [
    "AccessCheck",
    "Admin",
    "AlteredTopic",
    "AppliedTopic",
    "AtomicReceipt",
    "AuthorityInfo",
    "AuthorityRotation",
    "Batch",
    "BrokerInfo",
    "CallerInfo",
    "Client",
    "Condition",
    "Conflict",
    "Consumer",
    "ConsumerOptions",
    "DataFile",
    "DataFiles",
    "DataLost",
    "DecisionInfo",
    "Delivery",
    "DeliveryTimeout",
    "DeliveryUnknown",
    "FileReceipt",
    "FilesReceipt",
    "GroupInfo",
    "GroupReset",
    "GroupSegment",
    "InvalidRequest",
    "KafkaGroupInfo",
    "KafkaGroupPartition",
    "Loss",
    "Message",
    "MessageTooLarge",
    "NoBrokers",
    "NotLeader",
    "Overloaded",
    "PartlySent",
    "PermissionDenied",
    "PinInfo",
    "ProblemInfo",
    "Producer",
    "ProducerFenced",
    "PublishedRange",
    "QuotaExceeded",
    "Receipt",
    "RecoveredTopic",
    "ReferenceRejected",
    "SchemaMismatch",
    "SegmentInfo",
    "SegmentLoad",
    "SmqError",
    "SpecRejected",
    "StagedFile",
    "StaleGeneration",
    "StoreStateUnknown",
    "StoreUnavailable",
    "StoryEvent",
    "TableReceipt",
    "TopicChange",
    "TopicInfo",
    "TopicSetting",
    "TopicsConsumer",
    "TrimmedSegment",
    "TrimmedTopic",
    "Unauthenticated",
    "Unavailable",
    "UnknownSegment",
    "UnknownTopic",
    "aio",
    "connect",
]

_MODULES_OF_NAMES = {
    "smq.admin": (
        "AccessCheck",
        "AuthorityInfo",
        "AuthorityRotation",
        "Admin",
        "AlteredTopic",
        "AppliedTopic",
        "BrokerInfo",
        "CallerInfo",
        "Condition",
        "DecisionInfo",
        "GroupInfo",
        "GroupReset",
        "GroupSegment",
        "KafkaGroupInfo",
        "KafkaGroupPartition",
        "PinInfo",
        "ProblemInfo",
        "RecoveredTopic",
        "TrimmedSegment",
        "TrimmedTopic",
        "SegmentInfo",
        "SegmentLoad",
        "StoryEvent",
        "TopicChange",
        "TopicInfo",
        "TopicSetting",
    ),
    "smq.batch": ("Batch", "Message"),
    "smq.client": ("Client",),
    "smq.connecting": ("connect",),
    "smq.consumer": ("Consumer",),
    "smq.consuming.consumer_options": ("ConsumerOptions",),
    "smq.topics_consumer": ("TopicsConsumer",),
    "smq.data_files": ("DataFile", "DataFiles"),
    "smq.delivery": (
        "AtomicReceipt",
        "Delivery",
        "FileReceipt",
        "FilesReceipt",
        "PublishedRange",
        "Receipt",
        "StagedFile",
        "TableReceipt",
    ),
    "smq.producer": ("Producer",),
    "smq_core.model.loss": ("Loss",),
}
# All other public names are error classes.
_MODULE_OF_NAME = {name: module for module, names in _MODULES_OF_NAMES.items() for name in names}

for _name in __all__:
    if _name not in _MODULE_OF_NAME and _name != "aio":
        # Tracebacks and reprs show the name that a program uses. Errors are raised before a program has named them.
        getattr(_errors, _name).__module__ = "smq"


def __getattr__(name: str) -> Any:
    """Imports each name on first use, because Arrow and gRPC take half a second and some programs need only one."""
    if name not in __all__:
        raise AttributeError(f"module 'smq' has no attribute {name!r}")
    if name == "aio":
        return import_module("smq.aio")
    module = import_module(_MODULE_OF_NAME[name]) if name in _MODULE_OF_NAME else _errors
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
