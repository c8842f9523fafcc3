"""Addresses of IPv4, IPv6 and host names."""

import pytest

from smq_core.model.addresses import advertised_address, join_address, split_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7070", "127.0.0.1", 7070),
        ("leader.space.svc:0", "leader.space.svc", 0),
        (":7070", "", 7070),
        ("[::1]:7070", "::1", 7070),
        ("[::]:0", "::", 0),
        ("[fd00::a:1]:65535", "fd00::a:1", 65535),
        ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
    ],
)
def test_an_address_is_split_and_joined(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)
    assert join_address(host, port) == text


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:-1", "[::1]", "[x]:1", "[::1:1", "a b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an address is host:port"):
        split_address(text)


def test_a_bare_ipv6_address_is_refused_with_the_right_form() -> None:
    with pytest.raises(ValueError, match=r"in brackets, such as \[::1\]:7070"):
        split_address("::1:7070")
    assert join_address("[::1]", 7070) == "[::1]:7070"


@pytest.mark.parametrize("port", ["65536", "184467440737095516161"])
def test_a_port_that_does_not_exist_is_named(port: str) -> None:
    with pytest.raises(ValueError, match=f"there is no port {port}"):
        split_address(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker-1.smq", "broker-1.smq:4711"),
        ("10.1.2.3", "10.1.2.3:4711"),
        ("10.1.2.3:0", "10.1.2.3:4711"),
        ("10.1.2.3:1", "10.1.2.3:1"),
        ("fd00::a:1", "[fd00::a:1]:4711"),
        ("[fd00::a:1]", "[fd00::a:1]:4711"),
        ("[fd00::a:1]:1", "[fd00::a:1]:1"),
        ("fe80::1%eth0", "[fe80::1%eth0]:4711"),
    ],
)
def test_an_address_to_advertise_may_be_a_host_alone(text: str, address: str) -> None:
    assert advertised_address(text, 4711) == address


@pytest.mark.parametrize("text", ["", ":7070", "http://x", "a b", "x:y", "[::1", "a:b:c", "[x]"])
def test_what_nobody_can_connect_to_is_not_advertised(text: str) -> None:
    with pytest.raises(ValueError, match=r"host"):
        advertised_address(text, 4711)
