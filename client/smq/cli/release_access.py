"""What `kubectl smq` needs to enter a release that knows its callers: the roots, and a token of an account."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# A command that follows a topic runs for as long. API servers may give tokens for less.
TOKEN_LIFE = "12h"


class AccessFailed(Exception):
    """The message is for the user."""


@contextmanager
def release_access(
    kubectl: Sequence[str], *, name: str, namespace: str, audience: str, account: str
) -> Iterator[dict[str, str]]:
    """The variables for `smq`. Their files, which only this user can read, are deleted after the block.

    ``name`` is the prefix of the names of the release's resources; ``account`` is a ServiceAccount of the namespace.
    Raises AccessFailed.
    """
    inside = [*kubectl, f"--namespace={namespace}"]
    roots = _output([*inside, "get", "configmap", f"{name}-security-roots", "--output=jsonpath={.data.ca\\.crt}"])
    try:
        token = _output([*inside, "create", "token", account, f"--audience={audience}", f"--duration={TOKEN_LIFE}"])
    except AccessFailed as failed:
        raise AccessFailed(
            f"{failed}\nthis release lets in who has a token, and kubectl could create none for the ServiceAccount "
            f"{account}: choose another one by --account, or set SMQ_TOKEN_FILE"
        ) from None
    with tempfile.TemporaryDirectory(prefix="smq-") as folder:
        found = {"SMQ_CA_FILE": roots, "SMQ_TOKEN_FILE": token}
        for variable, content in found.items():
            (Path(folder) / variable).write_text(content)
        yield {variable: str(Path(folder) / variable) for variable in found}


def _output(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        # kubectl logs its attempts before it says what went wrong.
        raise AccessFailed((done.stderr.strip() or f"kubectl ended with exit code {done.returncode}").splitlines()[-1])
    return done.stdout.strip()
