"""`ctxbench calibrate`: a file that stands for this device in predictions."""

from pathlib import Path
from typing import Annotated

import typer

from ctxbench.base.errors import UsageError
from ctxbench.base.terminal import say
from ctxbench.cli.printing import render


def calibrate(
    out: Annotated[Path, typer.Option(help="The file to write, such as my_gpu.toml.")],
    device: Annotated[
        str,
        typer.Option(help="cpu, cuda or cuda:1; a100-40gb or such: measure only how fast this host starts kernels."),
    ] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Number of CPU threads; default: torch's choice.")] = None,
) -> None:
    """Measure a few kernels on this GPU or CPU and write a file that --device takes.

    This takes under two minutes. On a busy machine nothing is written.
    """
    from ctxbench import devices
    from ctxbench.base import disk, limits
    from ctxbench.base.number import significant
    from ctxbench.engine.client import ForkServer
    from ctxbench.engine.run import machine
    from ctxbench.plugins.calibrate.calibrate import calibrate as measure
    from ctxbench.plugins.calibrate.calibrate import text_of
    from ctxbench.plugins.predict.effects import compared
    from ctxbench.plugins.predict.sheet import sheet
    from ctxbench.table.table import plain_table

    if out.suffix != ".toml":
        raise UsageError(f"--out {out}: the name of a device's file ends in .toml")
    limits.THREADS.check_option("--threads", threads)
    if device != "auto":
        devices.sheets([device])  # an unknown name ends here
    with disk.claimed(out), ForkServer(static=False) as server:
        environment = machine(server)
        name = devices.auto(environment) if device == "auto" else device
        content = measure(
            name, threads, environment, server, lambda kernel, ms: say(f"{kernel}: {significant(ms, 4)} ms")
        )
        disk.write(out, text_of(out.stem.replace(".", "-").replace(" ", "-"), content))
    found = sheet(str(out))
    if found.kernels_ms:
        rows = [(group, str(kernels), ratio) for group, kernels, ratio in compared(found)]
        render(plain_table({"class": "label", "kernels": "counted", "measured / predicted": "ratio"}, rows))
    say(f"{found.title}: the host takes {found.host_us:.3g} us for an operator. Wrote {out}: use it as --for {out}.")
