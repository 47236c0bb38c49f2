"""The command `ctxbench`, which `python -m ctxbench` is, too."""

import signal
import sys


def main() -> None:
    """Import the command line and call it. Ctrl-C meanwhile ends the process at once: there is nothing to clean up."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ctxbench.plugin import PluginError

    try:
        from ctxbench import cli
    except PluginError as error:
        print(f"ctxbench: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    signal.signal(signal.SIGINT, handler)
    cli.main()


if __name__ == "__main__":
    main()
