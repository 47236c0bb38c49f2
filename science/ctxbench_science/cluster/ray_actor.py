"""Code of the actor of a slot, on a host of a Ray cluster."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ctxbench.base.clocks import usable_cores
from ctxbench.engine.client import ForkServer
from ctxbench.engine.exit import Exit
from ctxbench.engine.remote import ask
from ctxbench.results.sources import code_digest, digest
from ctxbench.worker.protocol import Reply, Task

# Seconds in which a slot must become free and tell what it is: it imports torch.
OPEN_S = 120.0


class Measurer:
    """The actor of a slot: starts fork servers on its host and runs tasks in them.

    `threads` is OMP_NUM_THREADS; `slots` is how many slots the host has.
    """

    def __init__(self, folder: str, threads: str | None, malloc: str, slots: int) -> None:
        # Ray's workers ignore it, and then no child can be waited for.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Ray sets the number of processors that the actor asked for.
        os.environ.pop("OMP_NUM_THREADS", None)
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
        if Path(folder).is_dir():
            os.chdir(folder)
        _keep_to_own_cores(slots)
        self._malloc = malloc
        self._kept = ForkServer(malloc=malloc)
        self._round: ForkServer | None = None

    def describe(self, files: Sequence[str]) -> dict[str, Any]:
        """Facts of this host: GPU, the code's digest, those of the files (None: not there), and the environment."""
        answered = ask(self._kept, "machine", dict[str, Any], timeout_s=OPEN_S)
        return {
            "gpu": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "code": code_digest(),
            "files": {file: digest([Path(file)]) if Path(file).is_file() else None for file in files},
            "environment": answered.told[0] if answered.told else None,
            "output": answered.ended.output,
        }

    def renew(self) -> None:
        """Start a new interpreter for a round."""
        if self._round:
            self._round.close()
        self._round = ForkServer(static=False, malloc=self._malloc)

    def run(self, task: Task, timeout_s: float | None, kept: bool) -> tuple[list[Reply], Exit]:
        """Perform a task in a fresh process: what it reported, and how it ended."""
        server = self._kept if kept else self._round
        assert server is not None
        replies: list[Reply] = []
        return replies, server.run(task, replies.append, timeout_s)


def _keep_to_own_cores(slots: int) -> None:
    """Keep to this GPU's share of the cores, so that other GPUs' slots neither disturb it nor count as others' load."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    cores = usable_cores()
    size = len(cores) // slots
    if size and slots > 1 and gpu.isdigit() and int(gpu) < slots:
        os.sched_setaffinity(0, cores[int(gpu) * size : (int(gpu) + 1) * size])
