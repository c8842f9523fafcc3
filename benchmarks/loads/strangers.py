"""Strangers at the ports of a secure release: ``python -m benchmarks.loads.strangers ADDRESS… --idle 2000 --rate 20``.

At each address they keep ``--idle`` connections that say nothing, and try ``--rate`` handshakes a second with a
certificate that nobody signed. It prints ``started`` when all idle connections are open, and at SIGTERM a JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import resource
import signal
import ssl
import tempfile
from collections import Counter
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Connections that are being opened at once at one address: the queue of a listening socket is short.
OPENING = 50


def stranger_context(folder: Path) -> ssl.SSLContext:
    """TLS with a certificate that nobody has signed: the server verifies it, the most that a stranger costs."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stranger")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = folder / "stranger.pem"
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(pem)
    return context


class Strangers:
    """``counts``: handshakes, admitted (which must stay 0), reopened and failed idle connections."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.counts = Counter({"handshakes": 0, "admitted": 0, "reopened": 0, "failed": 0})
        self._context = context
        self._opening = asyncio.Semaphore(OPENING)

    async def idle(self, host: str, port: int, opened: asyncio.Event) -> None:
        """One connection without a byte, opened again when the server ends it."""
        while True:
            try:
                async with self._opening:
                    reader, writer = await asyncio.open_connection(host, port)
            except OSError:
                self.counts["failed"] += 1
                await asyncio.sleep(1)
                continue
            opened.set()
            try:
                while await reader.read(1 << 10):
                    pass
            except OSError:
                pass
            writer.close()
            self.counts["reopened"] += 1

    async def knock(self, host: str, port: int) -> None:
        """One handshake. On the client's side TLS 1.3 ends before the server has refused: the next read says which."""
        self.counts["handshakes"] += 1
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
            self.counts["admitted"] += bool(await asyncio.wait_for(reader.read(1), 30))
            writer.close()
        except (OSError, TimeoutError):
            pass


async def run(addresses: list[str], idle: int, rate: float) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    with tempfile.TemporaryDirectory() as folder:
        strangers = Strangers(stranger_context(Path(folder)))
    tasks: set[asyncio.Task[None]] = set()
    targets = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in addresses)]
    opened = [asyncio.Event() for _ in range(idle * len(targets))]
    for number, event in enumerate(opened):
        tasks.add(asyncio.create_task(strangers.idle(*targets[number % len(targets)], event)))
    for event in opened:
        await event.wait()
    print("started", flush=True)
    while not stopped.is_set():
        for target in targets:
            task = asyncio.create_task(strangers.knock(*target))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(1 / rate)
    for task in list(tasks):
        task.cancel()
    print(json.dumps(strangers.counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs="+", metavar="ADDRESS")
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=20)
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run(args.addresses, args.idle, args.rate))


if __name__ == "__main__":
    main()
