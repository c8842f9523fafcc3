"""Broken rules for tokens of an issuer, each of which would let somebody in, or call the issuer without end."""

from __future__ import annotations

from ..mutation import Mutation

KEYS = "operator/smq_operator/security/identities/oidc/issuer_keys.py"
CALLER = "operator/smq_operator/security/identities/external_caller.py"
TOKENS = "operator/smq_operator/security/identities/oidc/oidc_tokens.py"
DOCUMENTS = "operator/smq_operator/security/identities/oidc/issuer_documents.py"

TEST = "tests/unit/operator/security/identities/oidc/test_oidc_tokens.py"
TEST_CLAIMS = f"{TEST}::test_a_token_with_wrong_claims_does_not_count"
TEST_KEYS = f"{TEST}::test_keys_that_are_none_are_left_out"
TEST_INVALID = f"{TEST}::test_an_issuer_that_answers_invalid_documents_changes_nothing"

MUTATIONS = (
    Mutation(
        "take_tokens_that_never_expire",
        "A token needs an end.",
        TOKENS,
        'REQUIRED_CLAIMS = ("exp", ',
        "REQUIRED_CLAIMS = (",
        (TEST_CLAIMS,),
    ),
    Mutation(
        "take_tokens_for_others",
        "A token counts for the audience of this release.",
        TOKENS,
        'options={"require": list(REQUIRED_CLAIMS)},',
        'options={"require": list(REQUIRED_CLAIMS), "verify_aud": False},',
        (TEST_CLAIMS,),
    ),
    Mutation(
        "take_tokens_of_another_issuer",
        "A token counts if it is one of the issuer.",
        TOKENS,
        "                issuer=settings.issuer,\n",
        "",
        (TEST_CLAIMS,),
    ),
    Mutation(
        "leave_out_the_prefix",
        "Nobody at the issuer has the name of another kind of caller.",
        CALLER,
        "(what, prefix + text)",
        "(what, text)",
        (f"{TEST}::test_each_kind_of_token_has_its_own_callers",),
    ),
    Mutation(
        "take_an_address_that_nobody_verified",
        "An email address is an identity if the issuer has verified it.",
        TOKENS,
        'claims.get("email_verified") is not True',
        "False",
        (f"{TEST}::test_claims_and_prefix_are_settings",),
    ),
    Mutation(
        "take_keys_for_encryption",
        "A key for something else signs no tokens.",
        KEYS,
        'or described.get("use", "sig") != "sig"',
        "",
        (TEST_KEYS,),
    ),
    Mutation(
        "take_weak_keys",
        "A key of RSA has 2,048 bits.",
        KEYS,
        "parsed.key.key_size < MIN_RSA_BITS",
        "False",
        (TEST_KEYS,),
    ),
    Mutation(
        "fetch_for_each_unknown_key",
        "Unknown keys make the leader fetch once in a while.",
        KEYS,
        " and now - self._tried_at >= COOLDOWN_SECONDS",
        "",
        (f"{TEST}::test_unknown_keys_make_one_fetch_and_then_wait",),
    ),
    Mutation(
        "forget_keys_while_the_issuer_is_down",
        "Kept keys count while the issuer does not answer.",
        KEYS,
        "            self._problem = error.message\n",
        "            self._problem, self._keys = error.message, {}\n",
        (f"{TEST}::test_kept_keys_count_while_the_issuer_is_down",),
    ),
    Mutation(
        "keep_withdrawn_keys_for_ever",
        "Keys are fetched anew after some minutes.",
        KEYS,
        "now - self._fetched_at >= KEYS_SECONDS",
        "False",
        (f"{TEST}::test_a_withdrawn_key_ends",),
    ),
    Mutation(
        "take_the_description_of_another_issuer",
        "A description counts if it is the issuer's own.",
        KEYS,
        'described.get("issuer") != self._issuer',
        "False",
        (TEST_INVALID,),
    ),
    Mutation(
        "read_without_limit",
        "A document of an issuer has a limited size.",
        DOCUMENTS,
        "len(text) > MAX_DOCUMENT_BYTES",
        "False",
        (TEST_INVALID,),
    ),
    Mutation(
        "fetch_in_clear_text",
        "Keys are fetched where nobody can change them on the way.",
        DOCUMENTS,
        "if not is_protected(url):",
        "if False:",
        (TEST_INVALID,),
    ),
    Mutation(
        "follow_redirects",
        "Keys come from where the issuer says they are.",
        DOCUMENTS,
        "build_opener(_NoRedirects)",
        "build_opener()",
        (TEST_INVALID,),
    ),
)
