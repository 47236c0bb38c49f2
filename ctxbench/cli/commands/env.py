"""`ctxbench env`: what a run records of the machine."""

import json


def env() -> None:
    """Print the hardware, software and settings that a run records, as JSON."""
    from ctxbench.results import environment

    print(json.dumps(environment.describe(), indent=2))
