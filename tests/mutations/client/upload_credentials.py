"""Mutations of upload credentials: what a presigned URL is bound to, who gets one, and who needs one."""

from __future__ import annotations

from ..mutation import Mutation

URLS = "storage/smq_storage/object_store/presigned/urls.py"
PUTS = "storage/smq_storage/object_store/presigned/puts.py"
SERVICE = "operator/smq_operator/api/uploads.py"
STORE = "client/smq/transport/topic_store.py"
UPLOADER = "client/smq/producing/uploads/uploader.py"
TEST_URLS = "tests/unit/storage/test_presigned_urls.py"
TEST_PUTS = "tests/integration/storage/test_presigned_puts.py"
TEST_SERVICE = "tests/unit/operator/api/test_uploads.py"
TEST_PUBLISHING = "tests/unit/client/uploads/test_publishing.py"
TEST_LARGE_VALUES = "tests/unit/client/uploads/test_large_values.py"
TEST_VIEW = "tests/unit/client/transport/test_topic_view.py"

MUTATIONS = (
    Mutation(
        "sign_a_url_that_overwrites",
        "A used URL overwrites nothing.",
        URLS,
        '        "if-none-match": "*",\n',
        "",
        (f"{TEST_PUTS}::test_a_used_url_overwrites_nothing",),
    ),
    Mutation(
        "sign_a_url_for_any_length",
        "A URL is bound to the file's length.",
        URLS,
        '        "content-length": str(size),\n',
        "",
        (f"{TEST_URLS}::test_a_url_has_the_address_that_the_store_uses_and_what_the_request_must_have",),
    ),
    Mutation(
        "sign_a_url_for_any_content",
        "A URL is bound to the file's content.",
        URLS,
        '        "x-amz-checksum-sha256": base64.b64encode(sha256).decode(),\n',
        "",
        (f"{TEST_PUTS}::test_a_url_is_good_for_nothing_else",),
    ),
    Mutation(
        "log_the_signature_of_a_url",
        "No error shows a signature.",
        PUTS,
        '    where = put.url.partition("?")[0]\n',
        "    where = put.url\n",
        (f"{TEST_PUTS}::test_a_url_is_good_for_nothing_else",),
    ),
    Mutation(
        "sign_uploads_of_a_former_topic",
        "Only a living topic gets URLs.",
        "operator/smq_operator/api/topics.py",
        " or topic.uid != uid:",
        ":",
        (f"{TEST_SERVICE}::test_a_request_that_is_wrong_gets_no_url",),
    ),
    Mutation(
        "sign_any_number_of_uploads",
        "A call names a bounded number of files.",
        SERVICE,
        "    if len(request.files) > MAX_FILES:\n",
        "    if False:\n",
        (f"{TEST_SERVICE}::test_a_request_that_is_wrong_gets_no_url",),
    ),
    Mutation(
        "sign_any_name_of_a_large_value",
        "A name leads to the large values of the topic and nowhere else.",
        SERVICE,
        "path = paths.large_value(topic_uid, name)",
        'path = f"_large_values/{topic_uid}/{name}"',
        (f"{TEST_SERVICE}::test_a_request_that_is_wrong_gets_no_url",),
    ),
    Mutation(
        "upload_a_large_value_under_another_name",
        "The object has the name by which its message refers to it.",
        "client/smq/producing/uploads/upload_targets.py",
        "large_value=paths.upload_name(path)",
        'large_value=""',
        ("tests/unit/client/uploads/test_upload_targets.py",),
    ),
    Mutation(
        "fail_a_large_value_because_no_leader_answers_now",
        "The upload of a large value is repeated while no leader signs it.",
        "client/smq/producing/uploads/large_values.py",
        "except Unavailable as error:",
        "except StoreUnavailable as error:",
        (f"{TEST_LARGE_VALUES}::test_an_upload_without_a_clear_answer_is_repeated_under_its_name",),
    ),
    Mutation(
        "sign_uploads_of_clients_with_credentials",
        "A client that has credentials uses them.",
        STORE,
        "self._settings.lacks_credentials and self._leader is not None",
        "self._settings.needs_credentials and self._leader is not None",
        (f"{TEST_VIEW}::test_uploads_are_signed_by_the_leader_only_if_the_client_needs_it",),
    ),
    Mutation(
        "forget_that_the_store_needs_credentials",
        "An answer that does not say it changes nothing.",
        STORE,
        "elif located.needs_credentials and not self._settings.needs_credentials:\n"
        "            self._settings = replace(self._settings, needs_credentials=True)",
        "else:\n            self._settings = replace(self._settings, needs_credentials=located.needs_credentials)",
        (f"{TEST_VIEW}::test_uploads_are_signed_by_the_leader_only_if_the_client_needs_it",),
    ),
    Mutation(
        "fail_an_upload_because_no_leader_answers_now",
        "An upload is repeated while no leader signs it.",
        UPLOADER,
        "if time.monotonic() + backoff.seconds > deadline:",
        "if isinstance(error, Unavailable) or time.monotonic() + backoff.seconds > deadline:",
        (f"{TEST_PUBLISHING}::test_a_put_without_an_answer_is_repeated_under_another_name",),
    ),
)
