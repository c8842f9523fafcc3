"""Runs Python as it was called, with a leader whose certificates and grants live for seconds.

``python short_lives.py LIVES python -m smq_operator.main …``, where LIVES is a ``Lives`` as JSON.
"""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import dataclass

from smq_core.access.authority_rotation import CertificateLives
from smq_operator.api import auth
from smq_operator.security.authority import authorities


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """In seconds. See ``CertificateLives``; ``step`` is how often the leader looks at the rotation."""

    client: int = 15 * 60
    grant: int = 5 * 60
    server: int = 24 * 3600
    authority: int = 365 * 24 * 3600
    margin: int = 15 * 60
    step: float = 5.0


def main() -> None:
    given, _, _, module, *arguments = sys.argv[1:]
    lives = json.loads(given)
    auth.GRANT_SECONDS, authorities.STEP_SECONDS = lives.pop("grant"), lives.pop("step")  # type: ignore[attr-defined]
    CertificateLives.__init__.__kwdefaults__.update(lives)  # type: ignore[union-attr]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
