"""The public names of smq: exactly these can be imported."""

from __future__ import annotations

import inspect
import pickle
import traceback

import pytest

import smq

EXPECTED = {
    "Admin",
    "AlteredTopic",
    "AppliedTopic",
    "AtomicReceipt",
    "Batch",
    "BrokerInfo",
    "Client",
    "Condition",
    "Conflict",
    "Consumer",
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
    "PinInfo",
    "ProblemInfo",
    "SpecRejected",
    "StagedFile",
    "InvalidRequest",
    "Message",
    "MessageTooLarge",
    "NoBrokers",
    "NotLeader",
    "Overloaded",
    "PartlySent",
    "Producer",
    "ProducerFenced",
    "PublishedRange",
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
