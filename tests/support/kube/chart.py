"""The chart, rendered as Helm does it, and the sets of values that it must work with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

CHART = Path(__file__).parents[3] / "charts" / "seaweedmq"
FILER = {"url": "s3://smq", "endpoint": "http://seaweedfs-s3:8333"}
GPU = [{"key": "dedicated", "operator": "Equal", "value": "smq", "effect": "NoSchedule"}]
UNREACHABLE_STORE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
        ]
    }
}

VALUES: dict[str, dict[str, Any]] = {
    "the least": {},
    "amazon": {"filer": {"url": "s3://smq/prod", "endpoint": "", "region": "eu-central-1", "secretName": "s3"}},
    "one namespace": {"operator": {"clusterWide": False}},
    "without crds": {"crds": {"install": False}},
    "one operator": {"operator": {"replicas": 1, "logLevel": "debug", "extraArgs": ["--deleted-topics-grace=1h"]}},
    "no merges": {"operator": {"mergeFilesBelow": 0}},
    "many brokers": {"brokers": {"min": 3, "max": 1000, "capacity": "80Mi", "scaleInAfter": "10m"}},
    "pools": {
        "brokers": {
            "pools": {
                "large": {"min": 1, "max": 4, "resources": {"limits": {"memory": "8Gi"}}, "tolerations": GPU},
                "small": {"max": 2, "nodeSelector": {"disk": "none"}, "journal": {"enabled": False}},
            }
        }
    },
    "journals of a size": {"brokers": {"journal": {"size": "20Gi"}}},
    "no journals": {"brokers": {"journal": {"enabled": False}}},
    "outside": {"external": {"enabled": True, "annotations": {"example.com/internal": "true"}}},
    "node ports": {"external": {"enabled": True, "type": "NodePort", "port": 7100}, "service": {"type": "NodePort"}},
    "kafka": {
        "kafka": {"enabled": True, "port": 9093, "names": ["kafka.example.com"]},
        "networkPolicy": {"enabled": True},
    },
    "kafka outside": {
        "kafka": {
            "enabled": True,
            "proxy": {
                "enabled": True,
                "replicas": 3,
                "advertise": "kafka.example.com",
                "port": 9094,
                "names": ["10.9.8.7"],
                "service": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "annotations": {"a": "b"}},
            },
        },
        "networkPolicy": {"enabled": True},
    },
    "placed": {
        part: {"nodeSelector": {"disk": "ssd"}, "tolerations": GPU, "affinity": UNREACHABLE_STORE}
        for part in ("operator", "brokers")
    },
    "labelled": {
        part: {"podLabels": {"team": "data"}, "podAnnotations": {"prometheus.io/scrape": "true"}}
        for part in ("operator", "brokers")
    },
    "own images": {
        "operator": {"image": {"repository": "registry.local:5000/op", "tag": "1.2", "pullPolicy": "Always"}},
        "brokers": {"image": {"repository": "registry.local:5000/broker", "tag": "1.2"}},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/smq"}},
    },
    "no budgets": {"podDisruptionBudget": False, "service": {"port": 17070}},
    "anywhere": {
        part: {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
            ],
            "priorityClassName": "system-cluster-critical",
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
            "podAnnotations": {"sidecar.istio.io/inject": "false"},
            "podLabels": {"team": "data"},
            "tolerations": GPU,
        }
        | more
        for part, more in {
            "operator": {},
            "brokers": {"pools": {"large": {"priorityClassName": "", "extraEnv": []}}},
            "seaweedfs": {"enabled": True},
            "compaction": {"enabled": True, "topics": ["t"], "jobAnnotations": {"a": "b"}},
            "test": {"resources": {"limits": {"memory": "1Gi"}}},
        }.items()
    },
    "openshift": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "seaweedfs": {"enabled": True},
    },
    "dual stack": {
        "ipFamilyPolicy": "PreferDualStack",
        "external": {"enabled": True, "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"]},
        "service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]},
        "seaweedfs": {"enabled": True},
        "monitoring": {"serviceMonitor": {"enabled": True}},
    },
    "policies": {
        "networkPolicy": {
            "enabled": True,
            "clients": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"queue": "yes"}}}],
            "external": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        },
        "external": {"enabled": True},
        "seaweedfs": {"enabled": True},
    },
    "private authority": {"filer": FILER | {"ca": {"secretName": "1e3", "key": "root.pem"}}},
    "common labels": {"commonLabels": {"team": "data"}},
    "numbers": {
        "brokers": {"resources": {"requests": {"memory": 1e9}, "limits": {"memory": 1e9, "cpu": 2}}, "min": 1},
        "compaction": {"enabled": True, "topics": ["t"], "activeDeadlineSeconds": 2592000},
    },
    "yaml words": {
        "filer": FILER | {"secretName": "1e3", "region": "null"},
        "brokers": {"pools": {"on": {}, "1e3": {}, "null": None, "0x10": {}}, "podLabels": {"yes": "no"}},
        "seaweedfs": {"enabled": True, "persistence": {"storageClassName": "off", "size": "10"}},
    },
    "trial": {"filer": {}, "seaweedfs": {"enabled": True}},
    "trial in memory": {
        "filer": {"url": "s3://other/prefix"},
        "seaweedfs": {"enabled": True, "persistence": {"enabled": False}, "nodeSelector": {"disk": "ssd"}},
    },
    "watched": {
        "monitoring": {
            "serviceMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "prometheus"}},
            "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        }
    },
    "compacted": {
        "filer": {"url": "s3://smq/prod", "endpoint": "", "region": "eu-central-1", "secretName": "s3"},
        "compaction": {
            "enabled": True,
            "schedule": "*/30 * * * *",
            "timeZone": "Etc/UTC",
            "topics": ["flights", "travel/delays"],
            "nodeSelector": {"disk": "ssd"},
        },
        "imagePullSecrets": [{"name": "registry"}],
    },
    "open": {"security": {"mode": "disabled"}},
    "secure": {
        "security": {"mode": "required"},
        "external": {"enabled": True},
        "compaction": {"enabled": True, "topics": ["flights", "travel/delays", "travel/flights"]},
    },
    "secure in a namespace": {
        "security": {
            "mode": "permissive",
            "tokenAudience": "queue",
            "caSecretName": "corporation",
            "oidc": {"issuer": "https://login.example.com/realms/data", "audience": "smq"},
            "clientCa": {"configMapName": "clients", "key": "bundle.pem", "prefix": "company:"},
        },
        "operator": {"clusterWide": False},
    },
    "quick to end": {"brokers": {"terminationGracePeriodSeconds": 15, "logLevel": "warning"}},
}

INVALID_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "an issuer without an audience": (
        {"security": {"mode": "required", "oidc": {"issuer": "https://login.example.com"}}},
        "security.oidc.audience",
    ),
    "an issuer in clear text": ({"security": {"oidc": {"issuer": "http://login.example.com"}}}, "issuer"),
    "two authorities of clients": (
        {"security": {"clientCa": {"configMapName": "a", "secretName": "b"}}},
        "security.clientCa",
    ),
    "no filer": ({"filer": {"url": ""}}, "filer.url is needed"),
    "an odd size of a disk": ({"seaweedfs": {"persistence": {"size": "10 GB"}}}, "size"),
    "a scrape every now and then": ({"monitoring": {"serviceMonitor": {"interval": "often"}}}, "interval"),
    "a filer by http": ({"filer": {"url": "http://seaweedfs:8333/smq"}}, "filer"),
    "a value that is not": ({"broker": {"min": 1}}, "broker"),
    "a deep value that is not": ({"brokers": {"minimum": 1}}, "minimum"),
    "brokers as text": ({"brokers": {"min": "two"}}, "brokers"),
    "min above max": ({"brokers": {"min": 5, "max": 4}}, "must be at most max"),
    "min above max in a pool": ({"brokers": {"pools": {"x": {"min": 11}}}}, "must be at most max"),
    "no limit of memory": ({"brokers": {"resources": {"limits": {"memory": None}}}}, "limits.memory is needed"),
    "a capacity in words": ({"brokers": {"capacity": "much"}}, "capacity"),
    "a capacity of a pool in words": ({"brokers": {"pools": {"x": {"capacity": "much"}}}}, "capacity"),
    "a journal of an odd size": ({"brokers": {"journal": {"size": "much"}}}, "size"),
    "a compaction of nothing": ({"compaction": {"enabled": True}}, "compaction.topics is needed"),
    "a compaction now and then": ({"compaction": {"schedule": "often"}}, "schedule"),
    "another mode": ({"security": {"mode": "open"}}, "mode"),
    "a topic that is a command": ({"compaction": {"topics": ["flights; id"]}}, "topics"),
    "an argument that is no flag": ({"operator": {"extraArgs": ["kube"]}}, "extraArgs"),
    "a size of files in words": ({"operator": {"mergeFilesBelow": "small"}}, "mergeFilesBelow"),
    "a pool in capitals": ({"brokers": {"pools": {"X": {}}}}, "does not match pattern"),
    "another level": ({"operator": {"logLevel": "loud"}}, "logLevel"),
    "labels of the chart": ({"commonLabels": {"seaweedmq.io/leader": "true"}}, "seaweedmq.io/leader"),
    "a label of the chart": ({"brokers": {"podLabels": {"seaweedmq.io/release": "x"}}}, "seaweedmq.io/release"),
    "a scrape that is too rare": (
        {"monitoring": {"serviceMonitor": {"interval": "5m"}, "alerts": {"enabled": True}}},
        "write at most 2m",
    ),
    "kafka at a port of others": ({"kafka": {"port": 7071}}, "port"),
    "a proxy for Kafka without brokers": ({"kafka": {"proxy": {"enabled": True, "advertise": "k"}}}, "kafka.enabled"),
    "a proxy for Kafka that nobody finds": ({"kafka": {"enabled": True, "proxy": {"enabled": True}}}, "advertise"),
    "a proxy for Kafka at a URL": ({"kafka": {"proxy": {"advertise": "kafka://a"}}}, "advertise"),
    "kafka by an address with a port": ({"kafka": {"names": ["a b"]}}, "names"),
    "off": ({"enabled": False}, "condition: seaweedmq.enabled"),
    "memory in words": ({"brokers": {"resources": {"limits": {"memory": "much"}}}}, "is no size: write one such as"),
    "a range that is none": ({"external": {"loadBalancerSourceRanges": ["everybody"]}}, "loadBalancerSourceRanges"),
    "a peer that is none": ({"networkPolicy": {"clients": [{"pods": {}}]}}, "clients"),
    "a family that is none": ({"ipFamilyPolicy": "IPv6"}, "ipFamilyPolicy"),
    "another type of Service": ({"service": {"type": "External"}}, "service"),
}


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Values with a filer, the only ones that a user must give."""
    return {"filer": FILER} | values


def render(
    values: dict[str, Any], *, name: str = "smq", namespace: str = "default", folder: Path = CHART
) -> list[dict[str, Any]]:
    """The resources of a release, in no certain order. Raises HelmError as ``helm install`` would fail."""
    with helm.Chart.load(folder) as chart:
        chart.validate_schema(given(values))
        rendered = chart.render(given(values), name=name, namespace=namespace)
    texts = (text for path, text in rendered.items() if path.endswith(".yaml"))
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def notes(values: dict[str, Any]) -> str:
    """What Helm says after an installation."""
    with helm.Chart.load(CHART) as chart:
        rendered = chart.render(given(values), name="smq", namespace="default")
    return next(text for path, text in rendered.items() if path.endswith("NOTES.txt"))


def workloads(resources: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The Pods that a release makes, by what makes them: metadata and spec of each."""
    made = {
        r["metadata"]["name"]: r["spec"]["template"] for r in resources if r["kind"] in ("Deployment", "StatefulSet")
    }
    scheduled = {
        name: job["spec"]["jobTemplate"]["spec"]["template"] for name, job in of_kind(resources, "CronJob").items()
    }
    return made | scheduled | of_kind(resources, "Pod")


def of_kind(resources: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """By name."""
    return {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == kind}


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Values in which ``new`` replaces only what it names."""
    both = {k: merged(old[k], v) for k, v in new.items() if isinstance(v, dict) and isinstance(old.get(k), dict)}
    return {**old, **new, **both}
