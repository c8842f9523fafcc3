"""A secure release as real processes, with its policy and the tokens of its identities."""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

import smq
from smq_storage.object_store.store import StoreSettings
from support.processes import short_lives
from support.processes.local_cluster import LocalCluster
from support.processes.short_lives import Lives
from support.waiting import HANG_GUARD, eventually

Rule = dict[str, Any]


class SecureCluster(LocalCluster):
    """``connect`` is as its administrator. With ``lives`` certificates and grants have these.

    ``more`` are flags of the leader.
    """

    def __init__(
        self,
        folder: Path,
        store: StoreSettings,
        *,
        brokers: int = 2,
        lives: Lives | None = None,
        more: tuple[str, ...] = (),
    ) -> None:
        shortened = (sys.executable, str(short_lives.__file__), json.dumps(asdict(lives))) if lives is not None else ()
        arguments = ("--security=required", "--broker-arg=--relay=127.0.0.1:0", *more)
        super().__init__(folder, store, brokers=brokers, arguments=arguments, wrapper=shortened)
        self.security = folder / "security"
        self.ca_file = self.security / "ca.crt"
        self._tokens: dict[str, str] = {}
        self._rules: dict[str, list[Rule]] = {}

    def start(self, *, wait: bool = True) -> None:
        super().start(wait=False)
        eventually((self.security / "admin.token").exists, what="the folder with the keys")
        if not wait:
            return
        with self.connect() as client:
            eventually(
                lambda: sum(b.state == "alive" for b in client.admin().brokers()) >= self.brokers,
                what=f"{self.brokers} brokers; see {self.folder}",
            )

    def connect(self) -> smq.Client:
        token_file = self.security / "admin.token"
        return smq.connect(self.address, timeout=HANG_GUARD, ca_file=self.ca_file, token_file=token_file)

    def connect_as(self, identity: str, **options: Any) -> smq.Client:
        token_file = self.token_file(identity)
        return smq.connect(self.address, timeout=HANG_GUARD, ca_file=self.ca_file, token_file=token_file, **options)

    def token_file(self, identity: str) -> Path:
        """The file with the token of this identity, which is made."""
        if identity not in self._tokens:
            self.replace_token(identity)
        return self.folder / f"{identity}.token"

    def replace_token(self, identity: str) -> None:
        """From now on the identity has a new token, which is in its file, and no former one."""
        token = self._tokens[identity] = secrets.token_urlsafe(32)
        tokens = yaml.safe_load((self.security / "tokens.yaml").read_text())
        others = [it for it in tokens["tokens"] if it["identity"] != identity]
        digest = sha256(token.encode()).hexdigest()
        self._write("tokens.yaml", {"tokens": [*others, {"identity": identity, "sha256": digest}]})
        (self.folder / f"{identity}.token").write_text(token)

    def allow(self, identity: str, *rules: Rule) -> None:
        """From now on the identity has these rights, and no other ones."""
        self._rules[identity] = [{"identities": [identity], "namespaces": ["default"], **rule} for rule in rules]
        policy = yaml.safe_load((self.security / "policy.yaml").read_text())
        own = [rule for rule in policy["rules"] if rule["identities"] == ["admin"]]
        self._write("policy.yaml", {"rules": own + [rule for found in self._rules.values() for rule in found]})

    def _write(self, name: str, content: object) -> None:
        unfinished = self.security / f".{name}.new"
        unfinished.write_text(yaml.safe_dump(content))
        unfinished.chmod(0o600)
        unfinished.rename(self.security / name)
