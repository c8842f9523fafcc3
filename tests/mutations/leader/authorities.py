"""Broken rules of the rotation of authorities: somebody would meet a certificate that it does not trust."""

from __future__ import annotations

from ..mutation import Mutation

ROTATION = "core/smq_core/access/authority_rotation.py"
AUTHORITIES = "operator/smq_operator/security/authority/authorities.py"
AUTHORITY_SET = "operator/smq_operator/security/authority/authority_set.py"
CERTIFICATES = "operator/smq_operator/security/authority/certificate_authority.py"

TEST_ROTATION = "tests/unit/core/access/test_authority_rotation.py"
TEST_TRUST = f"{TEST_ROTATION}::test_everybody_trusts_every_certificate_at_each_moment"
TEST_AUTHORITIES = "tests/unit/operator/security/authority/test_authorities.py"
TEST_CERTIFICATES = "tests/unit/operator/security/authority/test_certificate_authority.py"
TEST_RENEWAL = "tests/unit/broker/access/test_renewal.py"

MUTATIONS = (
    Mutation(
        "sign_before_brokers_trust_it",
        "An authority signs when every broker trusts it.",
        ROTATION,
        "        if brokers_behind:\n",
        "        if False:\n",
        (TEST_TRUST, f"{TEST_ROTATION}::test_it_signs_only_when_every_broker_trusts_it"),
    ),
    Mutation(
        "sign_before_clients_trust_it",
        "An authority signs when every client has logged in since it was introduced.",
        ROTATION,
        "left = new.since + lives.client - now",
        "left = new.since - now",
        (TEST_TRUST, f"{TEST_ROTATION}::test_it_signs_only_when_every_client_has_logged_in_since"),
    ),
    Mutation(
        "drop_an_authority_that_is_still_needed",
        "A former authority is trusted until what it signed has ended.",
        ROTATION,
        "now >= authority.since + longest + lives.margin",
        "now >= authority.since + lives.client",
        (TEST_TRUST, f"{TEST_ROTATION}::test_a_rotation_from_its_beginning_to_its_end"),
    ),
    Mutation(
        "wait_for_those_who_trust_nothing_any_more",
        "An authority that has expired is replaced without waiting.",
        ROTATION,
        "if new is None or now >= self.signing.expires_at:",
        "if new is None:",
        (f"{TEST_ROTATION}::test_nobody_is_waited_for_when_the_one_that_signs_has_expired",),
    ),
    Mutation(
        "keep_the_key_of_a_former_authority",
        "Nobody can sign with the key of a retired authority.",
        AUTHORITY_SET,
        'replace(known[it.id], key=b"") if it.phase is AuthorityPhase.RETIRED else known[it.id]',
        "known[it.id]",
        (f"{TEST_AUTHORITIES}::test_it_rotates_by_age_and_everybody_finds_the_bundle",),
    ),
    Mutation(
        "rotate_without_leading",
        "Only the leader changes the authorities.",
        AUTHORITIES,
        "            if not leads:\n",
        "            if False:\n",
        (f"{TEST_AUTHORITIES}::test_another_operator_goes_on_in_the_middle",),
    ),
    Mutation(
        "make_an_authority_in_place_of_the_users",
        "An authority that a user gives is replaced by the user alone.",
        AUTHORITIES,
        "elif not self._store.given_by and known.rotation.is_due(now):",
        "elif known.rotation.is_due(now):",
        (f"{TEST_AUTHORITIES}::test_an_authority_of_the_user_is_followed",),
    ),
    Mutation(
        "trust_the_root_of_a_company",
        "A release trusts its own authority, and not others below the same root.",
        CERTIFICATES,
        "        return first_certificate(self.chain).public_bytes(serialization.Encoding.PEM)\n",
        "        return self.chain\n",
        (f"{TEST_CERTIFICATES}::test_an_authority_is_trusted_without_those_above_it",),
    ),
    Mutation(
        "leave_the_former_root_behind",
        "Who only has the former root trusts what the next authority signs.",
        CERTIFICATES,
        'cross = b"" if former is None else former.cross_certificate(root, now)',
        'cross = b""',
        (f"{TEST_CERTIFICATES}::test_who_only_has_the_former_root_knows_the_next_authoritys_servers",),
    ),
    Mutation(
        "report_authorities_before_they_are_in_use",
        "A broker reports other authorities when its server shows a certificate of theirs.",
        "broker/smq_broker/access/renewal.py",
        "        on_renewal()\n        self.authorities = login.authorities\n",
        "        self.authorities = login.authorities\n        on_renewal()\n",
        (f"{TEST_RENEWAL}::test_other_authorities_are_taken_at_once_and_reported_when_they_are_in_use",),
    ),
    Mutation(
        "follow_authorities_at_the_next_renewal",
        "A broker takes other authorities at once.",
        "broker/smq_broker/access/renewal.py",
        " and self._announced == self.authorities:",
        ":",
        (f"{TEST_RENEWAL}::test_other_authorities_are_taken_at_once_and_reported_when_they_are_in_use",),
    ),
    Mutation(
        "count_a_broker_that_may_still_run_as_ready",
        "A new authority waits for every broker that may still run.",
        "operator/smq_operator/brokers/registry.py",
        "if it.has_reported and it.terminated is None)",
        "if it.has_reported and it.terminated is None and not it.suspected)",
        ("tests/unit/operator/brokers/test_registry.py::test_brokers_with_other_authorities_are_those_that_may_run",),
    ),
    Mutation(
        "keep_a_failed_renewal_to_the_leader",
        "Why certificates cannot be renewed is said before they end.",
        AUTHORITIES,
        'return failure and f"the authority of the release cannot be kept up to date: {failure}"',
        'return ""',
        (f"{TEST_AUTHORITIES}::test_why_certificates_cannot_be_renewed_is_said_before_they_end",),
    ),
    Mutation(
        "say_nothing_of_an_authority_that_ends_soon",
        "Why certificates cannot be renewed is said before they end.",
        AUTHORITIES,
        "if not signing.is_late(now):",
        "if now < signing.expires_at:",
        (f"{TEST_AUTHORITIES}::test_why_certificates_cannot_be_renewed_is_said_before_they_end",),
    ),
    Mutation(
        "show_no_event_of_certificates",
        "What is wrong with certificates is the Event CertificatesNotReady.",
        "operator/smq_operator/kube/status/decision_events.py",
        "if problem.where == CERTIFICATES:",
        "if False:",
        ("tests/unit/operator/kube/test_status_writer.py::test_what_is_wrong_in_the_leader_is_an_event",),
    ),
    Mutation(
        "quote_a_key_of_damaged_authorities",
        "No message has a key.",
        AUTHORITY_SET,
        "these are no authorities of a release: {type(error).__name__}",
        "these are no authorities of a release: {error}",
        (f"{TEST_AUTHORITIES}::test_a_set_that_is_damaged_is_refused_without_a_word_of_its_keys",),
    ),
)
