"""Runs Python as it was called, with a leader whose certificates and grants of clients live for seconds.

``python short_lives.py CERTIFICATE_SECONDS GRANT_SECONDS python -m smq_operator.main …``
"""

from __future__ import annotations

import runpy
import sys

from smq_operator.api import auth


def main() -> None:
    certificate, grant, _, _, module, *arguments = sys.argv[1:]
    auth.CLIENT_CERTIFICATE_SECONDS, auth.GRANT_SECONDS = int(certificate), int(grant)  # type: ignore[attr-defined]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
