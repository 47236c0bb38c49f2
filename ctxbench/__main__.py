"""The command `ctxbench`, which `python -m ctxbench` is, too."""

import signal


def main() -> None:
    """Import the command line and call it. Ctrl-C meanwhile ends the process at once: there is nothing to clean up."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ctxbench import cli

    signal.signal(signal.SIGINT, handler)
    cli.main()


if __name__ == "__main__":
    main()
