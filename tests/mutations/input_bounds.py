"""Broken rules of what strangers send: manifests, names, errors and lines of logs are bounded."""

from __future__ import annotations

from .mutation import Mutation

YAML = "storage/smq_storage/topic_manifests/yaml_documents.py"
TEST_PARSER = "tests/unit/storage/test_manifest_parser.py"
TEST_COSTS = f"{TEST_PARSER}::test_a_manifest_costs_little_whatever_is_in_it"
TEST_INPUT = "tests/unit/operator/api/test_invalid_input.py"

MUTATIONS = (
    Mutation(
        "let_the_leader_receive_requests_of_any_size",
        "A leader refuses a large request before it is there, also one that is small until it is unpacked.",
        "operator/smq_operator/api/server.py",
        '("grpc.max_receive_message_length", 16 * 1024 * 1024)',
        '("grpc.max_receive_message_length", -1)',
        ("tests/integration/operator/test_request_sizes.py::test_a_leader_refuses_a_large_request_before_it_is_there",),
    ),
    Mutation(
        "accept_aliases_in_manifests",
        "An alias multiplies what it names.",
        YAML,
        "if isinstance(event, yaml.AliasEvent):",
        "if False:",
        (TEST_COSTS,),
    ),
    Mutation(
        "compose_manifests_of_any_depth",
        "A deep document ends the stack.",
        YAML,
        "if self._depth >= MAX_DEPTH:",
        "if False:",
        (TEST_COSTS,),
    ),
    Mutation(
        "accept_manifests_of_any_size",
        "Parsing takes time in proportion to the size.",
        YAML,
        "if size_bytes > MAX_MANIFEST_BYTES:",
        "if False:",
        (TEST_COSTS,),
    ),
    Mutation(
        "parse_manifests_of_the_folder_on_the_loop",
        "The leader goes on while it parses a manifest.",
        "operator/smq_operator/local/platform.py",
        "return await asyncio.get_running_loop().run_in_executor(self._thread, run)",
        "return run()",
        ("tests/unit/operator/local/test_platform.py::test_no_call_reads_manifests_on_the_loop",),
    ),
    Mutation(
        "register_brokers_of_any_name",
        "A name is shown on terminals.",
        "operator/smq_operator/brokers/registry.py",
        '("a broker\'s name", report.broker),',
        "",
        (f"{TEST_INPUT}::test_a_report_that_cannot_be_one_is_refused",),
    ),
    Mutation(
        "accept_members_of_any_name",
        "A name is shown on terminals.",
        "operator/smq_operator/api/groups.py",
        'check_labels([("a member\'s name", request.member)], MAX_MEMBER_LENGTH)',
        "pass",
        (f"{TEST_INPUT}::test_names_of_groups_and_members_are_printable_and_short",),
    ),
    Mutation(
        "send_errors_of_any_length",
        "An error may quote what a stranger sent.",
        "proto/smq_proto/error_conversion.py",
        "message=bounded(error.message),",
        "message=error.message,",
        ("tests/unit/proto/test_errors.py::test_an_error_on_the_wire_is_small_and_printable_whatever_it_quotes",),
    ),
    Mutation(
        "limit_log_lines_by_names_of_strangers",
        "A new name for each request would pass the limiter.",
        "broker/smq_broker/streams/actions.py",
        'return name if name in self._by_name else "unknown action"',
        "return name",
        ("tests/integration/broker/test_protocol.py::test_strangers_cannot_fill_the_log",),
    ),
    Mutation(
        "log_fields_of_any_length",
        "A line of the log must not be megabytes.",
        "storage/smq_storage/process/log_bounds.py",
        "return bounded(value)\n",
        "return value\n",
        ("tests/unit/storage/test_log_bounds.py::test_a_field_has_at_most_a_thousand_characters",),
    ),
)
