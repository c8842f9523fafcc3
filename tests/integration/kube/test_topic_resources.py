"""Topics are resources: they come, change and go; brokers are Pods."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from smq_core.errors import SpecRejected, UnknownTopic
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, topic
from support.processes.broker import BrokerProcess
from support.processes.leader import manifest
from support.waiting import eventually

pytestmark = pytest.mark.integration
Brokers = Callable[..., BrokerProcess]


def located(operator: OperatorProcess, name: str) -> pb.LocateReply:
    reply = operator.locate(f"{operator.namespace}/{name}")
    assert reply.layout.segments
    return reply


def topics(operator: OperatorProcess) -> dict[str, admin_pb2.TopicList.Topic]:
    reply = operator.call("ListTopics", admin_pb2.ListTopicsRequest())
    assert isinstance(reply, admin_pb2.TopicList)
    return {t.info.name.rpartition("/")[2]: t for t in reply.topics}


@pytest.mark.slow
def test_a_topic_is_led_from_its_resource_until_it_is_deleted(
    operator: OperatorProcess, new_broker: Brokers, kube: KubeClient, namespace: str
) -> None:
    for name in ("a", "b"):
        new_broker(name, operator)
    made = kube.create(topic(namespace))
    reply = eventually(lambda: located(operator, "t"))
    assert reply.topic.uid == made["metadata"]["uid"]
    assert {r.broker for s in reply.layout.segments for r in s.replicas} == {"a", "b"}
    kube.patch(made, {"spec": {"segments": {"min": 4}}})
    eventually(lambda: sum(not s.successors for s in located(operator, "t").layout.segments) >= 4)
    kube.delete(made)
    eventually(lambda: "t" not in topics(operator))
    resync = kube.create(topic(namespace))
    eventually(lambda: located(operator, "t").topic.uid == resync["metadata"]["uid"])


def test_topics_are_created_paused_and_deleted_by_the_control_api(
    operator: OperatorProcess, kube: KubeClient, namespace: str
) -> None:
    def mine(**spec: object) -> str:
        text = manifest("t", durability="Stored", replicas=1, **spec)
        return text.replace('"name"', f'"namespace": "{namespace}", "name"')

    assert operator.apply(mine()).result == admin_pb2.ApplyTopicReply.CREATED
    assert operator.apply(mine()).result == admin_pb2.ApplyTopicReply.UNCHANGED
    assert kube.get(topic(namespace))["spec"]["durability"] == "Stored"
    assert operator.apply(mine(segments={"min": 2})).result == admin_pb2.ApplyTopicReply.CONFIGURED
    with pytest.raises(SpecRejected, match="partitions cannot change"):
        operator.apply(mine(partitions=128))
    with pytest.raises(SpecRejected, match=f"only the topics of namespace {namespace}"):
        operator.apply(manifest("t"))
    full = f"{namespace}/t"
    operator.call("PauseScaling", admin_pb2.PauseScalingRequest(topic=full, paused=True))
    assert kube.get(topic(namespace))["metadata"]["annotations"]["seaweedmq.io/autoscaling"] == "paused"
    eventually(lambda: topics(operator)["t"].paused)
    operator.call("PauseScaling", admin_pb2.PauseScalingRequest(topic=full, paused=False))
    eventually(lambda: not topics(operator)["t"].paused)
    operator.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic=full))
    assert kube.find(topic(namespace)) is None

    def is_unknown() -> bool:
        """The operator learns of the deletion by its watch."""
        try:
            operator.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic=full))
        except UnknownTopic:
            return True
        return False

    eventually(is_unknown)


def test_an_applied_manifest_drops_columns_that_another_program_wrote(
    operator: OperatorProcess, kube: KubeClient, namespace: str
) -> None:
    """Server-side apply keeps the columns of other writers, as of every list with keys."""
    columns = [{"name": "id", "type": "int32"}, {"name": "gate", "type": "string", "nullable": True}]
    kube.create(topic(namespace, schema=columns))
    eventually(lambda: "t" in topics(operator))
    spec = kube.get(topic(namespace))["spec"]
    text = manifest("t", **(spec | {"schema": columns[:1]}))
    assert (
        operator.apply(text.replace('"name": "t"', f'"namespace": "{namespace}", "name": "t"')).result
        == admin_pb2.ApplyTopicReply.CONFIGURED
    )
    assert [column["name"] for column in kube.get(topic(namespace))["spec"]["schema"]] == ["id"]


def test_topics_of_other_namespaces_are_left_alone(operator: OperatorProcess, kube: KubeClient, namespace: str) -> None:
    other = kube.create(topic("default", f"x{namespace}"))
    try:
        kube.create(topic(namespace, "mine"))
        eventually(lambda: "mine" in topics(operator))
        assert set(topics(operator)) == {"mine"}
    finally:
        kube.delete(other)


@pytest.mark.slow
def test_columns_are_changed_in_the_resource(
    operator: OperatorProcess, new_broker: Brokers, kube: KubeClient, namespace: str
) -> None:
    new_broker("a", operator)
    new_broker("b", operator)
    columns = [{"name": "id", "type": "int32"}]
    kube.create(topic(namespace, schema=columns))
    eventually(lambda: located(operator, "t"))
    new = [pb.Column(name="id", type="int64"), pb.Column(name="gate", type="uint8", nullable=True)]
    request = admin_pb2.AlterTopicRequest(topic=f"{namespace}/t", columns=new, schema_version=0)
    reply = operator.call("AlterTopic", request)
    assert isinstance(reply, admin_pb2.AlterTopicReply) and reply.schema.version == 1
    assert kube.get(topic(namespace))["spec"]["schema"] == [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "gate", "type": "uint8", "nullable": True},
    ]
    eventually(lambda: all(s.schema_version == 1 for s in located(operator, "t").layout.segments))
    with pytest.raises(SpecRejected, match="'id' cannot change from int64 to int8"):
        operator.call(
            "AlterTopic",
            admin_pb2.AlterTopicRequest(
                topic=f"{namespace}/t", columns=[pb.Column(name="id", type="int8")], schema_version=1
            ),
        )
