"""One certificate authority for a cluster: servers' certificates, and clients' as kubeconfigs."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
# Without this configuration, openssl would make every certificate one of an authority.
_CONFIG = "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = replaced\n"


class Authority:
    """Makes keys and certificates in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if not self.certificate("ca").exists():
            (folder / "openssl.cnf").write_text(_CONFIG)
            self._sign("ca", "/CN=smq-e2e", ["keyUsage=critical,keyCertSign,cRLSign"], signer=[])

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    def server(self, name: str, common_name: str, addresses: Sequence[str]) -> None:
        """A certificate for these addresses and names."""
        names = ",".join(f"{'IP' if _is_ip(address) else 'DNS'}:{address}" for address in addresses)
        self._leaf(name, f"/CN={common_name}", ["extendedKeyUsage=serverAuth", f"subjectAltName={names}"])

    def client(self, name: str, subject: str) -> None:
        """A certificate that identifies a client to the API server; the organisation is the group."""
        self._leaf(name, subject, ["extendedKeyUsage=clientAuth"])

    def user(self, name: str, subject: str, server: str) -> Path:
        """A client's certificate within a kubeconfig."""
        self.client(name, subject)
        text = {k: base64.b64encode(p.read_bytes()).decode() for k, p in self._files(name).items()}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority-data": text["ca"]}}],
            "users": [
                {
                    "name": name,
                    "user": {"client-certificate-data": text["certificate"], "client-key-data": text["key"]},
                }
            ],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
            "current-context": "e2e",
        }
        self.kubeconfig(name).write_text(json.dumps(document, indent=1))
        return self.kubeconfig(name)

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """A private and a public key without a certificate, for service accounts' tokens."""
        private, public = self.key(name), self.folder / f"{name}.pub"
        if not public.exists():
            _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private))
            _openssl("pkey", "-in", str(private), "-pubout", "-out", str(public))
        return private, public

    def _files(self, name: str) -> dict[str, Path]:
        return {"ca": self.certificate("ca"), "certificate": self.certificate(name), "key": self.key(name)}

    def _leaf(self, name: str, subject: str, extensions: Sequence[str]) -> None:
        if not self.certificate(name).exists():
            signer = ["-CA", str(self.certificate("ca")), "-CAkey", str(self.key("ca"))]
            usual = ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature"]
            self._sign(name, subject, [*usual, *extensions], signer)

    def _sign(self, name: str, subject: str, extensions: Sequence[str], signer: Sequence[str]) -> None:
        if not signer:
            extensions = ["basicConstraints=critical,CA:TRUE", *extensions]
        added = [word for extension in extensions for word in ("-addext", extension)]
        files = ["-keyout", str(self.key(name)), "-out", str(self.certificate(name))]
        config = ["-config", str(self.folder / "openssl.cnf"), "-subj", subject, "-days", "3650"]
        _openssl("req", "-x509", *_KEY, *files, *config, *signer, *added)


def _is_ip(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(address))
    return False


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed (OpenSSL 3 is needed): {done.stderr.strip()}")
