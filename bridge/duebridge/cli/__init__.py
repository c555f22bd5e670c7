"""The command line. `main` is light on purpose: Ctrl-C gives 130 even while the rest is loaded."""

INTERRUPTED = 130


def main() -> int:
    """Run the command of this process; returns its exit code (`duebridge.cli.exits` lists them)."""
    try:
        from duebridge.cli.app import app
        from duebridge.cli.exits import run_guarded

        return run_guarded(app)
    except KeyboardInterrupt:
        return INTERRUPTED
