"""DIR/security: what a leader on one machine keeps of its release's keys, tokens and rights.

::

    ca.crt         the roots, for whoever connects
    authorities.json  what signs certificates, and what signed them before
    grants.key     signs grants
    brokers.key    makes the tokens of brokers
    tokens.yaml    who has which token, as hashes
    policy.yaml    who may do what
    admin.token    the token of the identity ``admin``, which may do everything
    brokers/       a token for each broker that runs

The first start makes all of it in another folder, and renames that. So the folder is whole, or it is not there.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog
import yaml

from smq_core.access.authority_rotation import CertificateLives
from smq_core.access.modes import SecurityMode
from smq_core.access.policy import ANY
from smq_core.errors import InvalidRequest
from smq_operator.local.security.broker_credentials import BrokerCredentials
from smq_operator.local.security.folder_authorities import AUTHORITIES, ROOTS, FolderAuthorities
from smq_operator.local.security.private_files import sync_folder, write_private
from smq_operator.runtime.external_callers import ExternalCallers
from smq_operator.security.access.access_control import AccessControl
from smq_operator.security.access.audit import AccessAudit
from smq_operator.security.access.policy_file import PolicyFile
from smq_operator.security.authority.authorities import Authorities, recovered
from smq_operator.security.authority.authority_set import AuthoritySet
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from smq_operator.security.authority.leader_certificate import LeaderCertificate
from smq_operator.security.identities.external_tokens import external_tokens
from smq_operator.security.identities.tokens import BrokerTokens, ReleaseTokens, StaticTokens, token_digest
from smq_operator.security.leader_security import LeaderSecurity
from smq_proto.signed_grants import GrantSigner, new_signing_key

log = structlog.get_logger(__name__)

GRANT_KEY, BROKER_KEY = "grants.key", "brokers.key"
TOKENS, POLICY, ADMIN_TOKEN = "tokens.yaml", "policy.yaml", "admin.token"
ADMINISTRATOR = "admin"
KEY_BYTES = 32
_TOKENS_HEAD = """\
# Who has which token. sha256 is that of the token, as `printf %s "$TOKEN" | sha256sum` shows it.
# The leader reads this file anew when it has changed.
"""
_POLICY_HEAD = """\
# Who may do what; what no rule allows is denied. '*' stands for everything.
# verbs: produce, consume, administer, get, list, create, update, delete. brokers: list, update.
# The leader reads this file anew when it has changed.
"""


class SecurityFolder:
    """``clock`` returns seconds since the Unix epoch. Call it while the lock of the folder above is held."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float],
        lives: CertificateLives | None = None,
        external_callers: ExternalCallers | None = None,
    ) -> None:
        self.folder = folder
        self._external_callers = external_callers or ExternalCallers()
        self._clock = clock
        self._lives = lives or CertificateLives()

    def ensure(self, release: str) -> None:
        """Makes the folder for the release with this uid, if there is none. Raises InvalidRequest."""
        if self.folder.exists():
            return
        unfinished = self.folder.with_name(f".{self.folder.name}.new")
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(mode=0o700)
            for name, content in self._first_files(release).items():
                write_private(unfinished / name, content)
            sync_folder(unfinished)
            unfinished.rename(self.folder)
            sync_folder(self.folder.parent)
        except OSError as error:
            raise InvalidRequest(f"cannot make {self.folder} ({error.strerror}): choose another --dir") from None
        log.info("security.created", folder=str(self.folder), message=f"{ADMIN_TOKEN} is the token of an administrator")

    def _first_files(self, release: str) -> dict[str, bytes]:
        now = self._clock()
        authority = CertificateAuthority.create(release, now=now, lives=self._lives)
        token = secrets.token_urlsafe(KEY_BYTES)
        tokens = {"tokens": [{"identity": ADMINISTRATOR, "sha256": token_digest(token).hex()}]}
        all_of_it = ("namespaces", "topics", "consumerGroups", "verbs", "brokers")
        policy = {"rules": [{"identities": [ADMINISTRATOR], **{field: [ANY] for field in all_of_it}}]}
        return {
            ROOTS: authority.roots,
            AUTHORITIES: AuthoritySet.of(release, authority.keys, now).to_json(),
            GRANT_KEY: new_signing_key(),
            BROKER_KEY: secrets.token_bytes(KEY_BYTES),
            TOKENS: (_TOKENS_HEAD + yaml.safe_dump(tokens, sort_keys=False)).encode(),
            POLICY: (_POLICY_HEAD + yaml.safe_dump(policy, sort_keys=False)).encode(),
            ADMIN_TOKEN: token.encode(),
        }

    def broker_tokens(self, has_ended: Callable[[str], bool]) -> BrokerTokens:
        """Raises InvalidRequest if the key is not there."""
        return BrokerTokens(self._key(BROKER_KEY), has_ended)

    def credentials(self, tokens: BrokerTokens, mode: SecurityMode = SecurityMode.REQUIRED) -> BrokerCredentials:
        return BrokerCredentials(self.folder / "brokers", self.folder / ROOTS, tokens, mode)

    def open(self, brokers: BrokerTokens, process: str) -> LeaderSecurity:
        """What is in the folder, for the leader whose process has this id. Raises InvalidRequest if it is not whole."""
        authorities = self._authorities()
        external = external_tokens(self._external_callers, lambda: authorities.known.roots)
        tokens = ReleaseTokens([brokers, *external], StaticTokens(self.folder / TOKENS))
        policy = PolicyFile(self.folder / POLICY)
        return LeaderSecurity(
            authorities=authorities,
            certificate=LeaderCertificate(authorities, process, self._clock),
            grants=GrantSigner(self._key(GRANT_KEY)),
            access=AccessControl(tokens, policy, AccessAudit(self._clock)),
        )

    def _authorities(self) -> Authorities:
        """Those in the folder; a new one in place of one that has expired."""
        store = FolderAuthorities(self.folder)
        stored = store.read()
        known = recovered(stored, None, self._clock(), self._lives)
        if known is not stored:
            store.write(known)
        store.write_roots(known.roots)
        return Authorities(store, known, self._lives, self._clock)

    def _key(self, name: str) -> bytes:
        key = self._read(name)
        if len(key) != KEY_BYTES:
            raise InvalidRequest(f"{self.folder / name} is damaged: it has {len(key)} bytes, not {KEY_BYTES}")
        return key

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise InvalidRequest(
                f"{self.folder / name} cannot be read ({error.strerror}): restore it. Without {self.folder} the next "
                "start makes a new one, with other keys and tokens"
            ) from None
