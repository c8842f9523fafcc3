"""Whether anything listens at an address, before the library, which keeps retrying, is used."""

from __future__ import annotations

import re
import socket
import time

from smq_core.errors import InvalidRequest, Unavailable
from smq_core.model.addresses import split_address

# For the first connection, over all addresses together.
CONNECT_TIMEOUT_SECONDS = 3.0
# What a relay answers to CONNECT: connected, no target of this cluster, or the target cannot be reached.
RELAY_ANSWERS = (200, 403, 502)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


def check_leader(addresses: str, timeout: float) -> None:
    """Raises Unavailable at once if the connection to each of the addresses is refused, within ``timeout`` seconds."""
    advice = "Give the address of another one: smq --leader host:port …, or SMQ_LEADER=host:port"
    _connect(addresses, "leader", timeout, advice, "; is `smq dev` running?").close()


def check_relay(addresses: str, timeout: float) -> None:
    """The same for a relay. Also raises InvalidRequest if something else answers at the address that connects."""
    advice = "`--via` or SMQ_VIA is the address of the brokers' external Service"
    with _connect(addresses, "relay", timeout, advice) as probe:
        answer = _answer_to_connect(probe)
    status = _STATUS.match(answer)
    if answer and (status is None or int(status[1]) not in RELAY_ANSWERS):
        said = f"status {int(status[1])} of HTTP" if status is not None else "another protocol than HTTP"
        raise InvalidRequest(f"what listens at {addresses} is no relay: it answers with {said}\n{advice}")


def _answer_to_connect(probe: socket.socket) -> bytes:
    """The beginning of the answer; empty if there is none in time."""
    try:
        probe.sendall(b"CONNECT localhost:7070 HTTP/1.1\r\nHost: localhost:7070\r\n\r\n")
        return probe.recv(64)
    except OSError:
        return b""


def _connect(addresses: str, who: str, timeout: float, advice: str, question: str = "") -> socket.socket:
    """The first connection that works. Raises Unavailable if none does."""
    causes: list[str] = []
    deadline = time.monotonic() + min(CONNECT_TIMEOUT_SECONDS, timeout)
    for address in addresses.split(","):
        try:
            host, port = split_address(address.strip())
            if port == 0:
                raise ValueError("there is no port 0")
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except ValueError as error:
            causes.append(str(error))
            continue
        except OSError as error:
            causes.append(error.strerror or str(error))
            continue
        for family, kind, protocol, _, end in found:
            probe = socket.socket(family, kind, protocol)
            try:
                probe.settimeout(max(0.01, deadline - time.monotonic()))
                probe.connect(end)
            except TimeoutError:
                causes.append("no answer in time")
            except OSError as error:
                causes.append(error.strerror or str(error))
            else:
                return probe
            probe.close()
    why = ", ".join(dict.fromkeys(cause[:1].lower() + cause[1:] for cause in causes))
    raise Unavailable(f"no {who} at {addresses}: {why}{question}\n{advice}")
