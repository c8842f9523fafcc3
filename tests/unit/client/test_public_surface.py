"""The public names of smq: exactly these can be imported."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import traceback

import pytest

import smq
import smq.aio
from smq.consuming.consumer_options import ConsumerKeywords, TopicsConsumerKeywords

EXPECTED = {
    "AccessCheck",
    "AuthorityInfo",
    "AuthorityRotation",
    "Admin",
    "AlteredTopic",
    "AppliedTopic",
    "AtomicReceipt",
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
    "KafkaGroupInfo",
    "KafkaGroupPartition",
    "PinInfo",
    "ProblemInfo",
    "SpecRejected",
    "StagedFile",
    "InvalidRequest",
    "Loss",
    "Message",
    "MessageTooLarge",
    "NoBrokers",
    "NotLeader",
    "Overloaded",
    "PartlySent",
    "PermissionDenied",
    "Unauthenticated",
    "Producer",
    "ProducerFenced",
    "PublishedRange",
    "QuotaExceeded",
    "Receipt",
    "RecoveredTopic",
    "TrimmedSegment",
    "TrimmedTopic",
    "ReferenceRejected",
    "SchemaMismatch",
    "SegmentInfo",
    "SegmentLoad",
    "SmqError",
    "StaleGeneration",
    "StoreStateUnknown",
    "StoreUnavailable",
    "StoryEvent",
    "TableReceipt",
    "TopicChange",
    "TopicInfo",
    "TopicSetting",
    "TopicsConsumer",
    "Unavailable",
    "UnknownSegment",
    "UnknownTopic",
    "aio",
    "connect",
}


def test_exported_names() -> None:
    assert smq.__all__ == sorted(smq.__all__)
    assert set(smq.__all__) == EXPECTED
    assert all(hasattr(smq, name) for name in smq.__all__)


def test_every_public_error_is_an_smq_error() -> None:
    errors = [e for n in smq.__all__ if inspect.isclass(e := getattr(smq, n)) and issubclass(e, Exception)]
    assert len(errors) > 10
    assert all(issubclass(e, smq.SmqError) for e in errors)


@pytest.mark.parametrize("kind", [smq.Client, smq.Producer, smq.Consumer, smq.Admin, smq.Delivery, smq.TableReceipt])
def test_every_public_method_says_what_it_does(kind: type) -> None:
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            assert inspect.getdoc(member), f"{kind.__name__}.{name}"


def test_errors_show_the_name_by_which_a_program_catches_them() -> None:
    wrong = smq.SchemaMismatch("a reason")
    shown = traceback.format_exception_only(wrong)

    assert shown == ["smq.SchemaMismatch: a reason\n"]
    assert type(pickle.loads(pickle.dumps(wrong))) is smq.SchemaMismatch


IN_ASYNCIO = {
    # An asyncio program awaits a delivery, and ``send`` waits without blocking the event loop.
    smq.Delivery: {"add_done_callback", "exception", "result"},
    smq.Producer: {"would_block"},
}


@pytest.mark.parametrize(
    ("sync", "asynchronous"),
    [
        (smq.Client, smq.aio.AsyncClient),
        (smq.Producer, smq.aio.AsyncProducer),
        (smq.Consumer, smq.aio.AsyncConsumer),
        (smq.TopicsConsumer, smq.aio.AsyncTopicsConsumer),
        (smq.Delivery, smq.aio.AsyncDelivery),
    ],
)
def test_asyncio_has_the_same_api(sync: type, asynchronous: type) -> None:
    names = {name for name in dir(sync) if not name.startswith("_")} - IN_ASYNCIO.get(sync, set())
    assert names == {name for name in dir(asynchronous) if not name.startswith("_")}
    for name in names:
        theirs, ours = getattr(sync, name), getattr(asynchronous, name)
        assert callable(theirs) == callable(ours), name
        if callable(theirs):
            wanted, found = inspect.signature(theirs).parameters, inspect.signature(ours).parameters
            accepts_any = any(it.kind is inspect.Parameter.VAR_KEYWORD for it in found.values())
            assert accepts_any or wanted.keys() == found.keys(), name
            assert all(it.default == wanted[name].default for name, it in found.items() if name in wanted), name


def test_keywords_of_a_consumer_are_its_options() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(smq.ConsumerOptions)}
    assert ConsumerKeywords.__annotations__.keys() == fields.keys()
    assert TopicsConsumerKeywords.__annotations__.keys() == fields.keys() - {"start", "segments", "partitions"}
    for name, annotation in ConsumerKeywords.__annotations__.items():
        assert annotation.__forward_arg__ == fields[name], name
