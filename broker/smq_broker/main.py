"""``smq-broker``, or ``python -m smq_broker.main``."""

from __future__ import annotations

from smq_broker import spare


def main() -> None:
    spare.refuse_imports()
    # After that, so that nothing of it has been imported yet.
    from smq_broker.process import run

    run()


if __name__ == "__main__":
    main()
