"""Broken rules of a client of a secure release: whom it trusts, what it shows to whom, and when it gives up."""

from __future__ import annotations

from ..mutation import Mutation

SECURITY = "client/smq/transport/security"
CREDENTIALS = f"{SECURITY}/credentials.py"
FILES = f"{SECURITY}/security_files.py"
TESTS = "tests/unit/client/transport/security"
TEST_CREDENTIALS = f"{TESTS}/test_credentials.py"
TEST_FILES = f"{TESTS}/test_security_files.py"
TEST_LANES = "tests/unit/client/producing/test_lane_denials.py"
TEST_CLI = "tests/unit/cli/test_security_options.py"

MUTATIONS = (
    Mutation(
        "trust_any_broker_of_the_release",
        "A broker proves that it is the incarnation that the layout names.",
        "proto/smq_proto/flight.py",
        "override_hostname=broker_server_name(incarnation),",
        'override_hostname=broker_server_name("Incarnation-1"),',
        (f"{TEST_CREDENTIALS}::test_another_process_at_the_address_of_a_broker_is_not_taken_for_it",),
    ),
    Mutation(
        "send_a_token_in_clear_text",
        "A token needs a CA file.",
        FILES,
        "        if token is not None or token_file is not None or cert_file is not None:\n            raise",
        "        if False:\n            raise",
        (f"{TEST_FILES}::test_what_is_wrong_is_refused",),
    ),
    Mutation(
        "send_a_token_to_other_processes",
        "Plans have the path of a token, and never the token.",
        FILES,
        "        if self.token is not None:\n            raise",
        "        if False:\n            raise",
        (f"{TEST_FILES}::test_a_token_never_leaves_the_process",),
    ),
    Mutation(
        "show_a_token",
        "Nothing shows a token.",
        FILES,
        "    token: str | None = field(default=None, repr=False)",
        "    token: str | None = field(default=None)",
        (f"{TEST_FILES}::test_a_client_does_not_show_its_token",),
    ),
    Mutation(
        "give_the_token_of_dev_to_other_leaders",
        "The administrator's token of `smq dev` goes to its own leader only.",
        "client/smq/cli/dev_folder.py",
        "if record is not None and record.leader == address else None",
        "if record is not None else None",
        (f"{TEST_CLI}::test_its_token_goes_to_no_other_leader",),
    ),
    Mutation(
        "take_a_token_as_an_option_of_spark",
        "A token in clear text is no option of Spark, and the error says what is.",
        "spark/pyspark_smq/options.py",
        'if name.lower() == "token":',
        'if name.lower() == "no token":',
        ("tests/unit/spark/test_options.py::test_what_is_wrong_is_said",),
    ),
    Mutation(
        "use_a_certificate_that_has_ended",
        "A connection is opened with a certificate that still counts.",
        CREDENTIALS,
        "        return self._now() < certificate.expires_at - LAST_PART * life",
        "        return True",
        (f"{TEST_CREDENTIALS}::test_a_certificate_that_has_ended_is_not_used",),
    ),
    Mutation(
        "open_a_producer_without_the_right",
        "A right that is missing is known at once.",
        CREDENTIALS,
        "        if right not in rights and (denial := self._denial(topic, right)) is not None:",
        "        if (denial := None) is not None:",
        (f"{TEST_CREDENTIALS}::test_a_right_that_is_missing_is_known_at_once",),
    ),
    Mutation(
        "present_grants_without_end",
        "A broker that refuses fresh grants again ends the attempts.",
        CREDENTIALS,
        "            again = is_fresh and key in self._refused",
        "            again = False",
        (f"{TEST_CREDENTIALS}::test_a_broker_that_never_takes_the_grants_is_believed_in_the_end",),
    ),
    Mutation(
        "log_in_without_end",
        "A new certificate that is refused, too, ends the attempts.",
        CREDENTIALS,
        "            if self._replacement is used and self._now() < used.renew_at():",
        "            if False:",
        (f"{TEST_CREDENTIALS}::test_a_new_certificate_that_is_refused_is_the_end",),
    ),
    Mutation(
        "renew_grants_only_when_they_have_ended",
        "Grants are presented again after half of their life.",
        f"{SECURITY}/topic_grants.py",
        "        return self.fetched_at + (self.expires_at - self.fetched_at) / 2",
        "        return self.expires_at + 3600",
        (f"{TEST_CREDENTIALS}::test_grants_are_renewed_and_presented_to_brokers_that_are_in_use",),
    ),
    Mutation(
        "retry_after_a_denial",
        "A denial ends a producer at once.",
        "core/smq_core/producing/producer_machine.py",
        "(isinstance(failure, (ProducerFenced, InvalidRequest)) or is_denial(failure))",
        "isinstance(failure, (ProducerFenced, InvalidRequest))",
        (f"{TEST_LANES}::test_a_denial_before_the_lane_is_open_ends_the_producer",),
    ),
    Mutation(
        "keep_lanes_whose_certificate_was_replaced",
        "Lanes are replaced in order, before brokers cut them.",
        "client/smq/producing/lanes/lanes.py",
        "lane.is_unused(now, IDLE_SECONDS) or lane.is_outdated:",
        "lane.is_unused(now, IDLE_SECONDS):",
        (f"{TEST_LANES}::test_a_lane_whose_certificate_was_replaced_is_closed_in_order",),
    ),
)
