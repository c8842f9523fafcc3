"""The command line `smq`. Its commands use only the library's public names."""


def main() -> None:
    """Runs the command line. Ctrl-C ends it quietly also while its modules are loaded."""
    try:
        from smq.cli.app import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
