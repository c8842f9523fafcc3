"""Settings that are given win over the environment, and no request mixes two sources of credentials."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smq_core.errors import InvalidRequest, StoreUnavailable
from smq_storage.object_store.store import StoreSettings, open_store
from support.data.store_variables import VARIABLES
from support.processes.useless_proxy import set_proxies

_HOUR = timedelta(hours=1)
GIVEN = {"region": "r1", "access_key": "key", "secret_key": "secret"}


class Recorder:
    """An S3 endpoint that accepts every PUT and keeps the path and the headers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.send_response(200)
                self.send_header("ETag", '"e"')
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=lambda: self.server.serve_forever(0.01), daemon=True).start()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    it = Recorder()
    yield it
    it.server.shutdown()
    it.server.server_close()


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*VARIABLES, "SERVER_SIDE_ENCRYPTION", "CHECKSUM_ALGORITHM"]:
        monkeypatch.delenv(f"AWS_{name}", raising=False)


def headers_of_a_put(recorder: Recorder, settings: StoreSettings) -> dict[str, str]:
    settings.open().put_new("x", b"1")
    ((path, headers),) = recorder.requests
    assert path == "/b/root/x"
    return headers


def test_no_variable_changes_a_request_whose_settings_are_given(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(f"AWS_{name}", "nonsense")
    settings = StoreSettings(url="s3://b/root", endpoint=recorder.endpoint, **GIVEN)
    headers = headers_of_a_put(recorder, settings)
    assert "Credential=key/" in headers["authorization"] and "/r1/s3/" in headers["authorization"]
    assert headers["if-none-match"] == "*" and "nonsense" not in str(headers)
    url = settings.open().presign_put_new("x", 1, b"\0" * 32, _HOUR).url
    assert url.startswith(recorder.endpoint) and "nonsense" not in url


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_alone_changes_nothing(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"AWS_{name}", "nonsense")
    headers = headers_of_a_put(recorder, StoreSettings(url="s3://b/root", endpoint=recorder.endpoint, **GIVEN))
    assert "Credential=key/" in headers["authorization"] and "nonsense" not in str(headers)


def test_another_store_in_the_environment_is_not_used_for_the_one_that_the_leader_names(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", recorder.endpoint)
    monkeypatch.setenv("AWS_REGION", "elsewhere")
    named = StoreSettings.from_public_options("s3://b/root", {})
    assert str(named.open()) == "Store(s3://b/root)" and (named.endpoint, named.region) == (None, None)
    url = open_store("s3://b", **{**GIVEN, "region": None}).presign_put_new("x", 1, b"\0" * 32, _HOUR).url
    assert url.startswith("https://s3.us-east-1.amazonaws.com/b/x?") and "us-east-1%2Fs3" in url


def test_what_is_not_configured_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general:1")
    assert StoreSettings.configured("s3://b").endpoint == "http://general:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "r2")
    found = StoreSettings.configured("s3://b")
    assert found.to_public_options() == {"endpoint": "http://s3:1", "region": "r2"}
    given = StoreSettings.configured("s3://b", endpoint="http://given:1", region="r1")
    assert (given.endpoint, given.region) == ("http://given:1", "r1")


def test_a_key_that_is_given_is_sent_without_the_token_of_the_environment(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another's")
    assert "x-amz-security-token" not in headers_of_a_put(
        recorder, StoreSettings(url="s3://b/root", endpoint=recorder.endpoint, **GIVEN)
    )


@pytest.mark.parametrize("given", [True, False])
def test_a_token_is_sent_with_its_key(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    if given:
        settings = StoreSettings(url="s3://b/root", endpoint=recorder.endpoint, **GIVEN, session_token="mine")
    else:
        for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("SESSION_TOKEN", "mine")):
            monkeypatch.setenv(f"AWS_{name}", value)
        settings = StoreSettings(url="s3://b/root", endpoint=recorder.endpoint)
    headers = headers_of_a_put(recorder, settings)
    assert headers["x-amz-security-token"] == "mine" and "Credential=key/" in headers["authorization"]


@pytest.mark.parametrize(
    "parts",
    [{"access_key": "k"}, {"secret_key": "s"}, {"session_token": "t"}, {"access_key": "k", "session_token": "t"}],
)
def test_credentials_are_not_completed_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, str]
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "x")
    with pytest.raises(InvalidRequest, match="belong together"):
        open_store("s3://b", **parts)


def test_half_a_key_in_the_environment_is_an_error_that_names_the_other_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    with pytest.raises(InvalidRequest, match="AWS_SECRET_ACCESS_KEY is not set"):
        open_store("s3://b")


def test_a_variable_that_no_setting_replaces_is_named_when_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "nonsense")
    with pytest.raises(InvalidRequest, match="AWS_SERVER_SIDE_ENCRYPTION in the environment"):
        open_store("s3://b", **GIVEN)


def test_a_child_process_gets_no_token_of_another_key() -> None:
    env = StoreSettings(url="s3://b", **GIVEN).to_env()
    assert (env["AWS_ACCESS_KEY_ID"], env["AWS_SESSION_TOKEN"]) == ("key", "")


def test_a_store_on_this_machine_is_reached_without_the_proxy_of_the_environment(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxies(monkeypatch)
    assert headers_of_a_put(recorder, StoreSettings(url="s3://b/root", endpoint=recorder.endpoint, **GIVEN))
    elsewhere = StoreSettings(url="s3://b/root", endpoint="http://filer.invalid:8333", **GIVEN).open()
    with pytest.raises(StoreUnavailable, match="connection refused"):  # by the proxy
        elsewhere.put_new("x", b"1")
