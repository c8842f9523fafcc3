"""Runs one history again, and prints its story if it fails: ``python -m support.sim.histories KIND SEED``.

Run it from the root of the repository with ``PYTHONPATH=tests``. A kind is a module here, or a key of ``shaped.KINDS``.
"""

from __future__ import annotations

import sys
from importlib import import_module

from support.sim.histories import shaped

kind, seed = sys.argv[1], int(sys.argv[2])
failure = shaped.run(kind, seed) if kind in shaped.KINDS else import_module(f"support.sim.histories.{kind}").run(seed)
print(failure or "all invariants hold")
sys.exit(failure is not None)
