"""Broken rules for client certificates of the user's authority, each of which would let somebody in."""

from __future__ import annotations

from ..mutation import Mutation

TOKENS = "operator/smq_operator/security/identities/certificate_tokens.py"
CALLER = "operator/smq_operator/security/identities/external_caller.py"
FORMAT = "proto/smq_proto/certificate_tokens.py"
TEST = "tests/unit/operator/security/identities/test_certificate_tokens.py"

MUTATIONS = (
    Mutation(
        "take_certificates_of_any_authority",
        "Only certificates of the authorities in the file count.",
        TOKENS,
        "            _verifier(self._file.current(), now).verify(leaf, between)\n",
        "",
        (f"{TEST}::test_other_certificates_do_not_count",),
    ),
    Mutation(
        "take_tokens_without_a_signature",
        "Who has a certificate and not its key is nobody.",
        TOKENS,
        '"verify_iat": False},',
        '"verify_iat": False, "verify_signature": False},',
        (f"{TEST}::test_a_token_is_signed_by_the_key_of_its_certificate",),
    ),
    Mutation(
        "take_tokens_of_another_release",
        "A token counts in the release whose roots it names.",
        TOKENS,
        '"verify_iat": False},',
        '"verify_iat": False, "verify_aud": False},',
        (f"{TEST}::test_a_token_counts_in_the_release_that_it_was_made_for_only",),
    ),
    Mutation(
        "take_tokens_for_as_long_as_they_say",
        "Nobody makes a token that lasts longer than minutes.",
        TOKENS,
        "min(expires_at, issued_at + LIFE_SECONDS)",
        "expires_at",
        (f"{TEST}::test_nobody_makes_a_token_last_longer",),
    ),
    Mutation(
        "take_tokens_from_the_future",
        "A token does not count before its time.",
        TOKENS,
        "if not issued_at - LEEWAY_SECONDS <= now <=",
        "if not now <=",
        (f"{TEST}::test_a_token_counts_for_minutes",),
    ),
    Mutation(
        "name_callers_without_the_prefix",
        "A certificate makes nobody a ServiceAccount.",
        CALLER,
        "(what, prefix + text)",
        "(what, text)",
        (f"{TEST}::test_a_caller_is_who_its_certificate_says",),
    ),
    Mutation(
        "take_the_first_of_many_names",
        "A certificate names one caller.",
        TOKENS,
        "if len(names) != 1:",
        "if not names:",
        (f"{TEST}::test_a_certificate_names_one_caller",),
    ),
    Mutation(
        "outlive_the_certificate",
        "What a caller gets ends with its certificate.",
        TOKENS,
        "expires_at = leaf.not_valid_after_utc.timestamp()",
        "expires_at = 0.0",
        (f"{TEST}::test_a_caller_is_who_its_certificate_says",),
    ),
    Mutation(
        "sign_with_any_key",
        "A program notices at once that its key is another certificate's.",
        FORMAT,
        "if private.public_key() != certificates[0].public_key():",
        "if False:",
        (f"{TEST}::test_a_token_is_signed_by_the_key_of_its_certificate",),
    ),
)
