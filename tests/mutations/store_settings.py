"""Broken rules of how a process reaches its store: what wins over the environment, and whose credentials are sent."""

from __future__ import annotations

from .mutation import Mutation

CLIENTS = "storage/smq_storage/object_store/clients.py"
CREDENTIALS = "storage/smq_storage/object_store/credentials.py"
STORE = "storage/smq_storage/object_store/store.py"
TEST_REJECTIONS = "tests/unit/storage/test_store_rejections.py"
TESTS = "tests/unit/storage/test_store_environment.py"

MUTATIONS = (
    Mutation(
        "let_the_environment_replace_the_endpoint",
        "A variable for another store must not move a topic there.",
        CLIENTS,
        '"aws_endpoint_url_s3": endpoint,',
        "",
        (f"{TESTS}::test_no_variable_changes_a_request_whose_settings_are_given",),
    ),
    Mutation(
        "send_a_key_with_the_token_of_the_environment",
        "Credentials come from one source.",
        CREDENTIALS,
        "return SigningKey(access_key, secret_key, session_token or None)",
        'return SigningKey(access_key, secret_key, session_token or os.environ.get("AWS_SESSION_TOKEN"))',
        (f"{TESTS}::test_a_key_that_is_given_is_sent_without_the_token_of_the_environment",),
    ),
    Mutation(
        "inherit_the_token_of_another_key",
        "A child process must not combine the key with this process's token.",
        STORE,
        '"AWS_SESSION_TOKEN": self.session_token or "",',
        "",
        (f"{TESTS}::test_a_child_process_gets_no_token_of_another_key",),
    ),
    Mutation(
        "reach_a_store_on_this_machine_through_a_proxy",
        "A proxy of the environment is for the way out.",
        CLIENTS,
        'if proxy or not is_this_machine(urlsplit(url or "").hostname):',
        "if True:",
        (f"{TESTS}::test_a_store_on_this_machine_is_reached_without_the_proxy_of_the_environment",),
    ),
    Mutation(
        "reach_brokers_and_leaders_through_a_proxy",
        "A proxy of the environment is for the way out.",
        "proto/smq_proto/channel_options.py",
        'NO_PROXY = ("grpc.enable_http_proxy", 0)',
        'NO_PROXY = ("grpc.enable_http_proxy", 1)',
        ("tests/unit/proto/test_channel_options.py::test_a_channel_ignores_the_proxy_of_the_environment",),
    ),
    Mutation(
        "retry_where_there_are_no_conditional_writes",
        "A store that does not know conditional writes never will.",
        STORE,
        'if mode != "overwrite" and is_not_implemented(error):',
        "if False:",
        (f"{TEST_REJECTIONS}::test_a_store_without_conditional_writes_is_refused_at_once",),
    ),
    Mutation(
        "keep_the_reason_of_the_store",
        "Who set a wrong region has to be told.",
        "storage/smq_storage/object_store/failures.py",
        "if advice := rejection(error):",
        "if advice := None:",
        (f"{TEST_REJECTIONS}::test_a_setting_that_is_wrong_is_named",),
    ),
)
