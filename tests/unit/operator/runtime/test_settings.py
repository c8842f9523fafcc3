"""Flags and environment variables of both modes."""

import os
from pathlib import Path
from unittest import mock

import pytest

from smq_core.errors import InvalidRequest
from smq_core.model.entities import SECOND
from smq_core.scaling.broker_fleet import FleetPolicy
from smq_operator.kube.settings import KubeSettings
from smq_operator.local.settings import LocalSettings
from smq_operator.main import EXIT_USAGE, main, parse_settings
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.merge_settings import MergeSettings
from smq_storage.object_store.store import StoreSettings

FILER = {"SMQ_FILER_URL": "s3://smq/x"}
POD = FILER | {"POD_NAME": "smq-operator-1", "POD_NAMESPACE": "queue"}


def local(*flags: str, env: dict[str, str] = FILER) -> LocalSettings:
    with mock.patch.dict(os.environ, env, clear=True):
        settings = parse_settings(["local", "--dir", "/tmp/x", *flags])
    assert isinstance(settings, LocalSettings)
    return settings


def kube(*flags: str, env: dict[str, str] = POD) -> KubeSettings:
    with mock.patch.dict(os.environ, env, clear=True):
        settings = parse_settings(["kube", *flags])
    assert isinstance(settings, KubeSettings)
    return settings


def test_the_page_of_a_secure_release_is_for_loopback_unless_a_proxy_is_named() -> None:
    assert kube("--security=required").page_at_loopback_only
    assert not kube("--security=required", env=POD | {"SMQ_HTTP_HOSTS": "smq.example.org"}).page_at_loopback_only
    assert not kube("--security=permissive").page_at_loopback_only and not kube().page_at_loopback_only
    assert kube("--http-hosts=A.example, b.example").public_hosts == ["a.example", "b.example"]


def test_defaults() -> None:
    settings = local()
    assert (settings.listen, settings.http, settings.log_level) == ("127.0.0.1:7070", "", "info")
    assert (settings.folder, settings.brokers, settings.broker_memory) == (Path("/tmp/x"), 3, "1Gi")
    assert settings.broker_args == settings.broker_wrapper == ()
    assert settings.fleet_policy is None and not settings.keep_brokers
    assert settings.store == StoreSettings(url="s3://smq/x") and settings.cleanup == CleanupSettings()
    assert settings.merge == MergeSettings()
    in_pod = kube()
    assert (in_pod.listen, in_pod.http, in_pod.release) == ("[::]:7070", "[::]:8080", "smq")
    assert (in_pod.home, in_pod.pod, in_pod.namespace) == ("queue", "smq-operator-1", "")
    assert in_pod.node_grace_us == 60 * SECOND


def test_flags_take_precedence_over_variables() -> None:
    env = FILER | {"SMQ_FILER_ENDPOINT": "http://env", "SMQ_FILER_REGION": "env"}
    store = local("--filer-url", "s3://flag", "--filer-endpoint=", "--filer-timeout=2", env=env).store
    assert store == StoreSettings(url="s3://flag", endpoint=None, region="env", timeout=2.0)


def test_variables_of_brokers_are_not_read() -> None:
    settings = local(env=FILER | {"SMQ_LISTEN": "127.0.0.1:9", "SMQ_LOG_LEVEL": "debug", "SMQ_BROKERS": "9"})
    assert (settings.listen, settings.log_level, settings.brokers) == ("127.0.0.1:7070", "info", 3)


def test_units() -> None:
    settings = local(
        *("--broker-capacity", "80Mi", "--scale-in-after", "30s", "--brokers", "0", "--max-brokers", "4"),
        *("--cleanup-interval", "200ms", "--removed-files-grace", "2s", "--deleted-topics-grace", "1h30m"),
        *("--orphaned-files-grace", "2h", "--orphan-check-interval", "5m", "--unreferenced-uploads-grace", "4h"),
        *("--max-pin-age", "3h", "--merge-files-below", "64Ki", "--merge-files-after", "1m"),
    )
    assert settings.fleet_policy == FleetPolicy(
        minimum=1, maximum=4, bytes_per_second=80 * 2**20, scale_in_after=30 * SECOND
    )
    assert settings.cleanup == CleanupSettings(
        retention_interval_us=SECOND // 5,
        removed_files_grace_us=2 * SECOND,
        max_pin_age_us=10800 * SECOND,
        deleted_topics_grace_us=5400 * SECOND,
        orphan_grace_us=7200 * SECOND,
        orphan_check_interval_us=300 * SECOND,
        uploads_grace_us=14400 * SECOND,
        superseded_files_grace_us=2 * SECOND,
    )
    assert settings.cleanup.max_upload_age_us == 7200 * SECOND
    assert settings.merge == MergeSettings(64 * 1024, 60 * SECOND)
    assert local("--merge-files-below=0").merge.below_bytes == 0
    assert kube("--node-grace", "5s").node_grace_us == 5 * SECOND


@pytest.mark.parametrize(
    ("arguments", "grace"),
    [
        ((), 3600 * SECOND),
        (("--removed-files-grace", "2h"), 7200 * SECOND),
        (("--removed-files-grace", "2h", "--superseded-files-grace", "5s"), 5 * SECOND),
        (("--superseded-files-grace", "unlimited"), None),
    ],
)
def test_superseded_files_stay_as_long_as_removed_ones_unless_they_have_a_time_of_their_own(
    arguments: tuple[str, ...], grace: int | None
) -> None:
    assert local(*arguments).cleanup.superseded_files_grace_us == grace


def test_an_empty_flag_is_a_value() -> None:
    assert kube("--http=").http == ""
    assert local("--scale-in-after=", "--broker-wrapper=") == local()


def test_flags_and_the_wrapper_of_brokers_are_passed_as_they_are() -> None:
    settings = local(
        *("--broker-arg=--leader=a:1, b:2", '--broker-arg=--zone="x"', "--broker-arg=[1]", "--broker-arg=null"),
        *("--broker-wrapper", "nice -n '5 '", "--keep-brokers"),
    )
    assert settings.broker_args == ("--leader=a:1, b:2", '--zone="x"', "[1]", "null")
    assert settings.broker_wrapper == ("nice", "-n", "5 ") and settings.keep_brokers


def test_outside_of_a_pod_the_release_is_in_the_namespace_of_the_flag() -> None:
    settings = kube("--namespace", "here", env=FILER)
    assert (settings.home, settings.pod) == ("here", "")


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (["local"], {}, "--filer-url: required(.|\n)*--dir: required"),
        (["local", "--dir=x", "--listen=70"], FILER, "--listen: an address is host:port"),
        (["local", "--dir=x", "--advertise=http://x"], FILER, "--advertise: an address is host:port"),
        (["local", "--dir=x", "--brokers=-1"], FILER, "--brokers: .* 0, not '-1'"),
        (["local", "--dir=x", "--brokers=two"], FILER, "--brokers: .*integer"),
        (["local", "--dir=x", "--max-brokers=2"], FILER, "--max-brokers: 2 is below --brokers 3: raise it"),
        (["local", "--dir=x", "--broker-capacity=much"], FILER, "--broker-capacity: .*32Mi"),
        (["local", "--dir=x", "--scale-in-after=3"], FILER, "--scale-in-after: .*5s"),
        (["local", "--dir=x", "--broker-wrapper='"], FILER, "--broker-wrapper: .*no command"),
        (["local", "--dir=x", "--cleanup-interval=1w"], FILER, "--cleanup-interval: .*unknown unit 'w'"),
        (["local", "--dir=x", "--merge-files-below=2Mi"], FILER, "--merge-files-below: must be at most 1Mi"),
        (["local", "--dir=x", "--log-level=loud"], FILER, "--log-level: .*'info'.*, not 'loud'"),
        (["kube", "--release="], POD, "--release: must be the name"),
        (["kube", "--node-grace=5"], POD, "--node-grace: .*5s"),
        (["kube"], FILER, "POD_NAMESPACE: required"),
    ],
)
def test_what_is_wrong_is_said_with_its_flag(
    arguments: list[str], env: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with mock.patch.dict(os.environ, env, clear=True):
        with pytest.raises(InvalidRequest, match=message):
            parse_settings(arguments)
        with pytest.raises(SystemExit) as ended:
            main(arguments)
    assert ended.value.code == EXIT_USAGE
    assert all(line.startswith("smq-operator: ") for line in capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("arguments", [[], ["other"], ["local", "--home=x"], ["kube", "--POD_NAME=x"], ["kube", "x"]])
def test_what_is_no_flag_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: smq-operator" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["local", "kube"])
def test_help_shows_each_flag_and_readable_defaults_only(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([mode, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    flags = ["filer-url", "deleted-topics-grace", "log-level"]
    flags += ["dir", "broker-arg", "broker-wrapper"] if mode == "local" else ["release", "node-grace"]
    assert all(f"--{flag} …" in shown for flag in flags)
    assert "(default: 10m)" in shown and "(default: info)" in shown
    assert not any(text in shown for text in ("(default: )", "null", "False", "000000", "SUPPRESS", "POD_", "folder …"))


def test_each_local_broker_has_a_port_for_kafka_clients() -> None:
    assert local().arguments_of(1) == []
    assert local("--kafka", "[::1]:9092").arguments_of(3) == ["--kafka", "[::1]:9094"]
    with pytest.raises(InvalidRequest, match=r"--kafka: .*host:port"):
        local("--kafka", "9092")
